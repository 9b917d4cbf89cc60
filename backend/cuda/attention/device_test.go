package attention

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/fake"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/oracle"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/verify"
	"github.com/flashdecode/flashdecode/backend/cuda/kvmem"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestDevice runs everything that needs real kernels, on the first GPU, or skips.
func TestDevice(t *testing.T) {
	drv, ctx := verify.Open(t)
	r := &rig{t: t, ctx: ctx}
	var err error
	r.stream, err = ctx.NewStream(cuda.NormalPriority)
	must(t, err)
	r.ks, err = Load(ctx)
	must(t, err)
	var c verify.Count
	for _, x := range []struct {
		name string
		test func(t *testing.T, r *rig)
	}{
		{"oracle", deviceOracle}, {"attends", attends}, {"lengths", deviceLengths}, {"groups", deviceGroups}, {"pages", devicePages},
		{"logits", deviceLogits}, {"queries", deviceQueries}, {"faults", faultCases}, {"graph", graphs}, {"invariance", deviceInvariance},
		{"reruns", deviceReruns}, {"chain", deviceChain}, {"flat", deviceFlat}, {"million", deviceMillion}, {"huge pool", deviceHugePool},
		{"prefill", prefills}, {"append", appends}, {"copy", copies}, {"latent", latents}, {"pairs", pairs}, {"planner", devicePlanner}, {"items", deviceItems}, {"reset", deviceReset}, {"cost", deviceCost},
	} {
		c.Run(t, x.name, func(t *testing.T) {
			sub := *r
			sub.t, sub.bufs = t, nil
			x.test(t, &sub)
			for _, b := range sub.bufs {
				must(t, b.Close())
			}
		})
	}
	must(t, c.Write(drv, ctx.Device(), r.ks.Images()))
	must(t, r.ks.Close())
	must(t, r.stream.Close())
	must(t, ctx.Close())
}

// deviceOracle checks what the other tests are checked with.
func deviceOracle(t *testing.T, r *rig) {
	o := oracle.New(r.ks)
	const n = 1 << 14
	p := r.alloc(2 * n)
	for _, first := range []int64{0, 1 << 33} {
		must(t, o.Fill(r.stream, "bf16", p, n, first, 5, 3))
		for i, b := range download[uint16](r, p, n) {
			if want := quant.F32ToBF16(oracle.Unit(5, uint64(first)+uint64(i)) * 3); b != want {
				t.Fatalf("bf16 %d: %#x, want %#x", i, b, want)
			}
		}
		must(t, o.Fill(r.stream, "f16", p, n, first, 5, 3))
		for i, b := range download[uint16](r, p, n) {
			if want := quant.F32ToF16(oracle.Unit(5, uint64(first)+uint64(i)) * 3); b != want {
				t.Fatalf("f16 %d: %#x, want %#x", i, b, want)
			}
		}
	}
	for i, s := range []scene{
		{cfg: okConfig(), lens: []int32{300, 0}}, {cfg: okConfig(), lens: []int32{5, 77}, cap: 2, sinks: []float32{1, 2, 3, 4, 5, 6, 7, -60}},
		{cfg: Config{QHeads: 6, KVHeads: 2, HeadDim: 96, PageSize: 24, Seqs: 2, KVLen: 300, QLen: 4}, lens: []int32{2, 200}, qLens: []int32{4, 3}, window: &attn.Window{Left: 30, Right: -1}},
	} {
		s.build(r, uint64(i))
		p := r.plan(s.cfg)
		s.run(r, p)
		heads, rows := s.cfg.QHeads, s.rows
		scores, out, lse := r.alloc(int64(rows*heads*300*8)), r.alloc(int64(rows*heads*s.cfg.HeadDim*4)), r.alloc(int64(rows*heads*4))
		must(t, o.Reference(r.stream, "bf16", p.Args(), s.step.Seqs, s.step.QLen, 300, scores, out, lse))
		got, gotLSE := download[float32](r, out, rows*heads*s.cfg.HeadDim), download[float32](r, lse, rows*heads)
		for _, call := range s.calls {
			want, err := attn.Reference(call)
			must(t, err)
			for j, w := range want.Out {
				if d := math.Abs(float64(got[j] - w)); !(d <= 1e-6) {
					t.Fatalf("scene %d: output %d is %v, want %v", i, j, got[j], w)
				}
			}
			for j, w := range want.LSE {
				if g := gotLSE[j]; g != w && !(math.Abs(float64(g-w)) <= 1e-5) {
					t.Fatalf("scene %d: LSE %d is %v, want %v", i, j, g, w)
				}
			}
			got, gotLSE = got[len(want.Out):], gotLSE[len(want.LSE):]
		}
	}
}

