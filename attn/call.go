package attn

import (
	"fmt"
	"iter"
	"math"
)

// Shape is the head geometry of a call.
type Shape struct {
	QHeads   int // query heads
	KVHeads  int // key/value heads; divides QHeads. Equal: MHA, 1: MQA, between: GQA
	HeadDim  int // elements of a query and a key
	ValueDim int // elements of a value and an output; 0 means HeadDim (the latent form has 576 and 512)
}

// Group is the number of query heads that share a KV head.
func (s Shape) Group() int { return s.QHeads / s.KVHeads }

// valueDim resolves ValueDim's default.
func (s Shape) valueDim() int {
	if s.ValueDim == 0 {
		return s.HeadDim
	}
	return s.ValueDim
}

// Window limits a row at position p to positions p-Left … p+Right, both included. A negative side is
// unlimited.
type Window struct{ Left, Right int }

// Options say which positions a row attends and how logits are formed.
type Options struct {
	Scale   float32   // of ⟨q,k⟩; 0 means 1/√HeadDim
	Softcap float32   // > 0: s becomes Softcap·tanh(s/Softcap)
	Causal  bool      // a row at position p attends none after p
	Window  *Window   // nil: unlimited
	Sinks   []float32 // [QHeads] logits that join the denominator once; nil: none
}

// KV gives access to one sequence's keys and values, however they are stored: strided (Tensors), in
// pages, converted from another type. Only positions that some row attends are asked for.
type KV interface {
	Key(j, head int) []float32   // [HeadDim] of position j and KV head
	Value(j, head int) []float32 // [ValueDim]
}

// View is a strided [token][head][Dim] or [head][token][Dim] array.
type View struct {
	Data        []float32
	Dim         int
	TokenStride int // elements from one token to the next
	HeadStride  int // elements from one KV head to the next
}

// At returns the Dim elements of position j and KV head.
func (w View) At(j, head int) []float32 {
	o := j*w.TokenStride + head*w.HeadStride
	return w.Data[o : o+w.Dim : o+w.Dim]
}

// Tensors is a KV of two strided arrays, which may overlap (a latent value is part of its key).
type Tensors struct{ K, V View }

// Key implements KV.
func (t Tensors) Key(j, head int) []float32 { return t.K.At(j, head) }

// Value implements KV.
func (t Tensors) Value(j, head int) []float32 { return t.V.At(j, head) }

// Call is one attention call of one sequence.
type Call struct {
	Shape
	Options
	Q     []float32 // [QLen][QHeads][HeadDim]
	QLen  int
	KV    KV
	KVLen int // tokens in the cache, the query's own included
}

// Result holds what a call computes.
type Result struct {
	Out []float32 // [QLen][QHeads][ValueDim]
	LSE []float32 // [QLen][QHeads], natural log, sinks included; -Inf if nothing is attended
}

// Range returns the positions lo ≤ j < hi that row i attends; lo == hi if none. Both masks are
// intervals around the row's position, so their intersection with [0, KVLen) is one interval.
func (c *Call) Range(i int) (lo, hi int) {
	p := c.KVLen - c.QLen + i
	hi = c.KVLen
	if c.Causal {
		hi = min(hi, p+1)
	}
	if w := c.Window; w != nil {
		if w.Left >= 0 {
			lo = max(lo, p-w.Left)
		}
		if w.Right >= 0 {
			hi = min(hi, p+w.Right+1)
		}
	}
	if lo >= hi {
		return 0, 0
	}
	return lo, hi
}

// query returns the query vector of row i and head h.
func (c *Call) query(i, h int) []float32 {
	o := (i*c.QHeads + h) * c.HeadDim
	return c.Q[o : o+c.HeadDim]
}

// scale resolves Scale's default.
func (c *Call) scale() float32 {
	if c.Scale == 0 {
		return float32(1 / math.Sqrt(float64(c.HeadDim)))
	}
	return c.Scale
}

// tokens yields the logit and the value of every position in [lo, hi) that row i attends, in order.
// All query heads of a group read the same keys and values.
func (c *Call) tokens(i, h, lo, hi int) iter.Seq2[float32, []float32] {
	first, end := c.Range(i)
	lo, hi = max(lo, first), min(hi, end)
	q, kvHead, scale := c.query(i, h), h/c.Group(), c.scale()
	return func(yield func(float32, []float32) bool) {
		for j := lo; j < hi; j++ {
			s := scale * dot(q, c.KV.Key(j, kvHead))
			if c.Softcap > 0 {
				s = softcap(s, c.Softcap)
			}
			if !yield(s, c.KV.Value(j, kvHead)) {
				return
			}
		}
	}
}

func dot(x, y []float32) (sum float32) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// softcap is cap·tanh(s/cap). math.Tanh saturates: a form with exp(2x) would give Inf/Inf.
func softcap(s, limit float32) float32 {
	return limit * float32(math.Tanh(float64(s)/float64(limit)))
}

// each finishes the State of every row and head. Sinks join here, after all merging, so that they
// count once however the KV range was cut.
func (c *Call) each(state func(i, h int) State) Result {
	dim := c.valueDim()
	r := Result{Out: make([]float32, c.QLen*c.QHeads*dim), LSE: make([]float32, c.QLen*c.QHeads)}
	for row := range r.LSE {
		i, h := row/c.QHeads, row%c.QHeads
		st := state(i, h)
		if c.Sinks != nil {
			st.Add(c.Sinks[h], nil)
		}
		r.LSE[row] = Finish(st, r.Out[row*dim:(row+1)*dim])
	}
	return r
}

// check names the first value that makes the call meaningless.
func (c *Call) check() error {
	switch {
	case c.QHeads < 1 || c.KVHeads < 1 || c.HeadDim < 1 || c.ValueDim < 0:
		return fmt.Errorf("attn: shape %+v: heads and dims must be positive", c.Shape)
	case c.QHeads%c.KVHeads != 0:
		return fmt.Errorf("attn: %d query heads are not a multiple of %d KV heads", c.QHeads, c.KVHeads)
	case c.QLen < 0 || c.KVLen < 0:
		return fmt.Errorf("attn: QLen %d and KVLen %d must not be negative", c.QLen, c.KVLen)
	case len(c.Q) != c.QLen*c.QHeads*c.HeadDim:
		return fmt.Errorf("attn: Q has %d elements, want QLen·QHeads·HeadDim = %d", len(c.Q), c.QLen*c.QHeads*c.HeadDim)
	case c.KV == nil && c.KVLen > 0:
		return fmt.Errorf("attn: KV is nil with KVLen %d", c.KVLen)
	case !finite(c.Scale):
		return fmt.Errorf("attn: scale %v is not finite", c.Scale)
	case !finite(c.Softcap) || c.Softcap < 0:
		return fmt.Errorf("attn: softcap %v must be positive, or 0 for none", c.Softcap)
	case c.Sinks != nil && len(c.Sinks) != c.QHeads:
		return fmt.Errorf("attn: %d sinks for %d query heads", len(c.Sinks), c.QHeads)
	}
	return nil
}

func finite(x float32) bool { return x-x == 0 }
