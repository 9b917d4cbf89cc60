package qgemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// BenchmarkHot is a kernel's own ceiling: 512 KB of weights that stay in the second level cache. From memory
// a kernel reaches 90 % of a pure read if this is some three times one core's share of the bandwidth.
//
//	go test -run XXX -bench Hot ./internal/simd/qgemm
func BenchmarkHot(b *testing.B) {
	for _, level := range simd.Levels() {
		for _, typ := range quant.Types() {
			for _, packed := range []bool{true, false} {
				for _, m := range []int{1, 2, 4, 8} {
					if level > simd.Generic {
						benchMul(b, level, typ, packed, hotRows(typ, 1536), 1536, m)
					}
				}
			}
		}
	}
}

func hotRows(typ quant.Type, cols int) int { return 512 << 10 / typ.RowBytes(cols) &^ 15 }

// BenchmarkPrompt is a matrix product of a prompt: GOPS counts a multiplication and an addition as two.
func BenchmarkPrompt(b *testing.B) {
	for _, level := range simd.Levels() {
		for _, typ := range quant.Types() {
			for _, cols := range []int{576, 1536, 4096} {
				if level > simd.Generic && cols%typ.BlockSize() == 0 {
					benchMul(b, level, typ, true, 576, cols, 512)
				}
			}
		}
	}
}

func benchMul(b *testing.B, level simd.Level, typ quant.Type, packed bool, rows, cols, m int) {
	b.Run(fmt.Sprintf("level=%v/type=%v/packed=%v/n=%d/k=%d/m=%d", level, typ, packed, rows, cols, m), func(b *testing.B) {
		k := New(level)
		rng := rand.New(rand.NewPCG(1, 2))
		src := randomWeights(rng, typ, rows, cols)
		w := &Matrix{Type: typ, Rows: rows, Cols: cols, Data: src}
		if packed {
			w = pack(k, typ, src, rows, cols)
		}
		var a Acts
		a.Reset(m, cols)
		k.SetActs(&a, typ, randomActs(rng, m*cols), cols, 0, m)
		y := make([]float32, m*rows)
		b.SetBytes(int64(rows * typ.RowBytes(cols)))
		for b.Loop() {
			k.Mul(w, &a, 0, w.Strips(), y, rows)
		}
		b.ReportMetric(2*float64(rows)*float64(cols)*float64(m)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GOPS")
	})
}

func BenchmarkSetActs(b *testing.B) {
	for _, level := range simd.Levels() {
		for _, cols := range []int{576, 1536, 4096} {
			b.Run(fmt.Sprintf("level=%v/k=%d", level, cols), func(b *testing.B) {
				k := New(level)
				x := randomActs(rand.New(rand.NewPCG(1, 2)), cols)
				var a Acts
				a.Reset(1, cols)
				b.SetBytes(int64(4 * cols))
				for b.Loop() {
					k.SetActs(&a, quant.Q8_0, x, cols, 0, 1)
				}
			})
		}
	}
}

func BenchmarkPack(b *testing.B) {
	for _, level := range simd.Levels() {
		for _, typ := range quant.Types() {
			b.Run(fmt.Sprintf("level=%v/type=%v", level, typ), func(b *testing.B) {
				k := New(level)
				const cols = 1536
				rows := hotRows(typ, cols)
				src := randomWeights(rand.New(rand.NewPCG(1, 2)), typ, rows, cols)
				dst := make([]byte, PackedBytes(typ, rows, cols))
				b.SetBytes(int64(len(src)))
				for b.Loop() {
					k.Pack(dst, src, typ, rows, cols, 0, Strips(rows))
				}
			})
		}
	}
}
