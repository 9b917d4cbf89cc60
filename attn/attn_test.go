package attn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Every algorithm equals the reference on every shape, mask and length, for random cuts and trees.
func TestEqualsReference(t *testing.T) {
	worst := map[string]float64{}
	for k, tc := range cases() {
		c := tc.build(uint64(k))
		o := newOracle(t, c)
		rng := rand.New(rand.NewPCG(uint64(k), 2))
		for range 2 {
			cuts := randomCuts(rng, rng.IntN(8), tc.kvLen)
			splits := len(cuts) + 1
			check := func(name string, r Result, reach float64) {
				e := o.excess(t, r, splits, reach)
				worst[name] = max(worst[name], e)
				if !(e <= 1) {
					t.Errorf("%v cuts %v: %s is %.2f × the bound from the reference", tc, cuts, name, e)
				}
			}
			check("NoSplit", must(t)(NoSplit(c)), 0)
			check("Split", must(t)(Split(c, cuts, nil)), 0)
			check("Split balanced", must(t)(Split(c, cuts, Balanced)), 0)
			check("Split random tree", must(t)(Split(c, cuts, randomTree(rng))), 0)

			phi := make([]float32, tc.q)
			for h := range phi {
				phi[h] = float32(3 * rng.NormFloat64())
			}
			g := DefaultGuard()
			r, _, err := Async(c, cuts, phi, g)
			check("Async", must(t)(r, err), 40)
			r, _, err = Lazy(c, cuts, phi, g)
			check("Lazy from φ", must(t)(r, err), 40)
			r, redone, err := Lazy(c, cuts, nil, g)
			check("Lazy", must(t)(r, err), 40)
			if redone != 0 {
				t.Errorf("%v: lagging maximum redid %d rows", tc, redone)
			}
		}
	}
	for name, e := range worst {
		t.Logf("%-18s worst error %.3f of the bound", name, e)
		if e < 0.002 {
			t.Errorf("%s: the bound is %.0f × the worst error: too loose to mean anything", name, 1/e)
		}
	}
}

// Every partition of 5 tokens, and for each every tree of pairwise merges.
func TestEveryPartitionEveryTree(t *testing.T) {
	c := testCase{q: 2, kv: 1, d: 16, qLen: 1, kvLen: 5, std: 2}.build(3)
	trees := 0
	for mask := range 1 << 4 {
		var cuts []int
		for j := 1; j < 5; j++ {
			if mask>>(j-1)&1 == 1 {
				cuts = append(cuts, j)
			}
		}
		for pick := 0; ; pick++ {
			tree, done := numberedTree(pick, len(cuts)+1)
			if done {
				break
			}
			trees++
			if e := excess(t, c, must(t)(Split(c, cuts, tree)), len(cuts)+1, 0); !(e <= 1) {
				t.Fatalf("cuts %v, tree %d: %.2f × the bound", cuts, pick, e)
			}
		}
	}
	// Σ over partitions into k parts of Π_{j=2..k} j(j-1): 1 + 4·2 + 6·12 + 4·144 + 2880.
	if trees != 3537 {
		t.Fatalf("enumerated %d trees, want 3537", trees)
	}
}

// numberedTree returns the merge tree number pick of those over n parts: at each level an ordered pair.
func numberedTree(pick, n int) (tree Reduce, done bool) {
	total := 1
	for k := 2; k <= n; k++ {
		total *= k * (k - 1)
	}
	return func(parts []State) State {
		p := pick
		for k := len(parts); k > 1; k = len(parts) {
			a, b := p%k, p/k%(k-1)
			p /= k * (k - 1)
			if b >= a {
				b++
			}
			Merge(&parts[a], parts[b])
			parts[b] = parts[k-1]
			parts = parts[:k-1]
		}
		return parts[0]
	}, pick >= total
}

