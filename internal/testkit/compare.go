package testkit

import (
	"fmt"
	"math"
	"testing"
)

// Float is what Compare takes.
type Float interface{ ~float32 | ~float64 }

// Relative errors of one rounding to nearest: half the distance from 1 to the next number up.
const (
	F64  = 0x1p-53
	F32  = 0x1p-24
	F16  = 0x1p-11
	BF16 = 0x1p-8
)

// Tol returns 4·unit·√n: the error to expect at most from n roundings of relative size unit each, of
// quantities no larger than what the result is measured against. Such errors are independent and uniform
// on ±unit, so their sum has standard deviation unit·√(n/3), and 4·√n is seven of those. A systematic
// error (a lost term, a wrong exponent, a bias) grows with n and does not pass for long.
func Tol(unit float64, n int) float64 { return 4 * unit * math.Sqrt(float64(max(n, 1))) }

// Tolerance accepts |got-want| ≤ Abs + Rel·|want|.
type Tolerance struct{ Abs, Rel float64 }

// RMS is an absolute tolerance of rel times the root mean square of want's finite elements: for results
// such as dot products, whose error scales with their terms and not with what happens to be left of them.
func RMS[F Float](want []F, rel float64) Tolerance {
	ss, n := 0.0, 0
	for _, w := range want {
		if f := float64(w); !math.IsNaN(f) && !math.IsInf(f, 0) {
			ss += f * f
			n++
		}
	}
	return Tolerance{Abs: rel * math.Sqrt(ss/float64(max(n, 1)))}
}

// Compare returns nil if got is want to tol. NaNs and infinities have to stand in the same places first:
// an error measured across a NaN says nothing. Otherwise the error names the worst element, how many are
// out of tolerance and the largest error in units of its bound.
func Compare[G, W Float](got []G, want []W, tol Tolerance) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	bad, at, worst := 0, 0, 0.0
	for i := range got {
		g, w := float64(got[i]), float64(want[i])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if !finite(g) || !finite(w) {
			return fmt.Errorf("[%d] of %d is %v, want %v", i, len(got), g, w)
		}
		excess := math.Abs(g-w) / (tol.Abs + tol.Rel*math.Abs(w))
		if excess > 1 {
			bad++
		}
		if excess > worst {
			at, worst = i, excess
		}
	}
	if bad == 0 {
		return nil
	}
	g, w := float64(got[at]), float64(want[at])
	return fmt.Errorf("[%d] = %v, want %v: off by %.3g, %.3g times the bound; %d of %d elements are out of bound",
		at, g, w, math.Abs(g-w), worst, bad, len(got))
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Near fails the test at once, naming what was compared, unless Compare accepts.
func Near[G, W Float](t testing.TB, what string, got []G, want []W, tol Tolerance) {
	t.Helper()
	if err := Compare(got, want, tol); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Same fails the test at once unless got is want bit for bit, signs of zero included; any NaN equals any.
func Same[F Float](t testing.TB, what string, got, want []F) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		g, w := float64(got[i]), float64(want[i])
		if math.Float64bits(g) != math.Float64bits(w) && !(math.IsNaN(g) && math.IsNaN(w)) {
			t.Fatalf("%s: [%d] = %v, want exactly %v", what, i, g, w)
		}
	}
}
