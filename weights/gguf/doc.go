// Package gguf reads and writes GGUF model files: metadata, then the list of tensors, then their bytes.
// The format is specified in github.com/ggml-org/ggml, docs/gguf.md. Versions 2 and 3, little endian,
// are read; version 3 is written.
//
//   - key: the name of a metadata value, such as "general.architecture". A value is a scalar, a string or
//     an array of one element type.
//   - alignment: where tensor bytes may start, a power of two, 32 unless "general.alignment" says so.
//   - shard: one of several files that hold a model together, "name-00001-of-00003.gguf". The first has
//     the metadata; Open of the first opens all.
//
// Open maps the file and checks all of its structure, but decodes arrays and touches tensor bytes only
// when asked, so opening costs the walk over the metadata. A tensor whose number format is not
// supported is an error only when that tensor is asked for.
//
// GGUF stores dimensions with the contiguous one first. Everything here, in both directions, has them in
// row-major order, last one contiguous.
package gguf
