// Package ref is the backend to believe: float64 everywhere, one loop per formula, no cleverness. It is the oracle
// of the other backends' tests and of whole models; it is hundreds of times slower than backend/cpu.
//
// Only what is stored is rounded: weights are what their file format says, and keys and values what the cache's type
// keeps of them.
package ref
