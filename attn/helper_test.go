package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// testCase is a call described by its numbers; its name is its key.
type testCase struct {
	q, kv, d, dv int // heads and dims
	qLen, kvLen  int
	opt          Options
	std          float64 // of q and k: logits have about std²
}

func (t testCase) String() string {
	w := "none"
	if t.opt.Window != nil {
		w = fmt.Sprintf("%d,%d", t.opt.Window.Left, t.opt.Window.Right)
	}
	return fmt.Sprintf("h=%d/kv=%d/d=%d,%d/m=%d/n=%d/causal=%v/win=%s/cap=%g/sinks=%v/std=%g",
		t.q, t.kv, t.d, t.dv, t.qLen, t.kvLen, t.opt.Causal, w, t.opt.Softcap, t.opt.Sinks != nil, t.std)
}

// build makes the call with seeded data. Everything that no row attends is NaN, as are 3 tokens past
// KVLen: whoever reads it shows.
func (t testCase) build(seed uint64) *Call {
	rng := rand.New(rand.NewPCG(seed, 1))
	normal := func(n int, std float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(std * rng.NormFloat64())
		}
		return x
	}
	dv := t.dv
	if dv == 0 {
		dv = t.d
	}
	tokens := t.kvLen + 3
	// K is [token][head][d], V is [head][token][dv]: both orders are exercised.
	kv := Tensors{
		K: View{Data: normal(tokens*t.kv*t.d, t.std), Dim: t.d, TokenStride: t.kv * t.d, HeadStride: t.d},
		V: View{Data: normal(tokens*t.kv*dv, 1), Dim: dv, TokenStride: dv, HeadStride: tokens * dv},
	}
	c := &Call{
		Shape:   Shape{QHeads: t.q, KVHeads: t.kv, HeadDim: t.d, ValueDim: t.dv},
		Options: t.opt,
		Q:       normal(t.qLen*t.q*t.d, t.std),
		QLen:    t.qLen, KV: kv, KVLen: t.kvLen,
	}
	if t.opt.Sinks != nil {
		c.Sinks = normal(t.q, 2)
	}
	poison(c, kv, tokens)
	return c
}

// poison fills what no row of c attends with NaN.
func poison(c *Call, kv Tensors, tokens int) {
	nan := float32(math.NaN())
	for j := range tokens {
		attended := false
		for i := range c.QLen {
			lo, hi := c.Range(i)
			attended = attended || lo <= j && j < hi
		}
		for h := 0; !attended && h < c.KVHeads; h++ {
			for _, x := range [][]float32{kv.Key(j, h), kv.Value(j, h)} {
				for i := range x {
					x[i] = nan
				}
			}
		}
	}
}

// oracle keeps what tests ask of one call again and again: the reference and its tolerances.
type oracle struct {
	c    *Call
	want Result
	tols map[[2]float64][]Tol
}

func newOracle(t *testing.T, c *Call) *oracle {
	t.Helper()
	return &oracle{c: c, want: must(t)(Reference(c)), tols: map[[2]float64][]Tol{}}
}

// excess is the largest error of got over its tolerance: ≤ 1 passes. Where the reference row is empty,
// anything but exact zeros and -Inf is infinite excess; so is any NaN.
func (o *oracle) excess(t *testing.T, got Result, splits int, reach float64) float64 {
	t.Helper()
	key := [2]float64{float64(splits), reach}
	if o.tols[key] == nil {
		tols, err := Bound(o.c, splits, reach)
		if err != nil {
			t.Fatal(err)
		}
		o.tols[key] = tols
	}
	worst := 0.0
	dim := o.c.valueDim()
	for row, tol := range o.tols[key] {
		worst = max(worst, ratio(got.LSE[row], o.want.LSE[row], tol.LSE))
		for d := row * dim; d < (row+1)*dim; d++ {
			worst = max(worst, ratio(got.Out[d], o.want.Out[d], tol.Out))
		}
	}
	return worst
}

// excess is oracle.excess for one question.
func excess(t *testing.T, c *Call, got Result, splits int, reach float64) float64 {
	t.Helper()
	return newOracle(t, c).excess(t, got, splits, reach)
}

func ratio(got, want float32, tol float64) float64 {
	if got == want {
		return 0 // covers -Inf
	}
	e := math.Abs(float64(got) - float64(want))
	if math.IsNaN(e) || tol == 0 {
		return math.Inf(1)
	}
	return e / tol
}

// must unwraps a result.
func must(t *testing.T) func(Result, error) Result {
	return func(r Result, err error) Result {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// randomCuts returns n ascending cuts in 0 … kvLen, some of them equal.
func randomCuts(rng *rand.Rand, n, kvLen int) []int {
	cuts := make([]int, n)
	for i := range cuts {
		cuts[i] = rng.IntN(kvLen + 1)
	}
	for i := range cuts { // insertion sort: short
		for j := i; j > 0 && cuts[j] < cuts[j-1]; j-- {
			cuts[j], cuts[j-1] = cuts[j-1], cuts[j]
		}
	}
	return cuts
}

// randomTree merges random pairs in random direction until one State is left.
func randomTree(rng *rand.Rand) Reduce {
	return func(parts []State) State {
		for len(parts) > 1 {
			rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			Merge(&parts[0], parts[1])
			parts[1] = parts[len(parts)-1]
			parts = parts[:len(parts)-1]
		}
		return parts[0]
	}
}

// cases are the shapes × lengths × options of the property tests.
func cases() []testCase {
	shapes := []testCase{
		{q: 1, kv: 1, d: 8}, {q: 4, kv: 4, d: 16}, {q: 9, kv: 3, d: 64}, {q: 7, kv: 1, d: 40}, {q: 10, kv: 2, d: 24, dv: 16},
	}
	options := []Options{
		{},
		{Causal: true},
		{Causal: true, Window: &Window{Left: 4, Right: 0}},
		{Window: &Window{Left: -1, Right: 2}, Softcap: 3},
		{Window: &Window{Left: 3, Right: 5}, Sinks: []float32{}},
		{Causal: true, Softcap: 30, Sinks: []float32{}, Scale: 0.3},
	}
	var all []testCase
	for _, s := range shapes {
		for _, o := range options {
			for _, n := range []int{0, 1, 2, 15, 16, 17, 130} {
				for _, m := range []int{1, 4} {
					s.opt, s.kvLen, s.qLen = o, n, m
					s.std = 1 + float64(n%3)
					all = append(all, s)
				}
			}
		}
	}
	return all
}
