// Package weights is what a model needs to know about the file its weights come from: named tensors,
// each a view of the file's bytes in one of quant's formats. Packages gguf and safetensors implement
// Source; a model reads from a Source and never learns which.
//
// The bytes of a Tensor usually lie in a memory-mapped file. They are read-only, and gone once the file
// is closed. If another process truncates the file meanwhile, reading them faults: Guard and Fault turn
// that fault into an error that wraps ErrChanged.
package weights
