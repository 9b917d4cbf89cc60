package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// testBatchInvariance: under a fixed policy the attention of a sequence's token is the same bits decoded alone, in a
// batch with others, and as part of a prompt; and so is a product, whatever the number of rows.
func testBatchInvariance(t *testing.T, o Options) {
	for _, window := range []int{0, 50} {
		c := scene{
			layout: ops.KVLayout{Layers: 1, KVHeads: 2, HeadDim: 64, Type: quant.F16, PageSize: 16}, qHeads: 6,
			kvLens: []int{200, 90, 333}, qLens: []int{1, 1, 1}, policy: plan.Fixed(64),
			att: ops.Attention{Scale: 0.125, Window: window},
		}
		c.size(o)
		const row = 6 * 64
		s := newPair(t, o).got
		together := c.run(s)
		c.qLens = []int{200, 90, 333}
		prompts := c.run(s)
		for i, at := range []int{199, 289, 622} {
			sameBits(t, fmt.Sprintf("window %d: sequence %d as a prompt", window, i), prompts[at*row:(at+1)*row], together[i*row:(i+1)*row])
		}
		alone := c
		alone.kvLens, alone.qLens = []int{200}, []int{1}
		alone.size(o)
		sameBits(t, fmt.Sprintf("window %d: sequence 0 alone", window), alone.run(s), together[:row])
	}
	for _, typ := range allTypes {
		const k, n = 512, 80
		s := newPair(t, o).got
		x := normal(1, 40*k)
		w := s.upload(typ, n, k, normal(2, n*k))
		product := func(m int) []float32 {
			s.must(s.be.Begin(rowsOf(m)))
			in, y := s.fill(m, k, x[:m*k]), s.alloc(m, n)
			s.be.Linear(in, []ops.Projection{{W: w, Y: y}})
			return s.read(y)
		}
		all := product(40)
		for _, m := range []int{1, 2, 3, 4, 7, 8, 11} {
			sameBits(t, fmt.Sprintf("%v: %d rows", typ, m), product(m), all[:m*n])
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: element %d is %x, want %x", what, i, got[i], want[i])
			return
		}
	}
}

// testRefusals: what can't work is an error of the call or of End, never a panic.
func testRefusals(t *testing.T, o Options) {
	s := newPair(t, o).got
	if _, err := s.be.Upload("short", quant.Q8_0, 4, 64, make([]byte, 10)); err == nil {
		t.Error("a tensor shorter than its shape was accepted")
	}
	if _, err := s.be.Upload("ragged", quant.Q4_K, 1, 100, make([]byte, 144)); err == nil {
		t.Error("columns that are no multiple of the block were accepted")
	}
	for _, l := range []ops.KVLayout{
		{}, {Layers: 1, KVHeads: 1, HeadDim: 64, Pages: 1, PageSize: 16, Type: quant.Q4_K},
		{Layers: 1, KVHeads: 1, HeadDim: 40, Pages: 1, PageSize: 16, Type: quant.Q8_0},
		{Layers: 1, KVHeads: 1, HeadDim: 64, Pages: 0, PageSize: 16, Type: quant.F16},
	} {
		if _, err := s.be.NewKV(l); err == nil {
			t.Errorf("cache %+v was accepted", l)
		}
	}
	if _, err := s.be.Alloc(0, 5); err == nil {
		t.Error("a buffer without rows was accepted")
	}
	s.must(s.be.Begin(rowsOf(1)))
	x, y := s.fill(1, 64, normal(1, 64)), s.alloc(1, 8)
	s.be.Linear(x, []ops.Projection{{W: s.upload(quant.F32, 8, 32, normal(2, 8*32)), Y: y}})
	if s.be.End() == nil {
		t.Error("a product of mismatched sizes ended without an error")
	}
}
