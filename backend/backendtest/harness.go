package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/backend/ref"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// eps is the relative error of one rounding to float32.
const eps = 0x1p-24

// Options describe the backend under test.
type Options struct {
	New func() (ops.Backend, error)
	// Activations is the relative error of an activation against the largest of its block of 32, for products with
	// quantised weights: 1/254 for 8-bit integers, 0 if they stay float32.
	Activations float64
	// Flat runs the attention tests on a flat cache.
	Flat bool
	// Few runs a third of the attention scenes: for slow bodies.
	Few bool
}

// Run checks the backend.
func Run(t *testing.T, o Options) {
	if o.Flat {
		runAttention(t, o)
		return
	}
	t.Run("Embed", func(t *testing.T) { testEmbed(t, o) })
	t.Run("RMSNorm", func(t *testing.T) { testRMSNorm(t, o) })
	t.Run("Linear", func(t *testing.T) { testLinear(t, o) })
	t.Run("LinearParts", func(t *testing.T) { testLinearParts(t, o) })
	t.Run("GatedMul", func(t *testing.T) { testGatedMul(t, o) })
	t.Run("AddGather", func(t *testing.T) { testAddGather(t, o) })
	t.Run("Softcap", func(t *testing.T) { testSoftcap(t, o) })
	runAttention(t, o)
	t.Run("Refusals", func(t *testing.T) { testRefusals(t, o) })
}

// runAttention checks what depends on the cache.
func runAttention(t *testing.T, o Options) {
	t.Run("Rope", func(t *testing.T) { testRope(t, o) })
	t.Run("Attend", func(t *testing.T) { testAttend(t, o) })
	t.Run("Poison", func(t *testing.T) { testPoison(t, o) })
	t.Run("CopyPage", func(t *testing.T) { testCopyPage(t, o) })
	t.Run("BatchInvariance", func(t *testing.T) { testBatchInvariance(t, o) })
}

// side is one backend with the means to fill and read its buffers.
type side struct {
	t  *testing.T
	be ops.Backend
}

// pair is the backend under test and the reference.
type pair struct{ got, want side }

func newPair(t *testing.T, o Options) pair {
	t.Helper()
	be, err := o.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := be.Close(); err != nil {
			t.Error(err)
		}
	})
	return pair{side{t, be}, side{t, ref.New()}}
}

// both calls f for each side.
func (p pair) both(f func(s side) []float32) (got, want []float32) { return f(p.got), f(p.want) }

func (s side) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// upload makes a weight of x, [rows, cols], in the given format.
func (s side) upload(typ quant.Type, rows, cols int, x []float32) ops.Weight {
	s.t.Helper()
	data := make([]byte, rows*typ.RowBytes(cols))
	s.must(quant.Quantize(typ, data, x))
	w, err := s.be.Upload(fmt.Sprintf("%v[%d,%d]", typ, rows, cols), typ, rows, cols, data)
	s.must(err)
	return w
}

func (s side) alloc(rows, cols int) ops.Buf {
	s.t.Helper()
	b, err := s.be.Alloc(rows, cols)
	s.must(err)
	return b
}

// rowsOf is a batch of n sequences of one token each, for operations that know rows only.
func rowsOf(n int) *ops.Batch {
	b := &ops.Batch{QIndptr: []int32{0}, PageIndptr: []int32{0}}
	for i := range n {
		b.Tokens = append(b.Tokens, int32(i))
		b.Positions = append(b.Positions, 0)
		b.QIndptr = append(b.QIndptr, int32(i+1))
		b.KVLens = append(b.KVLens, 1)
		b.PageIndptr = append(b.PageIndptr, int32(i+1))
		b.PageIndices = append(b.PageIndices, int32(i))
	}
	return b
}

// fill makes a buffer of x, [rows, cols], within a step whose tokens are 0 … rows-1.
func (s side) fill(rows, cols int, x []float32) ops.Buf {
	s.t.Helper()
	b := s.alloc(rows, cols)
	s.be.Embed(b, s.upload(quant.F32, rows, cols, x), 1)
	return b
}

// read returns the contents of a buffer. It ends the step, and reads in a second one.
func (s side) read(b ops.Buf) []float32 {
	s.t.Helper()
	s.must(s.be.End())
	rows, cols := b.Shape()
	if r, ok := s.be.(*ref.Backend); ok {
		out := make([]float32, rows*cols)
		for i, v := range r.Values(b) {
			out[i] = float32(v)
		}
		return out
	}
	id := make([]float32, cols*cols)
	for i := range cols {
		id[i*cols+i] = 1
	}
	out := make([]float32, rows*cols)
	s.must(s.be.Begin(rowsOf(max(rows, 1))))
	s.be.Logits(out, b, s.upload(quant.F32, cols, cols, id), 0)
	s.must(s.be.End())
	return out
}

// normal returns n random numbers.
func normal(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// check compares with a bound for each element; NaN fails.
func check(t *testing.T, what string, got, want []float32, bound func(i int) float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= bound(i)) {
			t.Fatalf("%s: element %d is %g, want %g: off by %.3g, bound %.3g", what, i, got[i], want[i], d, bound(i))
		}
	}
}

// relative is a bound of n roundings of the value itself.
func relative(want []float32, n float64) func(int) float64 {
	return func(i int) float64 { return n*eps*math.Abs(float64(want[i])) + 1e-37 }
}

// policies are the ways to split that a backend must support.
var policies = []plan.Policy{plan.Auto(), plan.None(), plan.Fixed(32), plan.Splits(3)}
