// Package simd names the instruction sets that the compute leaves below it are written for.
//
// Each leaf package (vec, kvdot, qgemm) holds one generic body in plain Go and bodies in generated
// assembly, and returns a table of functions for a Level. Callers pick the Level once, when a backend is
// made, so tests run every body the machine has and no global switch exists.
package simd