// everyVariant calls f with the ways to compute the same.
func everyVariant(f func(v Variant, pol plan.Policy)) {
	f(Naive, plan.Auto())
	f(NoSplit, plan.None())
	f(Split2, plan.Auto())
	f(Split2, plan.Fixed(64))
	f(Split1, plan.Auto())
	f(Split1, plan.Splits(3))
	f(Split1, plan.Splits(7))
	f(Split1, plan.Fixed(128))
}

// attempt builds and checks a scene under every variant.
func attempt(t *testing.T, r *rig, s scene, seed uint64) {
	t.Helper()
	everyVariant(func(v Variant, pol plan.Policy) {
		s := s
		s.cfg.Variant, s.cfg.Policy = v, pol
		s.build(r, seed)
		p := r.plan(s.cfg)
		s.run(r, p)
		s.check(r, fmt.Sprintf("%v %v %+v lens %v queries %v: %v", v, pol, s.cfg, s.lens, s.qLens, p.Choice()))
	})
}

// deviceLengths has lengths around every boundary: pages, tiles, warps × tiles, chunks.
func deviceLengths(t *testing.T, r *rig) {
	for i, n := range []int32{0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 2047, 2048, 2049} {
		c := Config{QHeads: 8, KVHeads: 2, HeadDim: 128, PageSize: 16, Seqs: 4, KVLen: 2100}
		attempt(t, r, scene{cfg: c, lens: []int32{n}}, uint64(i))
		c.Address = []Address{Contiguous, Flat}[i%2]
		attempt(t, r, scene{cfg: c, lens: []int32{n, 0, 2100 - n, 1}}, uint64(100+i))
	}
}

// deviceGroups has 1 to 16 query heads a KV head, at every compiled head dimension and some between.
func deviceGroups(t *testing.T, r *rig) {
	dims := []int{64, 128, 256, 96, 80, 8, 200, 112}
	for g := 1; g <= 16; g++ {
		for j, typ := range [][2]Type{{BF16, BF16}, {F16, F16}, {BF16, E4M3}} {
			c := Config{QHeads: 2 * g, KVHeads: 2, HeadDim: dims[(g+j)%len(dims)], PageSize: 16, Seqs: 2, KVLen: 600, Type: typ[0], KVType: typ[1]}
			if c.KVType == E4M3 {
				c.HeadDim = (c.HeadDim + 15) / 16 * 16
			}
			attempt(t, r, scene{cfg: c, lens: []int32{513, 40}}, uint64(g))
		}
	}
}

// devicePages has page sizes that no tile divides, and large ones.
func devicePages(t *testing.T, r *rig) {
	for i, size := range []int{1, 2, 5, 8, 16, 17, 24, 32, 64, 100, 128, 256} {
		c := Config{QHeads: 8, KVHeads: 2, HeadDim: 128, PageSize: size, Seqs: 3, KVLen: 800, Address: []Address{BlockTable, Flat}[i%2]}
		attempt(t, r, scene{cfg: c, lens: []int32{int32(size), int32(size + 1), int32(max(size-1, 700))}, ragged: i%3 == 0}, uint64(i))
	}
}

// deviceLogits scales queries until logits reach ±6e4: valid numbers, not masks.
func deviceLogits(t *testing.T, r *rig) {
	for _, scale := range []float32{1e-3, 30, 2000} {
		everyVariant(func(v Variant, pol plan.Policy) {
			s := scene{cfg: okConfig(), lens: []int32{300, 33}}
			s.cfg.Variant, s.cfg.Policy = v, pol
			s.build(r, 9)
			s.layer.Scale = scale
			for _, c := range s.calls {
				c.Scale = scale
			}
			p := r.plan(s.cfg)
			s.run(r, p)
			s.check(r, fmt.Sprintf("scale %v, %v %v", scale, v, pol))
		})
	}
}

