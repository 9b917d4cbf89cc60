package cpu

import "testing"

// TestScratchSizes: a worker's scratch serves caches of any shape in turn. Many short heads take fewer floats of
// queries than few long ones, but more States: each buffer must have a size of its own.
func TestScratchSizes(t *testing.T) {
	for _, shapes := range [][][2]int{{{4, 256}, {64, 16}}, {{64, 16}, {4, 256}}, {{1, 8}, {33, 64}, {64, 8}}} {
		var s foldScratch
		for _, sh := range shapes {
			rows, dim := sh[0], sh[1]
			s.size(rows, dim)
			if len(s.q) < rows*dim || len(s.state) < rows*stateLen(dim) || len(s.lo) < rows || len(s.hi) < rows {
				t.Errorf("%v: %d rows of %d find queries %d, states %d, ranges %d and %d", shapes, rows, dim, len(s.q), len(s.state), len(s.lo), len(s.hi))
			}
		}
	}
}
