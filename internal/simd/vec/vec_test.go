package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/testkit"
)

const eps = testkit.F32

var nan = float32(math.NaN())

// lengths cover every rest of every unrolled loop (4 vectors of 16) and some longer.
func lengths() []int {
	var ns []int
	for n := 0; n <= 130; n++ {
		ns = append(ns, n)
	}
	return append(ns, 255, 576, 1000)
}

// eachLevel runs f with every body this machine has.
func eachLevel(t *testing.T, f func(t *testing.T, k *Kernels)) {
	t.Helper()
	for _, l := range simd.Levels() {
		t.Run(l.String(), func(t *testing.T) { f(t, New(l)) })
	}
}

// newGuarded returns n elements between guards; around them is NaN, so what reads too far poisons its result.
func newGuarded(n int, fill func(i int) float32) *testkit.Canary[float32] {
	c := testkit.NewCanary[float32](n)
	for i := range c.V {
		c.V[i] = fill(i)
	}
	return c
}

func clone(c *testkit.Canary[float32]) *testkit.Canary[float32] { return testkit.CanaryOf(c.V) }

func normal(r *rand.Rand, std float64) func(int) float32 {
	return func(int) float32 { return float32(r.NormFloat64() * std) }
}

// near fails unless |got-want| ≤ bound, or both are NaN, or both the same infinity.
func near(t *testing.T, what string, n, i int, got float32, want, bound float64) {
	t.Helper()
	g := float64(got)
	if math.IsNaN(g) && math.IsNaN(want) || g == want {
		return
	}
	if !(math.Abs(g-want) <= bound) {
		t.Fatalf("%s: n=%d [%d] = %v, want %v: off by %.3g, bound %.3g", what, n, i, got, want, math.Abs(g-want), bound)
	}
}

func TestAddScale(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, n := range lengths() {
			a, b := newGuarded(n, normal(r, 1)), newGuarded(n, normal(r, 1))
			sum, axpy, scaled := clone(a), clone(a), clone(a)
			k.Add(sum.V, b.V)
			k.AddScaled(axpy.V, b.V, 0.3)
			k.Scale(scaled.V, 0.3)
			for i := range n {
				x, y, s := float64(a.V[i]), float64(b.V[i]), float64(float32(0.3))
				near(t, "add", n, i, sum.V[i], x+y, eps*math.Abs(x+y))
				near(t, "addscaled", n, i, axpy.V[i], x+s*y, eps*(math.Abs(s*y)+math.Abs(x+s*y))*(1+eps))
				near(t, "scale", n, i, scaled.V[i], x*s, eps*math.Abs(x*s))
			}
			sum.Check(t)
			axpy.Check(t)
			scaled.Check(t)
		}
	})
}

func TestDot(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(2, 1))
		for _, n := range append(lengths(), 9216) {
			a, b := newGuarded(n, normal(r, 1)), newGuarded(n, normal(r, 1))
			want, sum := 0.0, 0.0
			for i := range n {
				p := float64(a.V[i]) * float64(b.V[i])
				want += p
				sum += math.Abs(p)
			}
			near(t, "dot", n, 0, k.Dot(a.V, b.V), want, float64(n/8+8)*eps*sum)
		}
	})
}

func TestRMSNorm(t *testing.T) {
	const small = 1e-5
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(3, 1))
		for _, n := range append(lengths(), 9216) {
			for _, std := range []float64{1e-6, 1, 1e4} { // eps decides, no matter, large activations
				x, w := newGuarded(n, normal(r, std)), newGuarded(n, normal(r, 1))
				ss := 0.0
				for _, v := range x.V {
					ss += float64(v) * float64(v)
				}
				dst, inPlace := newGuarded(n, func(int) float32 { return nan }), clone(x)
				k.RMSNorm(dst.V, x.V, w.V, small)
				k.RMSNorm(inPlace.V, inPlace.V, w.V, small)
				for i := range n {
					want := float64(x.V[i]) * float64(w.V[i]) / math.Sqrt(ss/float64(n)+float64(float32(small)))
					near(t, "rmsnorm", n, i, dst.V[i], want, float64(n/16+8)*eps*math.Abs(want))
					near(t, "rmsnorm in place", n, i, inPlace.V[i], float64(dst.V[i]), 0)
				}
				dst.Check(t)
			}
		}
	})
}

