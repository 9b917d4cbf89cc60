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
// Every element of y is one chain of float32 operations over the columns in order, whatever M is and
// whether or not the matrix is packed: at one simd.Level the result for a row of activations is the same
// bits alone and in any batch.
package qgemm
