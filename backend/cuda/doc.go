// Package cuda is the part of ops.Backend that attention needs, on NVIDIA GPUs: activation buffers, the KV cache in pages
// or address ranges, RopeAppend and Attend. The other operations follow; until then a Backend is not an ops.Backend.
//
// A page of the cache holds PageSize tokens of all layers, [layer][K|V][KVHead][token][HeadDim], so that one page is one
// copy and, in flat mode, one mapping. Sequences that bring up to attention.MaxQLen tokens decode, split by the batch's
// policy; where one brings more, the whole batch goes through the prefill kernel in one launch.
//
// Everything that a step needs from the host travels in one copy, made in Begin. One goroutine at a time may use a
// Backend. Importing this package makes a program dynamic: the driver is opened by the dynamic linker.
package cuda
