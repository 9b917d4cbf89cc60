package kvdot

import (
	"fmt"
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// sameRow fails unless row ra of a and row rb of b are the same bits.
func sameRow(t *testing.T, a *Item, ra int, b *Item, rb, dim int, name string) {
	t.Helper()
	same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	ok := same(a.M[ra], b.M[rb]) && same(a.L[ra], b.L[rb])
	for i := range dim {
		ok = ok && same(a.O[ra*dim+i], b.O[rb*dim+i])
	}
	if !ok {
		t.Fatalf("%s: row %d: M %v L %v O[0] %v, alone or again %v %v %v", name, ra, a.M[ra], a.L[ra], a.O[ra*dim], b.M[rb], b.L[rb], b.O[rb*dim])
	}
}

// TestRowsAreIndependent folds rows together, again, and one by one, with other neighbours and ranges:
// always the same bits.
func TestRowsAreIndependent(t *testing.T) {
	const tokens, rows = 210, 17
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		for _, dim := range []int{64, 96, 128} {
			c := newCache(t, level, typ, dim, tokens, 1, 21)
			k, s := New(level, c.l), new(Scratch)
			ranged := func() *Item {
				it := c.item(rows, 0.5, 22)
				for r := range rows {
					it.Lo[r], it.Hi[r] = int32(r%3*40), int32(tokens-(r*r)%130)
				}
				return it
			}
			all, again := ranged(), ranged()
			k.Fold(all, s)
			k.Fold(again, s)
			for n := 1; n <= maxGroup+1; n++ {
				for r := 0; r+n <= rows; r += n {
					some := ranged()
					some.Rows, some.Q, some.Lo, some.Hi = n, some.Q[r*dim:], some.Lo[r:], some.Hi[r:]
					k.Fold(some, s)
					for i := range n {
						sameRow(t, all, r+i, some, i, dim, fmt.Sprintf("dim %d, %d rows", dim, n))
					}
				}
			}
			for r := range rows {
				sameRow(t, all, r, again, r, dim, "again")
			}
		}
	})
}

// TestNoAllocations: nothing of a step allocates once the scratch has grown.
func TestNoAllocations(t *testing.T) {
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		c := newCache(t, level, typ, 64, 100, 1, 41)
		k, s, it := New(level, c.l), new(Scratch), c.item(7, 0.5, 42)
		key := make([]float32, 64)
		k.Fold(it, s)
		n := testing.AllocsPerRun(10, func() {
			k.Fold(it, s)
			k.Store(c.base, 3, key, key, s)
			k.Read(c.base, c.off)
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
