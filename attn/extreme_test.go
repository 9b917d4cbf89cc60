package attn

import (
	"fmt"
	"math"
	"testing"
)

// ladder returns a call of one head whose logits are exactly the given ones (q and k of one element,
// Scale 1) and whose values are exact too, so that errors come from the softmax alone.
func ladder(logits []float32) *Call {
	k := append([]float32(nil), logits...)
	v := make([]float32, 2*len(logits))
	for j := range logits {
		v[2*j], v[2*j+1] = 1, float32(j%5)-2
	}
	return &Call{
		Shape: Shape{QHeads: 1, KVHeads: 1, HeadDim: 1, ValueDim: 2}, Options: Options{Scale: 1},
		Q: []float32{1}, QLen: 1, KVLen: len(logits),
		KV: Tensors{K: View{k, 1, 1, 0}, V: View{v, 2, 2, 0}},
	}
}

func repeat(n int, f func(j int) float64) []float32 {
	s := make([]float32, n)
	for j := range s {
		s[j] = float32(f(j))
	}
	return s
}

var extremes = map[string][]float32{
	"all equal":          repeat(64, func(int) float64 { return 3 }),
	"all -6e4":           repeat(64, func(int) float64 { return -6e4 }),
	"-6e4 beside 0":      repeat(64, func(j int) float64 { return -6e4 * float64(j%2) }),
	"all 6e4":            repeat(64, func(int) float64 { return 6e4 }),
	"±500":               repeat(65, func(j int) float64 { return 500 * math.Cos(float64(j)) }),
	"OPT's range":        repeat(65, func(j int) float64 { return -496.8 + 860.3*float64(j)/64 }),
	"one outlier":        repeat(64, func(j int) float64 { return map[bool]float64{true: 300}[j == 40] }),
	"one far below":      repeat(64, func(j int) float64 { return map[bool]float64{true: -300}[j == 40] }),
	"ascending":          repeat(200, func(j int) float64 { return float64(j) }),
	"descending":         repeat(200, func(j int) float64 { return float64(-j) }),
	"±3e38":              repeat(4, func(j int) float64 { return 3e38 * float64(1-2*(j%2)) }),
	"tiny differences":   repeat(64, func(j int) float64 { return 1e-30 * float64(j) }),
	"outlier comes last": repeat(33, func(j int) float64 { return map[bool]float64{true: 90}[j == 32] }),
}

// φ anywhere: the result never depends on it, only how many rows are redone does.
func TestPhiAnywhere(t *testing.T) {
	for name, logits := range extremes {
		c := ladder(logits)
		n := len(logits)
		for _, cuts := range [][]int{nil, {1}, {n / 2}, {n / 3, n / 3, n - 1}} {
			for _, phi := range []float32{0, 3, -3, 50, -50, 500, -500, 6e4, -6e4, 3e38, -3e38} {
				for _, g := range []Guard{DefaultGuard(), {Low: -16.8, High: 6.5, MinL: 1e-6}, {Low: -1, High: 1, MinL: 1}} {
					id := fmt.Sprintf("%s/cuts=%v/φ=%g/guard=%v", name, cuts, phi, g)
					r, redone, err := Async(c, cuts, []float32{phi}, g)
					if e := excess(t, c, must(t)(r, err), len(cuts)+1, 40); !(e <= 1) {
						t.Errorf("%s: Async is %.3g × the bound off (redone %d)", id, e, redone)
					}
					if want := outside(logits, phi, g); (redone == 1) != want {
						t.Errorf("%s: redone %d, a logit is outside the guard: %v", id, redone, want)
					}
					r, _, err = Lazy(c, cuts, []float32{phi}, g)
					if e := excess(t, c, must(t)(r, err), len(cuts)+1, 40); !(e <= 1) {
						t.Errorf("%s: Lazy is %.3g × the bound off", id, e)
					}
				}
			}
			r, redone, err := Lazy(c, cuts, nil, DefaultGuard())
			if e := excess(t, c, must(t)(r, err), len(cuts)+1, 40); !(e <= 1) || redone != 0 {
				t.Errorf("%s: lagging maximum is %.3g × the bound off, redone %d", name, e, redone)
			}
			if e := excess(t, c, must(t)(Split(c, cuts, Balanced)), len(cuts)+1, 0); !(e <= 1) {
				t.Errorf("%s: Split is %.3g × the bound off", name, e)
			}
		}
		if e := excess(t, c, must(t)(NoSplit(c)), 1, 0); !(e <= 1) {
			t.Errorf("%s: NoSplit is %.3g × the bound off", name, e)
		}
	}
}

func outside(logits []float32, phi float32, g Guard) bool {
	for _, s := range logits {
		if x := s - phi; x <= g.Low || x >= g.High {
			return true
		}
	}
	return false
}

// Without the guard φ would be wrong: the fallback is what makes the method exact, not an option.
func TestGuardIsNeeded(t *testing.T) {
	c := ladder(extremes["±500"])
	for _, phi := range []float32{0, 700} { // overflow, and a denominator of 0
		st := phiState(c, phi)
		for s, v := range c.tokens(0, 0, 0, c.KVLen) {
			st.accumulate(s, v)
		}
		var r Result
		r.Out = make([]float32, 2)
		r.LSE = []float32{Finish(st, r.Out)}
		if e := excess(t, c, r, 1, 40); e <= 1 {
			t.Errorf("φ %v without guard is within the bound: this test shows nothing", phi)
		}
	}
	// A denominator that is not 0, but so small that most of it underflowed: MinL catches it.
	c = ladder(repeat(1000, func(j int) float64 { return -100 - float64(j%8) }))
	_, redone, err := Lazy(c, nil, []float32{0}, DefaultGuard())
	if err != nil || redone != 1 {
		t.Errorf("logits 100 below φ: redone %d, err %v", redone, err)
	}
	_, redone, err = Lazy(c, nil, []float32{-130}, DefaultGuard())
	if err != nil || redone != 0 {
		t.Errorf("logits 30 above φ: redone %d, err %v", redone, err)
	}
}

