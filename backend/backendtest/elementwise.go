package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

var allTypes = []quant.Type{
	quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q4_K, quant.Q5_K, quant.Q6_K,
}

func isFloat(t quant.Type) bool { return t.BlockSize() == 1 }

func testEmbed(t *testing.T, o Options) {
	for _, typ := range allTypes {
		p := newPair(t, o)
		const rows, cols = 5, 256
		x := normal(1, rows*cols)
		got, want := p.both(func(s side) []float32 {
			b := rowsOf(3)
			b.Tokens = []int32{4, 0, 4}
			s.must(s.be.Begin(b))
			dst := s.alloc(3, cols)
			s.be.Embed(dst, s.upload(typ, rows, cols, x), 1.5)
			return s.read(dst)
		})
		check(t, typ.String(), got, want, relative(want, 2))
	}
}

func testRMSNorm(t *testing.T, o Options) {
	for _, c := range []struct{ rows, cols, group int }{{1, 576, 576}, {3, 60, 60}, {2, 96, 32}, {70, 640, 640}, {9, 128, 16}, {1, 1, 1}} {
		p := newPair(t, o)
		x, w := normal(2, c.rows*c.cols), normal(3, c.group)
		got, want := p.both(func(s side) []float32 {
			s.must(s.be.Begin(rowsOf(c.rows)))
			in, dst := s.fill(c.rows, c.cols, x), s.alloc(c.rows, c.cols)
			s.be.RMSNorm(dst, in, s.upload(quant.F32, 1, c.group, w), 1e-5)
			return s.read(dst)
		})
		// The sum of squares is of one sign, so its relative error is that of the additions, halved by the root.
		check(t, fmt.Sprintf("%+v", c), got, want, relative(want, float64(c.group)/2+8))
	}
}

func testGatedMul(t *testing.T, o Options) {
	for _, act := range []ops.Activation{ops.SiLU, ops.GELUTanh} {
		for _, c := range []struct{ rows, cols int }{{1, 1}, {1, 1536}, {3, 33}, {40, 768}} {
			p := newPair(t, o)
			x, y := normal(4, c.rows*c.cols), normal(5, c.rows*c.cols)
			for i := range x {
				x[i] *= 4
			}
			got, want := p.both(func(s side) []float32 {
				s.must(s.be.Begin(rowsOf(c.rows)))
				g, u := s.fill(c.rows, c.cols, x), s.fill(c.rows, c.cols, y)
				s.be.GatedMul(g, g, u, act)
				return s.read(g)
			})
			// The exponent's rounding is amplified by its size: at a gate of 16, gelu's is some 300.
			check(t, fmt.Sprintf("%v %+v", act, c), got, want, func(i int) float64 {
				g := math.Abs(float64(x[i]))
				return (16+8*(g+g*g*g*0.05))*eps*math.Abs(float64(want[i])) + 1e-30
			})
		}
	}
}

func testAddGather(t *testing.T, o Options) {
	p := newPair(t, o)
	const rows, cols = 6, 40
	x, y := normal(6, rows*cols), normal(7, rows*cols)
	pick := []int32{5, 0, 5, 2}
	got, want := p.both(func(s side) []float32 {
		s.must(s.be.Begin(rowsOf(rows)))
		a, b := s.fill(rows, cols, x), s.fill(rows, cols, y)
		s.be.Add(a, b)
		dst := s.alloc(rows, cols)
		s.be.Gather(dst, a, pick)
		return s.read(dst)
	})
	if len(want) != len(pick)*cols {
		t.Fatalf("gathered %d values", len(want))
	}
	check(t, "sum of gathered rows", got, want, relative(want, 1))
}

func testSoftcap(t *testing.T, o Options) {
	p := newPair(t, o)
	const rows, cols = 2, 64
	x := normal(8, rows*cols)
	id := make([]float32, cols*cols)
	for i := range cols {
		id[i*cols+i] = 100
	}
	const limit = 30
	got, want := p.both(func(s side) []float32 {
		s.must(s.be.Begin(rowsOf(rows)))
		in := s.fill(rows, cols, x)
		out := make([]float32, rows*cols)
		s.be.Logits(out, in, s.upload(quant.F32, cols, cols, id), limit)
		s.must(s.be.End())
		return out
	})
	check(t, "capped logits", got, want, func(i int) float64 {
		return 16*eps*math.Abs(float64(want[i])) + 4*eps*100*math.Abs(float64(x[i]))
	})
	for i, v := range got {
		if math.Abs(float64(v)) > limit {
			t.Errorf("logit %d of %g exceeds the cap", i, v)
		}
	}
}
