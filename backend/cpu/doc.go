// Package cpu is the backend for processors: leaves of package internal/simd, a few workers that spin through a step
// (internal/pool), quantised weights that stay quantised, and Flash-Decoding over a paged cache.
//
// What a decode step costs is bytes: every weight once and every key and value once. So weights are repacked into
// strips that one core can read at memory speed (internal/simd/qgemm), all query heads of a group share one pass over
// their keys and values (internal/simd/kvdot), and the attention of the whole batch is one list of work items, cut by
// package plan, that workers claim one by one; whoever finishes the last item of a head merges its States.
//
// Activations are float32. For quantised weights a row of activations is rounded to 8-bit integers in blocks of 32,
// as other engines do; float weights are multiplied in float32.
package cpu
