package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// linearBound bounds |got-want| of x·Wᵀ: float32 sums of K products of any order, plus, for quantised weights, the
// rounding of activations, which is at most a fraction of the largest in each block of 32.
func linearBound(o Options, typ quant.Type, x, w []float32, k, n int) func(int) float64 {
	return func(i int) float64 {
		xr, wr := x[i/n*k:(i/n+1)*k], w[i%n*k:(i%n+1)*k]
		sum, rounding := 0.0, 0.0
		for b := 0; b < k; b += 32 {
			top, ws := 0.0, 0.0
			for j := b; j < min(b+32, k); j++ {
				top = max(top, math.Abs(float64(xr[j])))
				ws += math.Abs(float64(wr[j]))
				sum += math.Abs(float64(xr[j]) * float64(wr[j]))
			}
			rounding += top * ws
		}
		bound := float64(k+16)*eps*sum + 1e-30
		if !isFloat(typ) {
			bound += o.Activations*rounding*(1+1e-4) + 64*eps*rounding
		}
		return bound
	}
}

// stored returns x as the format keeps it.
func stored(t *testing.T, typ quant.Type, cols int, x []float32) []float32 {
	t.Helper()
	data := make([]byte, len(x)/cols*typ.RowBytes(cols))
	y := make([]float32, len(x))
	if err := quant.Quantize(typ, data, x); err != nil {
		t.Fatal(err)
	}
	if err := quant.Dequantize(typ, y, data); err != nil {
		t.Fatal(err)
	}
	return y
}

func testLinear(t *testing.T, o Options) {
	for _, typ := range allTypes {
		for _, m := range []int{1, 2, 3, 5, 8, 9, 16, 33} {
			for _, s := range []struct{ n, k int }{{1, 256}, {17, 256}, {48, 512}, {100, 768}, {33, 36}} {
				if s.k%typ.BlockSize() != 0 || testing.Short() && (m+s.n)%3 != 0 {
					continue
				}
				p := newPair(t, o)
				x, w := normal(uint64(m), m*s.k), normal(uint64(s.n), s.n*s.k)
				got, want := p.both(func(sd side) []float32 {
					sd.must(sd.be.Begin(rowsOf(m)))
					in, y := sd.fill(m, s.k, x), sd.alloc(m, s.n)
					sd.be.Linear(in, []ops.Projection{{W: sd.upload(typ, s.n, s.k, w), Y: y}})
					return sd.read(y)
				})
				check(t, fmt.Sprintf("%v m=%d n=%d k=%d", typ, m, s.n, s.k), got, want, linearBound(o, typ, x, stored(t, typ, s.k, w), s.k, s.n))
			}
		}
	}
}

// testLinearParts multiplies one x by matrices of different formats, with a bias and into a residual.
func testLinearParts(t *testing.T, o Options) {
	for _, m := range []int{1, 4, 40} {
		const k = 256
		types := []quant.Type{quant.Q4_1, quant.F16, quant.Q6_K}
		sizes := []int{64, 20, 36}
		x := normal(9, m*k)
		for part := range types {
			p := newPair(t, o)
			n := sizes[part]
			bias, rest, w := normal(10, n), normal(11, m*n), normal(uint64(12+part), n*k)
			got, want := p.both(func(s side) []float32 {
				s.must(s.be.Begin(rowsOf(m)))
				in := s.fill(m, k, x)
				var ps []ops.Projection
				for i, typ := range types {
					pr := ops.Projection{W: s.upload(typ, sizes[i], k, normal(uint64(12+i), sizes[i]*k)), Y: s.alloc(m, sizes[i])}
					if i == part {
						pr.Bias, pr.Y, pr.Accumulate = s.upload(quant.F32, 1, n, bias), s.fill(m, n, rest), true
					}
					ps = append(ps, pr)
				}
				s.be.Linear(in, ps)
				return s.read(ps[part].Y)
			})
			bound := linearBound(o, types[part], x, stored(t, types[part], k, w), k, n)
			check(t, fmt.Sprintf("m=%d part %d", m, part), got, want, func(i int) float64 { return bound(i) + 8*eps })
		}
	}
}
