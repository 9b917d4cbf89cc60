package vec

import (
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
)

// FuzzLevels feeds the same bits to every body. The generic one is judged by the other tests; here the
// bodies must agree within the sum of two bounds, and on NaN and infinities.
func FuzzLevels(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f}, float32(1))
	f.Add([]byte{0, 0, 0xc0, 0x7f, 1, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0x7f, 0x7f}, float32(30))
	f.Fuzz(func(t *testing.T, data []byte, limit float32) {
		if !(limit >= 1e-3 && limit <= 1e6) {
			limit = 30
		}
		x := make([]float32, len(data)/4)
		for i := range x {
			x[i] = math.Float32frombits(uint32(data[4*i]) | uint32(data[4*i+1])<<8 | uint32(data[4*i+2])<<16 | uint32(data[4*i+3])<<24)
		}
		want := run(New(simd.Generic), x, limit)
		for _, l := range simd.Levels()[1:] {
			for name, got := range run(New(l), x, limit) {
				for i, v := range got {
					agree(t, l, name, i, x, v, want[name][i], limit)
				}
			}
		}
	})
}

func run(k *Kernels, x []float32, limit float32) map[string][]float32 {
	exp, cap := make([]float32, len(x)), append([]float32(nil), x...)
	k.Exp(exp, x)
	k.Softcap(cap, limit)
	half := make([]byte, 2*len(x))
	k.F32ToF16(half, x)
	wide := make([]float32, len(x))
	k.F16ToF32(wide, half)
	return map[string][]float32{"exp": exp, "softcap": cap, "half": wide, "max": {k.Max(x)}, "argmax": {float32(k.ArgMax(x))}}
}

func agree(t *testing.T, l simd.Level, name string, i int, x []float32, got, want, limit float32) {
	g, w := float64(got), float64(want)
	if g == w || got != got && want != want {
		return
	}
	if max(math.Abs(g), math.Abs(w)) >= math.MaxFloat32*(1-8*eps) && name == "exp" {
		return // one rounded to Inf, the other stayed just below
	}
	bound := map[string]float64{"exp": 8*eps*math.Abs(w) + smallest, "softcap": 16*eps*math.Abs(w) + 2*float64(limit)*smallest}[name]
	if !(math.Abs(g-w) <= bound) {
		t.Fatalf("%v %s [%d] of %v: %v, generic %v", l, name, i, x, got, want)
	}
}
