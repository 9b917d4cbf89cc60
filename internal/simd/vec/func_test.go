package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

const (
	smallest  = 0x1p-149 // the smallest subnormal
	minNormal = 0x1p-126
)

// arguments are every float32 whose bits are a multiple of a prime step: all exponents, both signs, NaNs
// of both kinds, both infinities not excluded, and the edges listed.
func arguments() []float32 {
	x := []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), nan,
		88.72283, 88.72284, -87.33654, -103.97, -104, -150, 0.625, 0.62499994, -0.625, math.MaxFloat32, -math.MaxFloat32}
	for b := uint64(0); b < 1<<32; b += 40009 {
		x = append(x, math.Float32frombits(uint32(b)))
	}
	r := rand.New(rand.NewPCG(7, 1))
	for range 100_000 { // where the functions bend
		x = append(x, float32(r.NormFloat64()*20))
	}
	return x
}

// sweep checks got against want, want's bound relative to it, with worst logged.
func sweep(t *testing.T, x, got []float32, want func(x float64) (y, bound float64)) {
	t.Helper()
	worst, at := 0.0, float32(0)
	for i, v := range x {
		y, bound := want(float64(v))
		if a := math.Abs(y); a > math.MaxFloat32 && !math.IsInf(y, 0) && !math.IsNaN(y) {
			continue // rounds to Inf or just not
		}
		near(t, "f", len(x), i, got[i], y, bound)
		if e := math.Abs(float64(got[i])-y) / bound; e > worst && math.Abs(y) >= minNormal { // a subnormal's unit is its bound
			worst, at = e, v
		}
	}
	t.Logf("worst error %.2f of the bound, at %v", worst, at)
	if worst == 0 {
		t.Errorf("no error at all: the check sees nothing")
	}
}

func TestExp(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		x := arguments()
		got := make([]float32, len(x))
		k.Exp(got, x)
		sweep(t, x, got, func(x float64) (float64, float64) {
			y := math.Exp(x)
			if y > math.MaxFloat32 {
				y = math.Inf(1)
			}
			return y, 4*eps*y + smallest/2
		})
	})
}

func TestSiluMul(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		x := arguments()
		got, up := make([]float32, len(x)), make([]float32, len(x))
		for i := range up {
			up[i] = -3
		}
		k.SiluMul(got, x, up)
		sweep(t, x, got, func(x float64) (float64, float64) {
			y := -3 * x / (1 + math.Exp(-x))
			return y, 8*eps*math.Abs(y) + 2*smallest + below(x < -87, 3e-35)
		})
	})
}

func below(yes bool, bound float64) float64 {
	if yes {
		return bound
	}
	return 0
}

func TestGeluTanhMul(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		x := arguments()
		got, up := make([]float32, len(x)), make([]float32, len(x))
		for i := range up {
			up[i] = 0.5
		}
		k.GeluTanhMul(got, x, up)
		sweep(t, x, got, func(x float64) (float64, float64) {
			u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
			y := 0.5 * x / (1 + math.Exp(-2*u))
			return y, (8+8*min(math.Abs(u), 50))*eps*math.Abs(y) + 2*smallest + below(u < -43, 3e-36)
		})
	})
}

// TestGeluForm: the form that the leaf computes is the published one (Hendrycks and Gimpel, 2016, §2).
func TestGeluForm(t *testing.T) {
	for _, g := range []float64{-4, -1, -0.1, 0, 0.3, 1, 5} {
		x, got := []float32{float32(g)}, []float32{1}
		(&Kernels{leaf: generic}).GeluTanhMul(got, x, []float32{1})
		g = float64(float32(g))
		want := 0.5 * g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)))
		near(t, "gelu", 1, 0, got[0], want, 1e-6)
	}
}

func TestSoftcap(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, limit := range []float32{1, 30, 50} {
			x := arguments()
			got := make([]float32, len(x))
			copy(got, x)
			k.Softcap(got, limit)
			c := float64(limit)
			sweep(t, x, got, func(x float64) (float64, float64) {
				y := c * math.Tanh(x/c)
				return y, 8*eps*math.Abs(y) + c*smallest // a subnormal quotient rounds, then grows by c
			})
			for i, v := range got {
				if v > limit || v < -limit {
					t.Fatalf("softcap(%v, %v) = %v", x[i], limit, v)
				}
			}
		}
	})
}

// TestFunctionTails: every length, guards intact, each element the same as in one long row.
func TestFunctionTails(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(8, 1))
		for _, n := range lengths() {
			x, up := newGuarded(n, normal(r, 3)), newGuarded(n, normal(r, 1))
			for name, f := range map[string]func(dst []float32){
				"exp":     func(dst []float32) { k.Exp(dst, x.V) },
				"silu":    func(dst []float32) { k.SiluMul(dst, x.V, up.V) },
				"gelu":    func(dst []float32) { k.GeluTanhMul(dst, x.V, up.V) },
				"softcap": func(dst []float32) { copy(dst, x.V); k.Softcap(dst, 2) },
			} {
				dst, want := newGuarded(n, func(int) float32 { return nan }), make([]float32, n)
				f(dst.V)
				f(want)
				for i := range n {
					if dst.V[i] != want[i] || want[i] != want[i] {
						t.Fatalf("%s: n=%d [%d] = %v, then %v", name, n, i, dst.V[i], want[i])
					}
				}
				dst.Check(t)
			}
		}
	})
}