// deviceQueries has several query tokens, more of them than tokens too, with every option.
func deviceQueries(t *testing.T, r *rig) {
	for i, lens := range [][]int32{{1, 2, 7, 8}, {300, 0, 17, 5}, {64, 65, 128, 1}} {
		for j, o := range []scene{{}, {window: &attn.Window{Left: 19, Right: -1}}, {cap: 5}, {sinks: make([]float32, 12)}, {window: &attn.Window{Left: 40, Right: 0}, cap: 9}} {
			s := o
			s.cfg = Config{QHeads: 12, KVHeads: 4, HeadDim: 128, PageSize: 16, Seqs: 4, KVLen: 300, QLen: 8}
			s.lens, s.qLens, s.ragged = lens, []int32{8, 1, 3, 7}, (i+j)%2 == 0
			attempt(t, r, s, uint64(10*i+j))
		}
	}
}

// output returns what a scene computed, as bits.
func (s *scene) output(r *rig) ([]uint16, []uint32) {
	return download[uint16](r, s.layer.Out, s.rows*s.cfg.QHeads*s.cfg.HeadDim), download[uint32](r, s.layer.LSE, s.rows*s.cfg.QHeads)
}

// deviceReruns repeats a hundred times and wants the same bits.
func deviceReruns(t *testing.T, r *rig) {
	everyVariant(func(v Variant, pol plan.Policy) {
		s := scene{cfg: Config{QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 16, Seqs: 2, KVLen: 5000, Variant: v, Policy: pol}, lens: []int32{4999, 777}}
		s.build(r, 1)
		p := r.plan(s.cfg)
		s.run(r, p)
		out, lse := s.output(r)
		for i := range 100 {
			s.run(r, p)
			if o, l := s.output(r); !slices.Equal(o, out) || !slices.Equal(l, lse) {
				t.Fatalf("%v %v: run %d differs", v, pol, i)
			}
		}
	})
}

// deviceInvariance wants a sequence's bits to be the same alone, in a batch and anywhere in it, under Fixed.
func deviceInvariance(t *testing.T, r *rig) {
	for _, v := range []Variant{Split1, Split2} {
		var want []uint16
		for i, lens := range [][]int32{{3001}, {3001, 7, 2999}, {1, 3001}, {500, 500, 500, 3001, 4000}} {
			at := slices.Index(lens, 3001)
			s := scene{cfg: Config{QHeads: 8, KVHeads: 2, HeadDim: 128, PageSize: 16, Seqs: 5, KVLen: 4000, Variant: v, Policy: plan.Fixed(512)}, lens: lens}
			s.build(r, 7)
			n := 8 * 128
			// The same queries and tokens as in the first batch, wherever its sequence stands in this one.
			fill := func(base Ptr, stride int64, seed uint64, count int64) {
				must(t, oracle.New(r.ks).Fill(r.stream, "bf16", base+Ptr(int64(at)*stride), count, 0, seed, 1))
			}
			fill(s.layer.Q, int64(2*n), 1, int64(n))
			s.cfg.Address = BlockTable
			table := download[int32](r, s.step.Table, 250*len(lens))
			for j := range 250 {
				if page := table[at*250+j]; page < 1<<29 {
					bytes := int64(16 * 2 * 128 * 2)
					must(t, oracle.New(r.ks).Fill(r.stream, "bf16", s.layer.K+Ptr(int64(page)*bytes), bytes/2, int64(j)<<20, 2, 1))
					must(t, oracle.New(r.ks).Fill(r.stream, "bf16", s.layer.V+Ptr(int64(page)*bytes), bytes/2, int64(j)<<20, 3, 1))
				}
			}
			p := r.plan(s.cfg)
			s.run(r, p)
			out, _ := s.output(r)
			out = out[at*n : (at+1)*n]
			if i == 0 {
				want = out
			} else if !slices.Equal(out, want) {
				t.Errorf("%v: batch %v differs from the sequence alone", v, lens)
			}
		}
	}
}