// The other side of the bound: each classic mistake must land outside it. A bound that let one of them
// pass would prove nothing.
func TestBoundCatchesMutants(t *testing.T) {
	tc := testCase{q: 4, kv: 2, d: 64, qLen: 4, kvLen: 300, std: 1.2,
		opt: Options{Causal: true, Window: &Window{Left: 200, Right: -1}, Softcap: 20, Sinks: []float32{}}}
	c := tc.build(5)
	cuts := []int{90, 128, 200, 250}
	mutant := func(change func(m *Call)) Result {
		m := *c
		change(&m)
		return must(t)(Split(&m, cuts, nil))
	}
	reduced := func(f func(dst *State, src State)) Result {
		return must(t)(Split(c, cuts, func(parts []State) State {
			st := parts[0]
			for _, p := range parts[1:] {
				f(&st, p)
			}
			return st
		}))
	}
	skip := func(skipped int) Result { // a cut that loses a token
		return c.each(func(i, h int) State {
			st := Partial(c, i, h, 0, skipped)
			Merge(&st, Partial(c, i, h, skipped+1, c.KVLen))
			return st
		})
	}
	mutants := map[string]Result{
		"no rescale": reduced(func(dst *State, src State) {
			src.M, dst.M = max(dst.M, src.M), max(dst.M, src.M)
			Merge(dst, src)
		}),
		"normalised partials merged as if not": reduced(func(dst *State, src State) {
			for d := range src.O {
				src.O[d] /= src.L
			}
			Merge(dst, src)
		}),
		"L of the larger only": reduced(func(dst *State, src State) {
			l := max(dst.L, src.L)
			Merge(dst, src)
			dst.L = l
		}),
		"sink in every split": reduced(func(dst *State, src State) {
			src.Add(c.Sinks[0], nil)
			Merge(dst, src)
		}),
		"ε in the denominator": reduced(func(dst *State, src State) {
			Merge(dst, src)
			dst.L *= 1 + 1e-3
		}),
		"token 220 lost":    skip(220),
		"scale 0.1 % off":   mutant(func(m *Call) { m.Scale = m.scale() * 1.001 }),
		"softcap omitted":   mutant(func(m *Call) { m.Softcap = 0 }),
		"window one short":  mutant(func(m *Call) { m.Window = &Window{Left: 199, Right: -1} }),
		"causal off by one": must(t)(NoSplit(&Call{Shape: c.Shape, Options: c.Options, Q: c.Q, QLen: c.QLen, KV: c.KV, KVLen: c.KVLen - 1})),
		"wrong group": mutant(func(m *Call) {
			m.KV = swapped{c.KV}
		}),
		"no sink": mutant(func(m *Call) { m.Sinks = nil }),
	}
	for name, r := range mutants {
		if e := excess(t, c, r, len(cuts)+1, 0); !(e > 1) {
			t.Errorf("%s: only %.3f of the bound, not caught", name, e)
		} else {
			t.Logf("%-38s %.3g × the bound", name, e)
		}
	}
}

// swapped reads the other KV head.
type swapped struct{ kv KV }

func (s swapped) Key(j, h int) []float32   { return s.kv.Key(j, 1-h) }
func (s swapped) Value(j, h int) []float32 { return s.kv.Value(j, 1-h) }

func TestErrorsNameTheValue(t *testing.T) {
	good := testCase{q: 4, kv: 2, d: 8, qLen: 1, kvLen: 4, std: 1}
	for want, change := range map[string]func(c *Call){
		"4 query heads are not a multiple of 3 KV heads":   func(c *Call) { c.KVHeads = 3 },
		"heads and dims must be positive":                  func(c *Call) { c.HeadDim = 0 },
		"KVLen -1":                                         func(c *Call) { c.KVLen = -1 },
		"Q has 32 elements, want QLen·QHeads·HeadDim = 64": func(c *Call) { c.QLen = 2 },
		"KV is nil with KVLen 4":                           func(c *Call) { c.KV = nil },
		"scale NaN is not finite":                          func(c *Call) { c.Scale = float32(math.NaN()) },
		"softcap -1":                                       func(c *Call) { c.Softcap = -1 },
		"2 sinks for 4 query heads":                        func(c *Call) { c.Sinks = []float32{0, 0} },
	} {
		c := good.build(1)
		change(c)
		_, refErr := Reference(c)
		_, noErr := NoSplit(c)
		for _, err := range []error{refErr, noErr} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "attn: ") {
				t.Errorf("got %v, want attn: … %s", err, want)
			}
		}
	}
	c := good.build(1)
	if _, err := Split(c, []int{3, 2}, nil); err == nil || !strings.Contains(err.Error(), "cut 1 is 2") {
		t.Errorf("descending cuts: %v", err)
	}
	if _, err := Split(c, []int{5}, nil); err == nil || !strings.Contains(err.Error(), "KVLen 4") {
		t.Errorf("cut past the end: %v", err)
	}
	phi := []float32{0, 0, 0, 0}
	if _, _, err := Async(c, nil, phi[:2], DefaultGuard()); err == nil {
		t.Error("short φ accepted")
	}
	if _, _, err := Async(c, nil, nil, DefaultGuard()); err == nil {
		t.Error("Async without φ accepted")
	}
	if _, _, err := Async(c, nil, []float32{0, 0, negInf, 0}, DefaultGuard()); err == nil || !strings.Contains(err.Error(), "head 2") {
		t.Errorf("infinite φ: %v", err)
	}
	if _, _, err := Lazy(c, nil, phi, Guard{Low: -1, High: 100}); err == nil || !strings.Contains(err.Error(), "100") {
		t.Errorf("guard past float32: %v", err)
	}
}
