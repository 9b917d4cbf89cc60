package attn

import "math"

// State is the attention of one query row and head over a set of KV positions, before normalisation.
//
//	L = Σ_j exp(s_j-M)          s_j: the logit of position j
//	O = Σ_j exp(s_j-M)·v_j      [ValueDim]
//
// M is the logit that the exponentials were taken against: the maximum so far, or a calibrated φ.
// L = 0 means the empty set, whatever M is; its canonical form is {-Inf, 0, 0}, the identity of Merge.
type State struct {
	M, L float32
	O    []float32
}

// NewState returns the empty State for values of dim elements.
func NewState(dim int) State {
	return State{M: negInf, O: make([]float32, dim)}
}

// Add adds one position with logit s and value v: one step of the online softmax. A nil v adds to
// the denominator only, which is what an attention sink is.
func (st *State) Add(s float32, v []float32) {
	if s == negInf {
		return // masked; -Inf - -Inf would be NaN
	}
	switch {
	case st.L == 0:
		st.M = s // an empty φ state forgets its φ, so that a logit far below it can't underflow
	case s > st.M:
		st.rescale(s)
	}
	st.accumulate(s, v)
}

// AddLazy is Add with a reference that lags: M moves, to s, only when s exceeds it by more than slack.
// Between moves L and O grow by up to exp(slack) a position and nothing is rescaled. An empty State
// keeps the M that it was made with, so a State may start at a calibrated φ.
func (st *State) AddLazy(s float32, v []float32, slack float32) {
	if s == negInf {
		return
	}
	if s > st.M+slack {
		st.rescale(s)
	}
	st.accumulate(s, v)
}

// accumulate adds the position against the M there is.
func (st *State) accumulate(s float32, v []float32) {
	p := exp(s - st.M)
	st.L += p
	for i, x := range v {
		st.O[i] += p * x
	}
}

// rescale moves the reference up to m.
func (st *State) rescale(m float32) {
	a := exp(st.M - m) // 0 when M is -Inf
	st.M = m
	st.L *= a
	for i := range st.O {
		st.O[i] *= a
	}
}

// Merge makes dst the State of the union of dst's positions and src's, which must be disjoint:
//
//	M = max(M_a, M_b)
//	L = exp(M_a-M)·L_a + exp(M_b-M)·L_b
//	O = exp(M_a-M)·O_a + exp(M_b-M)·O_b
//
// When both have the same M (a common φ) both factors are exactly 1 and it is plain addition.
func Merge(dst *State, src State) {
	if src.L == 0 {
		return // not only a shortcut: its M may be a φ far above, or -Inf as dst's, and -Inf - -Inf is NaN
	}
	if dst.L == 0 {
		dst.M, dst.L = src.M, src.L
		copy(dst.O, src.O)
		return
	}
	m := max(dst.M, src.M)
	a, b := exp(dst.M-m), exp(src.M-m)
	dst.M = m
	// The conversions forbid fused multiply-adds, which would round only one of the products: a⊕b must equal b⊕a.
	dst.L = float32(a*dst.L) + float32(b*src.L)
	for i, x := range src.O {
		dst.O[i] = float32(a*dst.O[i]) + float32(b*x)
	}
}

// Finish normalises st into out [ValueDim] and returns the LSE, M + ln L. The empty State gives
// zeros and -Inf. There is no ε in the denominator: L is either 0 or healthy.
func Finish(st State, out []float32) (lse float32) {
	if st.L == 0 {
		clear(out)
		return negInf
	}
	for i, x := range st.O {
		out[i] = x / st.L
	}
	return float32(float64(st.M) + math.Log(float64(st.L)))
}

var negInf = float32(math.Inf(-1))

// exp is rounded once: the float64 result is accurate to far more than float32 holds.
func exp(x float32) float32 { return float32(math.Exp(float64(x))) }
