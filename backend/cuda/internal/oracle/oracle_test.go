package oracle

import (
	"math"
	"testing"
)

// TestUnit checks that the numbers are about normal.
func TestUnit(t *testing.T) {
	const n = 1 << 16
	var sum, squares float64
	for i := range uint64(n) {
		x := float64(Unit(7, i))
		sum += x
		squares += x * x
	}
	if mean, dev := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.02 || math.Abs(dev-1) > 0.02 {
		t.Errorf("mean %v, deviation %v", mean, dev)
	}
}
