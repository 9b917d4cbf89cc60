// Package mem reserves large memory outside the Go heap: address space that costs nothing until it is touched, backed
// by huge pages where the system offers them, and given back piece by piece.
//
// It is outside the heap because a collector that may let the heap double must not do so with a KV cache of
// gigabytes, and because shuffled reads of 4 KiB pages cost up to twice those of 2 MiB pages.
package mem
