package kvdot

import (
	"fmt"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// BenchmarkFoldHot is a body's own ceiling: tiles that stay in the L2 cache. GFLOPS counts the two products.
func BenchmarkFoldHot(b *testing.B) {
	for _, level := range simd.Levels() {
		for _, typ := range allTypes {
			for _, s := range []struct{ rows, dim int }{{1, 64}, {3, 64}, {4, 128}, {6, 128}, {48, 64}, {48, 128}} {
				if level == simd.Generic && (typ != quant.F16 || s.rows != 3) {
					continue
				}
				b.Run(fmt.Sprintf("%v/%v/rows=%d/dim=%d", level, typ, s.rows, s.dim), func(b *testing.B) {
					benchHot(b, level, typ, s.rows, s.dim)
				})
			}
		}
	}
}

func benchHot(b *testing.B, level simd.Level, typ quant.Type, rows, dim int) {
	l, err := NewLayout(typ, dim)
	if err != nil {
		b.Fatal(err)
	}
	tokens := (384 << 10) / l.TileBytes * TileTokens
	c := newCache(b, level, typ, dim, tokens, 1, 1)
	k, s, it := New(level, l), new(Scratch), c.item(rows, 0.1, 1)
	bytes := len(c.off) * l.TileBytes
	b.SetBytes(int64(bytes))
	for b.Loop() {
		k.Fold(it, s)
	}
	flops := 4 * float64(rows) * float64(dim) * float64(tokens)
	b.ReportMetric(flops*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
}
