package attn

import (
	"math"
	"math/rand/v2"
	"testing"
)

// randomState has a reference within ±spread; about one in five is empty.
func randomState(rng *rand.Rand, dim int, spread float64) State {
	st := NewState(dim)
	for range rng.IntN(5) {
		v := make([]float32, dim)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		st.Add(float32(spread*(2*rng.Float64()-1)), v)
	}
	return st
}

func clone(st State) State {
	st.O = append([]float32(nil), st.O...)
	return st
}

func merged(a, b State) State {
	a = clone(a)
	Merge(&a, b)
	return a
}

// distance compares two finished States, relative to values of size 1 to 4.
func distance(a, b State) float64 {
	oa, ob := make([]float32, len(a.O)), make([]float32, len(b.O))
	la, lb := Finish(a, oa), Finish(b, ob)
	if la == lb && math.IsInf(float64(la), -1) {
		return 0
	}
	d := math.Abs(float64(la)-float64(lb)) / (1 + math.Abs(float64(la)))
	for i := range oa {
		d = max(d, math.Abs(float64(oa[i])-float64(ob[i])))
	}
	return d
}

func TestMergeLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	// Per element: two merges of 3 roundings on both sides, values up to 4; the arguments of the
	// exponentials are exact to u·spread, which a softmax weight multiplies by at most 1/4.
	for _, spread := range []float64{0.1, 10, 80, 500, 6e4} {
		tol := unit * 4 * (12 + 2*min(spread, 100))
		for range 300 {
			a, b, c := randomState(rng, 4, spread), randomState(rng, 4, spread), randomState(rng, 4, spread)
			if d := distance(merged(a, b), merged(b, a)); d != 0 {
				t.Fatalf("spread %g: a⊕b and b⊕a differ by %g; IEEE addition commutes", spread, d)
			}
			if d := distance(merged(merged(a, b), c), merged(a, merged(b, c))); !(d <= tol) {
				t.Fatalf("spread %g: (a⊕b)⊕c and a⊕(b⊕c) differ by %g > %g", spread, d, tol)
			}
			empty := NewState(4)
			if distance(merged(a, empty), a) != 0 || distance(merged(empty, a), a) != 0 {
				t.Fatalf("the empty State is not the identity for %+v", a)
			}
		}
	}
}

func TestEmptyRules(t *testing.T) {
	out := []float32{9, 9}
	phi := State{M: 500, O: make([]float32, 2)} // a φ partial that saw nothing
	for name, st := range map[string]State{
		"new": NewState(2), "two": merged(NewState(2), NewState(2)), "φ": phi,
		"φ and new": merged(phi, NewState(2)), "new and φ": merged(NewState(2), phi),
	} {
		out[0], out[1] = 9, 9
		if lse := Finish(st, out); lse != negInf || out[0] != 0 || out[1] != 0 {
			t.Errorf("%s: out %v lse %v, want zeros and -Inf", name, out, lse)
		}
	}
	st := NewState(2)
	st.Add(negInf, []float32{1, 2}) // masked
	st.AddLazy(negInf, []float32{1, 2}, 8)
	if st.L != 0 || st.M != negInf {
		t.Errorf("masked position changed the State to %+v", st)
	}
	// A φ far above must not swallow what comes after it.
	st = clone(phi)
	Merge(&st, State{M: -6e4, L: 1, O: []float32{3, 4}})
	if lse := Finish(st, out); lse != -6e4 || out[0] != 3 || out[1] != 4 {
		t.Errorf("merge into an empty φ State: out %v lse %v", out, lse)
	}
	st = State{M: -6e4, L: 1, O: []float32{3, 4}}
	Merge(&st, phi)
	if lse := Finish(st, out); lse != -6e4 || out[0] != 3 || out[1] != 4 {
		t.Errorf("merge of an empty φ State: out %v lse %v", out, lse)
	}
	st = clone(phi)
	st.Add(-6e4, []float32{3, 4})
	if lse := Finish(st, out); lse != -6e4 || out[0] != 3 {
		t.Errorf("add to an empty φ State: out %v lse %v", out, lse)
	}
}

// Merge must copy, not alias, what it takes into an empty State.
func TestMergeDoesNotAlias(t *testing.T) {
	src := State{M: 1, L: 1, O: []float32{1}}
	dst := NewState(1)
	Merge(&dst, src)
	src.O[0] = 99
	if dst.O[0] != 1 {
		t.Error("dst.O aliases src.O")
	}
}

// A common reference makes merging plain addition, bit for bit: the claim of the asynchronised softmax.
func TestCommonReferenceIsAddition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for range 100 {
		phi := float32(20 * rng.NormFloat64())
		a := State{M: phi, L: rng.Float32() + 0.1, O: []float32{rng.Float32()}}
		b := State{M: phi, L: rng.Float32() + 0.1, O: []float32{rng.Float32()}}
		m := merged(a, b)
		if m.M != phi || m.L != a.L+b.L || m.O[0] != a.O[0]+b.O[0] {
			t.Fatalf("%+v ⊕ %+v = %+v is not the sum", a, b, m)
		}
	}
}

// FuzzMerge: no finite States merge to NaN, and the union has the LSE of both.
func FuzzMerge(f *testing.F) {
	f.Add(float32(0), float32(1), float32(0), float32(1))
	f.Add(float32(-6e4), float32(1), float32(6e4), float32(3))
	f.Add(float32(3e38), float32(1), float32(-3e38), float32(1))
	f.Add(float32(500), float32(0), float32(-500), float32(1e-30))
	f.Fuzz(func(t *testing.T, ma, la, mb, lb float32) {
		if !finite(ma) || !finite(mb) || !(la >= 0 && la < 1e30) || !(lb >= 0 && lb < 1e30) {
			t.Skip()
		}
		a := State{M: ma, L: la, O: []float32{la}}
		b := State{M: mb, L: lb, O: []float32{-lb}}
		Merge(&a, b)
		var out [1]float32
		lse := Finish(a, out[:])
		if lse != lse || out[0] != out[0] || out[0] < -1.001 || out[0] > 1.001 {
			t.Fatalf("{%v %v} ⊕ {%v %v}: out %v lse %v", ma, la, mb, lb, out, lse)
		}
		if la == 0 && lb == 0 && (lse != negInf || out[0] != 0) {
			t.Fatalf("empty ⊕ empty: out %v lse %v", out, lse)
		}
	})
}