func TestMax(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(4, 1))
		for _, n := range lengths() {
			x := newGuarded(n, func(int) float32 {
				if r.IntN(3) == 0 {
					return nan
				}
				return -1 - float32(r.IntN(8)) // ties, and all below the zeros that a masked load gives
			})
			m, at := math.Inf(-1), -1
			for i, v := range x.V {
				if float64(v) > m {
					m, at = float64(v), i
				}
			}
			near(t, "max", n, 0, k.Max(x.V), m, 0)
			if got := k.ArgMax(x.V); got != at {
				t.Fatalf("argmax of %v = %d, want %d", x.V, got, at)
			}
		}
	})
}

func TestArgMaxRules(t *testing.T) {
	inf := float32(math.Inf(1))
	eachLevel(t, func(t *testing.T, k *Kernels) {
		long := make([]float32, 1000)
		long[17], long[990] = 1, 1
		for _, c := range []struct {
			x    []float32
			want int
		}{
			{nil, -1},
			{[]float32{nan}, -1},
			{[]float32{nan, nan, -inf}, 2},
			{[]float32{-inf, -inf}, 0},
			{[]float32{nan, 1, inf, nan, inf}, 2},
			{[]float32{float32(math.Copysign(0, -1)), 0}, 0},
			{[]float32{-3, -2, -2}, 1},
			{long, 17},
			{long[18:], 972},
		} {
			if got := k.ArgMax(c.x); got != c.want {
				t.Errorf("argmax of %d elements starting %v = %d, want %d", len(c.x), c.x[:min(5, len(c.x))], got, c.want)
			}
		}
	})
}

// TestPlaceIndependent: an element gives the same bits wherever it stands, which batch invariance needs.
func TestPlaceIndependent(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(5, 1))
		const n = 101
		x, up := newGuarded(n, normal(r, 4)), newGuarded(n, normal(r, 1))
		for name, f := range map[string]func(dst, x, up []float32){
			"exp":     func(dst, x, _ []float32) { k.Exp(dst, x) },
			"silu":    func(dst, x, up []float32) { k.SiluMul(dst, x, up) },
			"gelu":    func(dst, x, up []float32) { k.GeluTanhMul(dst, x, up) },
			"softcap": func(dst, x, _ []float32) { copy(dst, x); k.Softcap(dst, 3) },
		} {
			whole, one := make([]float32, n), make([]float32, 1)
			f(whole, x.V, up.V)
			for i := range n {
				f(one, x.V[i:i+1:i+1], up.V[i:i+1:i+1])
				if one[0] != whole[i] {
					t.Fatalf("%s of element %d: %v alone, %v in a row", name, i, one[0], whole[i])
				}
			}
		}
	})
}

func TestRope(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(6, 1))
		for _, half := range lengths() {
			x := newGuarded(2*half, normal(r, 1))
			angle := func(int) float64 { return r.Float64() * 7 }
			cos, sin := newGuarded(half, func(int) float32 { return 0 }), newGuarded(half, func(int) float32 { return 0 })
			for i := range half {
				a := angle(i)
				cos.V[i], sin.V[i] = float32(math.Cos(a)), float32(math.Sin(a))
			}
			inter, split := clone(x), clone(x)
			k.RopeInterleaved(inter.V, cos.V, sin.V)
			k.RopeHalf(split.V, cos.V, sin.V)
			for i := range half {
				checkPair(t, half, inter.V, x.V, 2*i, 2*i+1, cos.V[i], sin.V[i])
				checkPair(t, half, split.V, x.V, i, i+half, cos.V[i], sin.V[i])
			}
			inter.Check(t)
			split.Check(t)
		}
	})
}

func checkPair(t *testing.T, n int, got, x []float32, i, j int, cos, sin float32) {
	t.Helper()
	a, b, c, s := float64(x[i]), float64(x[j]), float64(cos), float64(sin)
	bound := 2 * eps * (math.Abs(a) + math.Abs(b))
	near(t, "rope", n, i, got[i], a*c-b*s, bound)
	near(t, "rope", n, j, got[j], b*c+a*s, bound)
}

func TestPanics(t *testing.T) {
	k := New(simd.Generic)
	four, three := make([]float32, 4), make([]float32, 3)
	for name, f := range map[string]func(){
		"short source": func() { k.Add(four, three) },
		"odd rope":     func() { k.RopeInterleaved(three, four, four) },
		"short bytes":  func() { k.F16ToF32(four, make([]byte, 7)) },
		"level":        func() { New(simd.Detect() + 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocs(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		x, y := make([]float32, 100), make([]float32, 100)
		if n := testing.AllocsPerRun(10, func() { k.RMSNorm(x, y, y, 1); k.SiluMul(x, y, x); k.ArgMax(x) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
