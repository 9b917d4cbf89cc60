// Package qgemm multiplies activations by weight matrices in the number formats of weights/quant:
//
//	y[m][n] = Σ_k x[m][k]·W[n][k]      x [M, K] float32, W [N rows, K columns], y [M, N] float32
//
// Terms:
//
//   - strip: 16 consecutive rows of W. The unit of sharing work: callers hand out ranges of strips.
//   - unit: what a strip keeps together, 64 columns (256 for the K formats, 16 for F32, F16, BF16) of its
//     16 rows. Within a unit 32-bit lane r belongs to row r and holds 4 consecutive columns, so a product
//     needs no gathers and no horizontal sums. Every unit is a whole number of 64-byte lines.
//   - packed: a matrix whose bytes were rearranged by Pack into strips of units. It is as large as in the
//     file (Q4_K 2.8 %, Q5_K 2.3 %, Q6_K 1 % larger, because their scales lie in bytes of their own).
//   - tile: up to 8 rows of activations, whose blocks lie side by side so that one load of weights serves
//     all of them. The last tile may have fewer rows, its height.
//   - activation block: 64 bytes. Either 32 columns of one row as int8 with their float32 scale, their sum
//     and the corrections that undo the offsets of unsigned weight codes (for quantised weights), or 16
//     columns as float32 (for F32, F16 and BF16 weights).
//
// Three ranges of M share one kernel template: M = 1 reads every weight once at memory speed, M = 2..8
// shares each weight load among the rows of one tile, larger M loops over tiles while a strip stays in the
// first or second level cache and a group of tiles in the second.
//
// Measured on Zen 4 (3.7 GHz, one core reads 31 GB/s from memory, 114 from L2), packed, AVX-512: from L2 with
// M = 1 Q8_0 110 GB/s, Q4_0 and Q4_1 81, Q4_K 67, Q6_K 63, Q5_0 61, Q5_K 53, F16 57 (BenchmarkHot); from 1 GB
// 90 % of a pure read for Q4_1, 96..102 % for the others; in file order 85 % for Q8_0, 54..77 % for the others
// (BenchmarkMemory); 512 rows by Q8_0 357, Q4_K 305, Q6_K 279, F32 113 billion operations a second per core
// (BenchmarkPrompt). The multipliers allow 468 and 117; scaling every block of 32 columns costs a fifth.
//
// Every element of y is one chain of float32 operations over the columns in order, whatever M is and
// whether or not the matrix is packed: at one simd.Level the result for a row of activations is the same
// bits alone and in any batch.
package qgemm