// deviceChain runs a chain of dependent launches and wants the bits of ordinary ones.
func deviceChain(t *testing.T, r *rig) {
	for _, lens := range [][]int32{{100}, {1000}, {20000}, {300, 301, 302, 303, 304, 305, 306, 307, 308}} {
		var want []uint16
		for _, chained := range []bool{false, true} {
			s := scene{cfg: Config{QHeads: 16, KVHeads: 2, HeadDim: 128, PageSize: 16, Seqs: 9, KVLen: 20000, Chained: chained}, lens: lens}
			s.build(r, 3)
			p := r.plan(s.cfg)
			must(t, p.Begin(r.stream, &s.step))
			for range 20 {
				must(t, p.Run(r.stream, &s.layer))
			}
			must(t, r.stream.Synchronize())
			s.check(r, fmt.Sprintf("chained %v, lens %v: %v", chained, lens, p.Choice()))
			out, _ := s.output(r)
			if want == nil {
				want = out
			} else if !slices.Equal(out, want) {
				t.Errorf("lens %v: a chain computes other bits", lens)
			}
		}
	}
}

// deviceFlat attends in mapped ranges of which two share a prefix, with nothing mapped behind the last page.
func deviceFlat(t *testing.T, r *rig) {
	const page, heads, dim = 64, 2, 128
	layers := 64 // so that a page is 2 × 64 × 2 × 64 × 128 × 2 bytes: two granules
	rowBytes := int64(dim * 2)
	pageBytes := int64(layers) * 2 * heads * page * rowBytes
	m, err := kvmem.New(r.ctx, kvmem.Config{PageBytes: pageBytes, Pages: 8, Ranges: 2, RangePages: 6, Ahead: 1})
	must(t, err)
	defer func() { must(t, m.Close()) }()
	must(t, m.Bind(0, 0, []int32{5, 2, 7}))
	must(t, m.Bind(1, 0, []int32{5, 2, 0, 1}))
	o := oracle.New(r.ks)
	for p := range int32(8) {
		if a, err := m.Address(p); p != 3 && p != 4 && p != 6 {
			must(t, err)
			must(t, o.Fill(r.stream, "bf16", a, pageBytes/2, int64(p)<<32, 1, 1))
		}
	}
	c := Config{QHeads: 16, KVHeads: heads, HeadDim: dim, PageSize: page, Seqs: 2, KVLen: 6 * page, Address: Flat}
	layer := 3
	kOff := int64(layer) * 2 * heads * page * rowBytes
	q := r.alloc(2 * 16 * dim * 2)
	must(t, o.Fill(r.stream, "bf16", q, 2*16*dim, 0, 9, 1))
	step := Step{Seqs: 2, KVLen: upload(r, []int32{3 * page, 4*page - 5}), SeqBase: upload(r, []uint64{uint64(m.Base(0)), uint64(m.Base(1))})}
	y := Layer{Q: q, Out: r.alloc(2 * 16 * dim * 2), LSE: r.alloc(2 * 16 * 4), K: Ptr(kOff), V: Ptr(kOff + heads*page*rowBytes),
		PageStride: m.PageBytes(), HeadStride: int(page * rowBytes), TokenStride: int(rowBytes)}
	r.compare(t, "flat", r.plan(c), &step, &y, 2, 1, 6*page)
}

// compare attends and compares with the reference on the device.
func (r *rig) compare(t *testing.T, what string, p *Plan, step *Step, y *Layer, seqs, qLen, maxLen int) {
	t.Helper()
	c := p.Config()
	must(t, errors.Join(p.Begin(r.stream, step), p.Run(r.stream, y), r.stream.Synchronize()))
	rows, n := seqs*qLen*c.QHeads, seqs*qLen*c.QHeads*c.HeadDim
	scores, want, wantLSE := r.alloc(int64(rows)*int64(maxLen)*8), r.alloc(int64(n*4)), r.alloc(int64(rows*4))
	must(t, oracle.New(r.ks).Reference(r.stream, c.KVType.String(), p.Args(), seqs, qLen, int64(maxLen), scores, want, wantLSE))
	got, ref := download[uint16](r, y.Out, n), download[float32](r, want, n)
	if e := frobenius(halves(BF16, got), ref); !(e <= errorBound(BF16)) {
		t.Errorf("%s: relative error %.3g: %v", what, e, p.Choice())
	}
	lse, refLSE := download[float32](r, y.LSE, rows), download[float32](r, wantLSE, rows)
	for i, w := range refLSE {
		if d := math.Abs(float64(lse[i]) - float64(w)); lse[i] != w && !(d <= 1e-5+1e-6*math.Abs(float64(w))) {
			t.Errorf("%s: LSE %d is %v, want %v: %v", what, i, lse[i], w, p.Choice())
			return
		}
	}
}

