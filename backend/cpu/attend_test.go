package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// attendOnce appends the tokens of one sequence to each cache, a prompt and then one token, and returns what the last
// token attends to in each, all caches in the same steps. What a cache holds depends on its layout alone.
func attendOnce(t *testing.T, tokens int, caches []ops.KVLayout) (outs [][]float32) {
	t.Helper()
	b, err := New(Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	random := func(l ops.KVLayout, heads, rows, seed int) ops.Buf {
		x, err := b.Alloc(rows, heads*l.HeadDim)
		must(err)
		rng := rand.New(rand.NewPCG(uint64(l.HeadDim*l.KVHeads), uint64(seed)))
		for i := range rows {
			for j, row := 0, x.(*buf).row(i); j < len(row); j++ {
				row[j] = float32(rng.NormFloat64())
			}
		}
		return x
	}
	var kvs []ops.KV
	for _, l := range caches {
		kv, err := b.NewKV(l)
		must(err)
		kvs = append(kvs, kv)
	}
	table := make([]int32, caches[0].Pages)
	for i := range table {
		table[i] = int32(i)
	}
	for _, span := range [][2]int{{0, tokens - 1}, {tokens - 1, tokens}} {
		rows := span[1] - span[0]
		step := &ops.Batch{
			QIndptr: []int32{0, int32(rows)}, KVLens: []int32{int32(span[1])},
			PageIndptr: []int32{0, int32(len(table))}, PageIndices: table, Policy: plan.Policy{Mode: plan.ModeSplits, N: 4},
		}
		for i := range rows {
			step.Tokens, step.Positions = append(step.Tokens, 0), append(step.Positions, int32(span[0]+i))
		}
		must(b.Begin(step))
		outs = outs[:0]
		for i, l := range caches {
			const group = 3
			q, k, v := random(l, group*l.KVHeads, rows, 1), random(l, l.KVHeads, rows, 2), random(l, l.KVHeads, rows, 3)
			dst, err := b.Alloc(rows, group*l.KVHeads*l.HeadDim)
			must(err)
			b.RopeAppend(q, k, v, kvs[i], 0, nil)
			b.Attend(dst, q, kvs[i], 0, &ops.Attention{Scale: 0.125})
			outs = append(outs, append([]float32(nil), dst.(*buf).row(rows-1)...))
		}
		must(b.End())
	}
	return outs
}

// TestCachesOfTwoShapes: a step may attend to caches of different shapes, whose work differs in heads, in the
// length of States and in the bytes of a token, by which splits are chosen.
func TestCachesOfTwoShapes(t *testing.T) {
	const tokens = 700
	caches := []ops.KVLayout{
		{Layers: 1, KVHeads: 2, HeadDim: 64, Pages: 44, PageSize: 16, Type: quant.F16},
		{Layers: 1, KVHeads: 5, HeadDim: 32, Pages: 44, PageSize: 16, Type: quant.Q8_0},
		{Layers: 1, KVHeads: 1, HeadDim: 128, Pages: 44, PageSize: 16, Type: quant.F32},
		{Layers: 1, KVHeads: 2, HeadDim: 64, Pages: 44, PageSize: 16, Type: quant.F16}, // the first again
	}
	all := attendOnce(t, tokens, caches)
	for i := range caches {
		alone := attendOnce(t, tokens, caches[i:i+1])[0]
		if at := differs(all[i], alone); at >= 0 {
			t.Errorf("cache %d %+v: output %d is %v among others, %v alone", i, caches[i], at, all[i][at], alone[at])
		}
	}
}
