package vec

import (
	"fmt"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
)

// Sizes: a hidden state, a feed-forward row, a vocabulary.
func BenchmarkVec(b *testing.B) {
	for _, n := range []int{576, 4096, 151936} {
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		half := make([]byte, 2*n)
		for i := range x {
			x[i], y[i] = float32(i%17)-8, float32(i%13)-6
		}
		for _, c := range []struct {
			name  string
			bytes int // read and written, an element
			f     func(k *Kernels)
		}{
			{"add", 12, func(k *Kernels) { k.Add(z, x) }},
			{"rmsnorm", 16, func(k *Kernels) { k.RMSNorm(z, x, y, 1e-5) }},
			{"dot", 8, func(k *Kernels) { k.Dot(x, y) }},
			{"argmax", 4, func(k *Kernels) { k.ArgMax(x) }},
			{"exp", 8, func(k *Kernels) { k.Exp(z, x) }},
			{"silu", 12, func(k *Kernels) { k.SiluMul(z, x, y) }},
			{"gelu", 12, func(k *Kernels) { k.GeluTanhMul(z, x, y) }},
			{"softcap", 8, func(k *Kernels) { copy(z, x); k.Softcap(z, 30) }},
			{"rope", 12, func(k *Kernels) { k.RopeInterleaved(z, x, y) }},
			{"f16", 6, func(k *Kernels) { k.F16ToF32(z, half) }},
			{"tof16", 6, func(k *Kernels) { k.F32ToF16(half, x) }},
		} {
			for _, l := range simd.Levels() {
				b.Run(fmt.Sprintf("op=%s/n=%d/isa=%v", c.name, n, l), func(b *testing.B) {
					k := New(l)
					b.SetBytes(int64(c.bytes * n))
					for b.Loop() {
						c.f(k)
					}
				})
			}
		}
	}
}
