package kvdot

import (
	"fmt"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
)

// FuzzFold checks all levels on any shape, ranges and softcap against the float64 reference.
func FuzzFold(f *testing.F) {
	f.Add(uint8(1), uint8(8), uint8(3), uint16(100), uint16(0), uint16(100), uint8(3), uint8(0), uint64(1))
	f.Add(uint8(3), uint8(4), uint8(7), uint16(65), uint16(64), uint16(65), uint8(0), uint8(30), uint64(2))
	f.Add(uint8(0), uint8(1), uint8(16), uint16(17), uint16(3), uint16(2), uint8(250), uint8(0), uint64(3))
	f.Add(uint8(2), uint8(9), uint8(5), uint16(200), uint16(60), uint16(70), uint8(40), uint8(1), uint64(4))
	f.Fuzz(func(t *testing.T, typ, eighths, rows uint8, tokens, lo, hi uint16, scale, softcap uint8, seed uint64) {
		ty := allTypes[int(typ)%len(allTypes)]
		dim := 8 * (1 + int(eighths)%20)
		if ty == allTypes[3] {
			dim = (dim + 31) &^ 31
		}
		n := 1 + int(tokens)%300
		c := newCache(t, simd.Generic, ty, dim, n, 1, seed)
		for _, level := range simd.Levels() {
			it := c.item(1+int(rows)%20, float64(scale)/64, seed)
			it.Softcap = float32(softcap) / 4
			for r := range it.Rows {
				it.Lo[r], it.Hi[r] = int32((int(lo)+r*int(scale))%n), int32((int(hi)+r)%(n+1))
			}
			New(level, c.l).Fold(it, new(Scratch))
			c.check(t, it, fmt.Sprintf("%v %v dim %d, %d tokens", level, ty, dim, n))
		}
	})
}
