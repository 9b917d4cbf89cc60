// Package quant holds the number formats that weights and KV caches are stored in: what a row of a
// tensor looks like as bytes, and how it turns into float32 and back.
//
// A row is a sequence of blocks. A block holds BlockSize consecutive weights of one row in BlockBytes
// bytes; a row therefore has a whole number of blocks, and rows follow each other without padding.
// F32, F16 and BF16 are blocks of one weight.
//
// The block formats come from the ggml project's file format; names and layouts are its own (see the
// GGUF specification, github.com/ggml-org/ggml, docs/gguf.md, and the struct of each format in
// ggml-common.h). In the terms used here:
//
//   - code: the small integer stored for one weight,
//   - scale (d): the factor a code is multiplied by, stored as a half,
//   - min (m): the value a code of zero stands for, in the formats that have one,
//   - super-block: the 256 weights of a K format, cut into sub-blocks of 16 or 32 that each have a
//     scale of a few bits, relative to the super-block's.
//
// All multi-byte values are little endian. Dequantize computes in float32, and its results are the same
// bits as the published reference's on every machine, whether or not a compiler fuses multiplication
// and addition: a half has 11 significant bits, a code at most 7, and where a sub-block's scale of up to
// 7 comes between them a code at most 5. So every product fits float32's 24 bits exactly and only the
// final addition rounds.
package quant