// Values of 1e30 neither overflow nor lose a token beside a maximum of any size.
func TestHugeValues(t *testing.T) {
	c := ladder(repeat(100, func(j int) float64 { return float64(j%7) * 4 }))
	v := c.KV.(Tensors).V.Data
	for i := range v {
		v[i] *= 1e30
	}
	for _, cuts := range [][]int{nil, {10, 50}} {
		if e := excess(t, c, must(t)(Split(c, cuts, nil)), len(cuts)+1, 0); !(e <= 1) {
			t.Errorf("cuts %v: %.3g × the bound", cuts, e)
		}
	}
}

// A softcap saturates: logits of ±3e38 become ±cap, not NaN.
func TestSoftcapSaturates(t *testing.T) {
	c := ladder(extremes["±3e38"])
	c.Softcap = 50
	r := must(t)(Split(c, []int{2}, nil))
	if want := float32(50 + math.Ln2); r.LSE[0] != want || r.Out[0] != 1 {
		t.Errorf("out %v lse %v, want 1 and %v", r.Out, r.LSE, want)
	}
	for _, s := range []float32{float32(math.Inf(1)), negInf, 1e38} {
		if got := softcap(s, 1e-30); float32(math.Abs(float64(got))) != 1e-30 {
			t.Errorf("softcap(%v) = %v", s, got)
		}
	}
}

// Sinks with nothing else: output 0, LSE the sink; and a sink of -Inf is none.
func TestSinksAlone(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, run := range []func(c *Call) (Result, error){
		Reference, NoSplit,
		func(c *Call) (Result, error) { return Split(c, []int{0, 0}, Balanced) },
		func(c *Call) (Result, error) {
			r, _, err := Async(c, nil, []float32{500, 500, 500}, DefaultGuard())
			return r, err
		},
		func(c *Call) (Result, error) {
			r, redone, err := Lazy(c, nil, []float32{500, 500, 500}, DefaultGuard())
			if redone != 0 {
				t.Errorf("an empty row was redone")
			}
			return r, err
		},
	} {
		c := &Call{Shape: Shape{QHeads: 3, KVHeads: 3, HeadDim: 1}, Q: make([]float32, 3), QLen: 1,
			Options: Options{Sinks: []float32{-7, 2, inf}}}
		r := must(t)(run(c))
		for h, want := range c.Sinks {
			if r.LSE[h] != want || r.Out[h] != 0 {
				t.Errorf("sink %v alone: out %v lse %v", want, r.Out[h], r.LSE[h])
			}
		}
	}
}

// More query rows than tokens, and windows beside the sequence: those rows are empty, the others not.
func TestEmptyRows(t *testing.T) {
	for _, tc := range []testCase{
		{q: 2, kv: 1, d: 8, qLen: 5, kvLen: 3, std: 1, opt: Options{Causal: true}},
		{q: 2, kv: 1, d: 8, qLen: 4, kvLen: 9, std: 1, opt: Options{Window: &Window{Left: -2, Right: -1}}},
		{q: 2, kv: 1, d: 8, qLen: 4, kvLen: 0, std: 1},
	} {
		c := tc.build(2)
		r := must(t)(Split(c, []int{0, tc.kvLen / 2}, nil))
		if e := excess(t, c, r, 3, 0); !(e <= 1) {
			t.Errorf("%v: %.3g × the bound", tc, e)
		}
		for row, lse := range r.LSE {
			lo, hi := c.Range(row / tc.q)
			if math.IsInf(float64(lse), -1) != (lo == hi) {
				t.Errorf("%v row %d attends [%d,%d): lse %v", tc, row, lo, hi, lse)
			}
		}
	}
}

func TestRange(t *testing.T) {
	for _, tc := range []struct {
		kvLen, qLen, row int
		causal           bool
		win              *Window
		lo, hi           int
	}{
		{10, 1, 0, true, nil, 0, 10},
		{10, 3, 0, true, nil, 0, 8}, // bottom-right: row 0 of 3 is position 7
		{10, 3, 2, true, nil, 0, 10},
		{10, 3, 0, false, nil, 0, 10},
		{10, 1, 0, true, &Window{0, 0}, 9, 10},
		{10, 1, 0, true, &Window{3, 0}, 6, 10},
		{10, 3, 0, false, &Window{2, 1}, 5, 9},
		{10, 3, 0, true, &Window{2, 1}, 5, 8},
		{10, 3, 0, false, &Window{-1, 1}, 0, 9},
		{2, 4, 0, true, nil, 0, 0}, // position -2
		{2, 4, 2, true, nil, 0, 1},
		{2, 4, 0, false, &Window{5, 1}, 0, 0},
		{0, 1, 0, true, nil, 0, 0},
	} {
		c := &Call{KVLen: tc.kvLen, QLen: tc.qLen, Options: Options{Causal: tc.causal, Window: tc.win}}
		if lo, hi := c.Range(tc.row); lo != tc.lo || hi != tc.hi {
			t.Errorf("%+v (window %+v): got [%d,%d)", tc, tc.win, lo, hi)
		}
	}
}