// pool attends one sequence whose pages are numbered by table in a pool of random numbers.
func (r *rig) pool(t *testing.T, what string, c Config, pages int64, table []int32, n int) {
	t.Helper()
	o := oracle.New(r.ks)
	pageBytes := int64(c.PageSize * c.KVHeads * c.HeadDim * 2)
	k, v := r.alloc(pages*pageBytes), r.alloc(pages*pageBytes)
	must(t, o.Fill(r.stream, "bf16", k, pages*pageBytes/2, 0, 1, 1))
	must(t, o.Fill(r.stream, "bf16", v, pages*pageBytes/2, 0, 2, 1))
	q := r.alloc(int64(c.QHeads * c.HeadDim * 2))
	must(t, o.Fill(r.stream, "bf16", q, int64(c.QHeads*c.HeadDim), 0, 3, 1))
	step := Step{Seqs: 1, KVLen: upload(r, []int32{int32(n)}), Table: upload(r, table), TableStride: len(table)}
	y := Layer{Q: q, Out: r.alloc(int64(c.QHeads * c.HeadDim * 2)), LSE: r.alloc(int64(c.QHeads * 4)), K: k, V: v}
	for _, variant := range []Variant{Split1, Split2, NoSplit, Naive} {
		c := c
		c.Variant = variant
		r.compare(t, fmt.Sprintf("%s, %v", what, variant), r.plan(c), &step, &y, 1, 1, c.KVLen)
	}
}

// deviceMillion attends 1,048,576 tokens.
func deviceMillion(t *testing.T, r *rig) {
	const n = 1 << 20
	table := make([]int32, n/16)
	for i := range table {
		table[i] = int32(i * 37 % len(table))
	}
	r.pool(t, "a million tokens", Config{QHeads: 8, KVHeads: 2, HeadDim: 128, PageSize: 16, Seqs: 1, KVLen: n}, n/16, table, n)
}

// deviceHugePool has pages past 2^31 elements and 2^32 bytes.
func deviceHugePool(t *testing.T, r *rig) {
	c := Config{QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 16, Seqs: 1, KVLen: 4096}
	pages := int64(1<<31)/(16*8*128) + 300
	table := make([]int32, 256)
	for i := range table {
		table[i] = int32(pages - 1 - int64(i))
	}
	r.pool(t, "a pool of more than 2^31 elements", c, pages, table, 4001)
}

// deviceReset leaves rubbish in the mailbox, as a launch that was cut off does, and recovers.
func deviceReset(t *testing.T, r *rig) {
	s := scene{cfg: okConfig(), lens: []int32{300, 299}}
	s.cfg.Policy = plan.Splits(4)
	s.build(r, 1)
	p := r.plan(s.cfg)
	s.run(r, p)
	must(t, r.stream.Fill(Ptr(p.layout.mailbox.at(p.workspace)), 0x3c, p.layout.mailbox.bytes))
	must(t, r.stream.Fill(Ptr(p.layout.counters.at(p.workspace)), 0x3c, p.layout.counters.bytes))
	must(t, p.Reset(r.stream))
	s.run(r, p)
	s.check(r, "after Reset")
}

// deviceCost times what a call costs the host. It only says: a test must not depend on time.
func deviceCost(t *testing.T, r *rig) {
	s := scene{cfg: Config{QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 16, Seqs: 1, KVLen: 4096}, lens: []int32{512}}
	s.build(r, 1)
	p := r.plan(s.cfg)
	s.run(r, p)
	const n = 500
	var begin, run time.Duration
	for range n {
		start := time.Now()
		must(t, p.Begin(r.stream, &s.step))
		mid := time.Now()
		must(t, p.Run(r.stream, &s.layer))
		begin, run = begin+mid.Sub(start), run+time.Since(mid)
		if done, err := r.stream.Done(); err != nil || !done {
			must(t, r.stream.Synchronize())
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		if err := errors.Join(p.Begin(r.stream, &s.step), p.Run(r.stream, &s.layer)); err != nil {
			t.Fatal(err)
		}
	})
	must(t, r.stream.Synchronize())
	t.Logf("host cost of a call: Begin %v, Run %v, %v allocations", begin/n, run/n, allocs)
	if allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
}

