package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/plan"
)

// TestPlansComputeAttention runs plans with attn and compares with its reference: what a backend does.
func TestPlansComputeAttention(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	shape := plan.Shape{QHeads: 6, KVHeads: 2, HeadDim: 8, PageSize: 4, TokenBytes: 64, Causal: true}
	lim := plan.CPU(3)
	lim.MinTokens = 4
	for _, window := range []int{-1, 9} {
		for _, tile := range []int{0, 1, 3} {
			lim.QTile = tile
			for _, pol := range []plan.Policy{plan.Auto(), plan.None(), plan.Fixed(8), plan.Splits(5)} {
				var calls []*attn.Call
				var seqs []plan.Seq
				for _, s := range []plan.Seq{{QLen: 1, KVLen: 61}, {QLen: 7, KVLen: 40}, {QLen: 1, KVLen: 0}, {QLen: 5, KVLen: 3}, {QLen: 2, KVLen: 16}} {
					c := randomCall(rng, shape, s, window)
					s.First = int32(firstToken(c))
					calls, seqs = append(calls, c), append(seqs, s)
				}
				var pl plan.Planner
				var p plan.Plan
				if err := pl.Plan(&p, shape, seqs, lim, pol); err != nil {
					t.Fatal(err)
				}
				for b, got := range execute(&p, shape, calls) {
					compare(t, fmt.Sprintf("policy=%v/tile=%d/window=%d/seq=%d", pol, tile, window, b), calls[b], got)
				}
			}
		}
	}
}

// firstToken is the first token that any row attends.
func firstToken(c *attn.Call) int {
	first := c.KVLen
	for i := range c.QLen {
		if lo, hi := c.Range(i); lo < hi {
			first = min(first, lo)
		}
	}
	return first
}

func randomCall(rng *rand.Rand, shape plan.Shape, s plan.Seq, window int) *attn.Call {
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	view := func() attn.View {
		return attn.View{Data: normal(int(s.KVLen) * shape.KVHeads * shape.HeadDim), Dim: shape.HeadDim,
			TokenStride: shape.KVHeads * shape.HeadDim, HeadStride: shape.HeadDim}
	}
	return &attn.Call{
		Shape:   attn.Shape{QHeads: shape.QHeads, KVHeads: shape.KVHeads, HeadDim: shape.HeadDim},
		Options: attn.Options{Causal: shape.Causal, Window: &attn.Window{Left: window, Right: 0}},
		Q:       normal(int(s.QLen) * shape.QHeads * shape.HeadDim), QLen: int(s.QLen),
		KV: attn.Tensors{K: view(), V: view()}, KVLen: int(s.KVLen),
	}
}

// execute claims the items of p in order, keeps the States in their slots, then merges.
func execute(p *plan.Plan, shape plan.Shape, calls []*attn.Call) []attn.Result {
	group := shape.QHeads / shape.KVHeads
	results := make([]attn.Result, len(calls))
	for b, c := range calls {
		results[b] = attn.Result{Out: make([]float32, c.QLen*c.QHeads*c.HeadDim), LSE: make([]float32, c.QLen*c.QHeads)}
		for i := range results[b].LSE {
			results[b].LSE[i] = float32(math.NaN()) // every row must be written
		}
	}
	finish := func(seq, row, head int32, st attn.State) {
		at := int(row)*shape.QHeads + int(head)
		out := results[seq].Out[at*shape.HeadDim : (at+1)*shape.HeadDim]
		results[seq].LSE[at] = attn.Finish(st, out)
	}
	slots := make([]attn.State, p.States)
	each := func(rows int32, f func(r, g int32)) {
		for r := range rows {
			for g := range int32(group) {
				f(r, g)
			}
		}
	}
	for _, it := range p.Items {
		each(it.Rows, func(r, g int32) {
			head := it.KVHead*int32(group) + g
			st := attn.Partial(calls[it.Seq], int(it.Row+r), int(head), int(it.First), int(it.First+it.Count))
			if it.State < 0 {
				finish(it.Seq, it.Row+r, head, st)
			} else {
				slots[it.State+r*int32(group)+g] = st
			}
		})
	}
	for _, m := range p.Merges {
		each(m.Rows, func(r, g int32) {
			st := attn.NewState(shape.HeadDim)
			for s := range m.Splits {
				attn.Merge(&st, slots[m.State+(s*m.Rows+r)*int32(group)+g])
			}
			finish(m.Seq, m.Row+r, m.KVHead*int32(group)+g, st)
		})
	}
	return results
}

func compare(t *testing.T, name string, c *attn.Call, got attn.Result) {
	t.Helper()
	want, err := attn.Reference(c)
	if err != nil {
		t.Fatal(err)
	}
	tols, err := attn.Bound(c, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	for row, tol := range tols {
		if e := math.Abs(float64(got.LSE[row]) - float64(want.LSE[row])); !(e <= tol.LSE || got.LSE[row] == want.LSE[row]) {
			t.Fatalf("%s row %d: LSE %v, want %v", name, row, got.LSE[row], want.LSE[row])
		}
		for d := row * c.HeadDim; d < (row+1)*c.HeadDim; d++ {
			if e := math.Abs(float64(got.Out[d]) - float64(want.Out[d])); !(e <= tol.Out) {
				t.Fatalf("%s row %d: out %v, want %v", name, row, got.Out[d], want.Out[d])
			}
		}
	}
}

// One sequence, three KV heads, two threads: unsplit, one thread would have two of the three heads.
func ExamplePlanner_Plan() {
	shape := plan.Shape{QHeads: 9, KVHeads: 3, HeadDim: 64, PageSize: 16, TokenBytes: 2 * 64 * 2, Causal: true}
	var pl plan.Planner // keep both: they reuse their memory
	var p plan.Plan
	if err := pl.Plan(&p, shape, []plan.Seq{{QLen: 1, KVLen: 1000}}, plan.CPU(2), plan.Auto()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(&p)
	fmt.Printf("%.1f waves, workspace %d bytes, imbalance %.2f\n", p.Waves(), p.WorkspaceBytes, p.Imbalance)
	// Output:
	//   item  seq  head  rows  first  tokens  state
	//      0    0     0   0+1    496     504      3
	//      1    0     1   0+1    496     504      9
	//      2    0     2   0+1    496     504     15
	//      3    0     0   0+1      0     496      0
	//      4    0     1   0+1      0     496      6
	//      5    0     2   0+1      0     496     12
	// 3.0 waves, workspace 4752 bytes, imbalance 1.00
}

func BenchmarkPlan(b *testing.B) {
	shape := plan.Shape{QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 16, TokenBytes: 512, Causal: true}
	for _, batch := range []int{1, 8, 256} {
		rng := rand.New(rand.NewPCG(1, 1))
		seqs := make([]plan.Seq, batch)
		for i := range seqs {
			seqs[i] = plan.Seq{QLen: 1, KVLen: int32(1 + rng.IntN(32768))}
		}
		for name, lim := range map[string]plan.Limits{"cpu:2": plan.CPU(2), "h200": plan.H200()} {
			b.Run(fmt.Sprintf("device=%s/b=%d", name, batch), func(b *testing.B) {
				var pl plan.Planner
				var p plan.Plan
				b.ReportAllocs()
				for b.Loop() {
					if err := pl.Plan(&p, shape, seqs, lim, plan.Auto()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