// devicePlanner wants the device's plans to be package plan's, item for item, and attention over them to be right.
func devicePlanner(t *testing.T, r *rig) {
	rng := rand.New(rand.NewPCG(4, 2))
	for i := range 60 {
		c := Config{QHeads: 32, KVHeads: []int{8, 2, 1, 32}[i%4], HeadDim: 128, PageSize: []int{16, 64, 1, 24}[i/4%4], Seqs: 1 + rng.IntN(300), KVLen: 1 << (8 + rng.IntN(10)), QLen: 1 + rng.IntN(4)}
		c.Seqs = max(c.Seqs, 2)
		c.Policy = []plan.Policy{plan.Auto(), plan.Auto(), plan.Fixed(1 + rng.IntN(2000)), plan.Splits(1 + rng.IntN(20))}[rng.IntN(4)]
		p := r.plan(c)
		lens, qLens, qIndptr := make([]int32, c.Seqs), make([]int32, c.Seqs), make([]int32, c.Seqs+1)
		for b := range lens {
			lens[b] = int32(float64(c.KVLen) * math.Pow(rng.Float64(), float64(1+i%6)))
			qLens[b] = int32(rng.IntN(c.QLen + 1))
			qIndptr[b+1] = qIndptr[b] + qLens[b]
		}
		p.params.KVLen, p.params.QIndptr = uint64(upload(r, lens)), uint64(upload(r, qIndptr))
		p.step = Step{Seqs: c.Seqs, QLen: c.QLen}
		must(t, p.runItems(r.stream))
		h := download[abi.PlanHeader](r, Ptr(p.items.params.Header), 1)[0]
		want, err := fake.Planned(&p.items.params, qLens, lens)
		must(t, err)
		what := fmt.Sprintf("%d: %+v", i, c)
		if h.Status != 0 || int(h.ItemCount) != len(want.Items) || int(h.MergeCount) != len(want.Merges) || int(h.States) != want.States {
			t.Fatalf("%s: %+v, want %d items, %d merges, %d States", what, h, len(want.Items), len(want.Merges), want.States)
		}
		if !slices.Equal(download[plan.Item](r, Ptr(p.items.params.Items), len(want.Items)), want.Items) ||
			!slices.Equal(download[plan.Merge](r, Ptr(p.items.params.Merges), len(want.Merges)), want.Merges) {
			t.Fatalf("%s: other items or merges", what)
		}
	}
}

// deviceItems attends batches that are cut on the device, in one captured graph for all of them.
func deviceItems(t *testing.T, r *rig) {
	c := Config{QHeads: 16, KVHeads: 4, HeadDim: 128, PageSize: 16, Seqs: 5, KVLen: 6000, Uneven: true}
	p := r.plan(c)
	for f := range p.families {
		p.families[f].choice = choice{only: 1 << plan.CombineItems}
	}
	for i, lens := range [][]int32{{6000, 1, 17, 0, 200}, {0, 0, 0, 0, 1}, {6000, 6000, 6000, 6000, 6000}, {15, 16, 17, 5999, 4096}} {
		s := scene{cfg: c, lens: lens}
		s.build(r, uint64(i))
		s.step.Lens = nil
		g, err := r.stream.Capture(func() error {
			return errors.Join(p.Begin(r.stream, &s.step), p.Run(r.stream, &s.layer), p.Run(r.stream, &s.layer))
		})
		must(t, err)
		exec, err := g.Instantiate()
		must(t, errors.Join(err, g.Close()))
		must(t, errors.Join(exec.Launch(r.stream), exec.Launch(r.stream), r.stream.Synchronize(), exec.Close()))
		s.check(r, fmt.Sprintf("items, lens %v: %v", lens, p.Choice()))
	}
}
