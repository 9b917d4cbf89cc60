package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/plan"
)

// TestAttends runs shapes, types, addressing modes, options and policies on the fake device.
func TestAttends(t *testing.T) { attends(t, newRig(t)) }

func attends(t *testing.T, r *rig) {
	type options struct {
		window *attn.Window
		cap    float32
		sinks  bool
	}
	seed := uint64(0)
	for i, c := range []Config{
		{QHeads: 8, KVHeads: 2, HeadDim: 64, PageSize: 16},
		{QHeads: 6, KVHeads: 2, HeadDim: 72, PageSize: 64, Type: F16, KVType: F16},
		{QHeads: 16, KVHeads: 1, HeadDim: 128, PageSize: 16, Address: Flat},
		{QHeads: 5, KVHeads: 1, HeadDim: 256, PageSize: 32, Address: Contiguous},
		{QHeads: 14, KVHeads: 2, HeadDim: 96, PageSize: 24},
		{QHeads: 4, KVHeads: 4, HeadDim: 64, PageSize: 5, Address: Flat, Type: F16, KVType: F16},
		{QHeads: 8, KVHeads: 1, HeadDim: 64, PageSize: 16, KVType: E4M3},
	} {
		for j, lens := range [][]int32{{1}, {200}, {0, 15, 16, 17, 128, 129}, {333, 2, 64}} {
			for k, o := range []options{{}, {window: &attn.Window{Left: 20, Right: -1}}, {cap: 3}, {sinks: true}} {
				if r.drv != nil && testing.Short() && (i+j+k)%4 != 0 {
					continue
				}
				c, s := c, scene{lens: lens, window: o.window, cap: o.cap, ragged: (i+j)%2 == 0}
				c.Seqs, c.KVLen = 6, 350
				c.Policy = []plan.Policy{{}, plan.None(), plan.Fixed(48), plan.Splits(3)}[(i+j+k)%4]
				c.Checked, c.Pages = k == 1, 1000
				if c.Policy.Mode == plan.ModeAuto {
					c.Variant = []Variant{Auto, Split1, Split2, Naive}[(i+j)%4]
				}
				if o.sinks {
					s.sinks = make([]float32, c.QHeads)
				}
				if (i+k)%3 == 0 {
					c.QLen = 4
					for b := range lens {
						s.qLens = append(s.qLens, int32(1+(b+j)%4))
					}
				}
				s.cfg = c
				seed++
				s.build(r, seed)
				p := r.plan(c)
				s.run(r, p)
				s.check(r, fmt.Sprintf("%+v lens %v: %v", c, lens, p.Choice()))
				if err := p.Fault(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestChoices runs each combine that there is, by batches that it is best for.
func TestChoices(t *testing.T) {
	for _, c := range []struct {
		spec  cudatest.Spec
		cfg   Config
		lens  []int32
		want  plan.Combine
		splat int
	}{
		{cudatest.H200(), Config{Seqs: 1, KVLen: 40}, []int32{40}, plan.CombineNone, 1},
		{cudatest.H200(), Config{Seqs: 1, KVLen: 512}, []int32{512}, plan.CombineCluster, 8},
		{cudatest.H200(), Config{Seqs: 1, KVLen: 5000}, []int32{1100}, plan.CombineCluster, 16},
		{cudatest.H200(), Config{Seqs: 1, KVLen: 1200, Policy: plan.Splits(5)}, []int32{1200}, plan.CombineMailbox, 5},
		{cudatest.A100(), Config{Seqs: 1, KVLen: 1200}, []int32{1200}, plan.CombineMailbox, 19},
		{cudatest.H200(), Config{Seqs: 3, KVLen: 700, Policy: plan.Fixed(256)}, []int32{700, 0, 256}, plan.CombineChunk, 3},
		{cudatest.H200(), Config{Seqs: 1, KVLen: 1000, Variant: Split2}, []int32{1000}, plan.CombineSecond, 8},
		{cudatest.H200(), Config{Seqs: 1, KVLen: 1000, Variant: Split2}, []int32{9}, plan.CombineSecond, 1},
		{cudatest.H200(), Config{Seqs: 3, KVLen: 600, Variant: Split2, Policy: plan.Fixed(64)}, []int32{600, 0, 70}, plan.CombineSecond, 10},
		{cudatest.H200(), Config{Seqs: 2, KVLen: 700, Variant: NoSplit}, []int32{700, 3}, plan.CombineNone, 1},
	} {
		t.Run(fmt.Sprintf("%v on %s", c.want, c.spec.Name), func(t *testing.T) {
			r := newRig(t, c.spec)
			c.cfg.QHeads, c.cfg.KVHeads, c.cfg.HeadDim, c.cfg.PageSize = 8, 2, 128, 16
			s := scene{cfg: c.cfg, lens: c.lens}
			s.build(r, 1)
			p := r.plan(c.cfg)
			s.run(r, p)
			if got := p.Choice(); got.Combine != c.want || got.Splits != c.splat {
				t.Errorf("%v, want %v P%d", got, c.want, c.splat)
			}
			s.check(r, fmt.Sprint(c))
		})
	}
}

// TestMailboxFits checks that the boxes of every resident launch have room, however pairs and CTAs trade off.
func TestMailboxFits(t *testing.T) {
	r := newRig(t)
	for _, c := range []Config{
		{QHeads: 8, KVHeads: 1, HeadDim: 128, PageSize: 16, Seqs: 40, KVLen: 1 << 16},
		{QHeads: 12, KVHeads: 4, HeadDim: 64, PageSize: 16, Seqs: 3, QLen: 8, KVLen: 1 << 16},
		{QHeads: 3, KVHeads: 1, HeadDim: 256, PageSize: 16, Seqs: 7, QLen: 2, KVLen: 1 << 12},
	} {
		p := r.plan(c)
		tried := 0
		for seqs := 1; seqs <= c.Seqs; seqs++ {
			for qLen := 1; qLen <= max(c.QLen, 1); qLen++ {
				for n := 2; n <= 132; n++ {
					p.cfg.Policy = plan.Splits(n)
					p.step = Step{Seqs: seqs, QLen: qLen}
					p.maxLen, p.tokens = c.KVLen, int64(seqs)*int64(c.KVLen)
					p.families[1].choice.valid = false
					must(t, p.choose(&p.families[1]))
					if p.choice.launch.Combine != plan.CombineMailbox {
						continue
					}
					tried++
					p.launchParams()
					boxes := int64(seqs<<p.choice.rowTilesLog2) * int64(c.KVHeads)
					if need := boxes * int64(p.params.BoxStride); need > p.layout.mailbox.bytes {
						t.Fatalf("%+v: %d sequences of %d rows in %d CTAs need %d bytes of %d", c, seqs, qLen, n, need, p.layout.mailbox.bytes)
					}
				}
			}
		}
		if tried < 50 {
			t.Errorf("%+v: only %d launches tried", c, tried)
		}
	}
}

// TestItems runs batches that are cut on the device, of any lengths within the capacities, and finds room for them.
func TestItems(t *testing.T) {
	r := newRig(t)
	for i, lens := range [][]int32{{2999, 2000, 100, 50, 1, 0}, {3000, 3000, 3000, 3000, 3000, 3000}, {0, 0, 0, 0, 0, 1}, {3000, 1, 17, 0, 200, 64}} {
		for _, pol := range []plan.Policy{plan.Auto(), plan.Fixed(96)} {
			if testing.Short() && i%2 == 1 {
				continue
			}
			s := scene{cfg: Config{QHeads: 8, KVHeads: 2, HeadDim: 64, PageSize: 16, Seqs: 6, KVLen: 3000, QLen: 3, Uneven: true, Policy: pol}, lens: lens}
			if i%2 == 1 {
				s.qLens = []int32{3, 1, 2, 3, 1, 1}
			}
			s.build(r, uint64(i))
			s.step.Lens = nil
			p := r.plan(s.cfg)
			for f := range p.families { // whatever is cheapest
				p.families[f].choice = choice{only: 1 << plan.CombineItems}
			}
			s.run(r, p)
			s.check(r, fmt.Sprintf("%v, lens %v: %v", pol, lens, p.Choice()))
			if pol.Mode == plan.ModeAuto && p.Choice().Combine != plan.CombineItems {
				t.Errorf("%v", p.Choice())
			}
		}
	}
}

// TestPrefill runs prompts, chunks behind a cached prefix, and both beside decoding sequences, in one launch.
func TestPrefill(t *testing.T) {
	prefills(t, newRig(t))
	prefills(t, newRig(t, cudatest.A100()))
}

func prefills(t *testing.T, r *rig) {
	for i, c := range []Config{
		{QHeads: 8, KVHeads: 2, HeadDim: 128, PageSize: 16},
		{QHeads: 5, KVHeads: 1, HeadDim: 64, PageSize: 5, Type: F16, KVType: F16},
		{QHeads: 6, KVHeads: 2, HeadDim: 96, PageSize: 64, Address: Flat},
		{QHeads: 2, KVHeads: 2, HeadDim: 256, Address: Contiguous},
	} {
		for j, lens := range [][2][]int32{{{100}, {100}}, {{300, 1, 64, 257}, {130, 1, 64, 1}}, {{0, 5}, {1, 9}}} {
			for k, o := range []scene{{}, {window: &attn.Window{Left: 50, Right: -1}}, {cap: 4}, {sinks: make([]float32, c.QHeads)}} {
				if r.drv != nil && ((i+j+k)%2 == 1 || testing.Short() && (i+j)%3 != 0) {
					continue // Go is slow
				}
				s := o
				s.cfg, s.lens, s.qLens = c, lens[0], lens[1]
				s.cfg.Seqs, s.cfg.KVLen, s.cfg.QLen, s.cfg.Variant = 4, 300, 300, Prefill
				s.cfg.Checked, s.cfg.Pages = k == 1, 1000
				s.build(r, uint64(100*i+10*j+k))
				p := r.plan(s.cfg)
				s.run(r, p)
				s.check(r, fmt.Sprintf("prefill %+v lens %v", s.cfg, lens))
			}
		}
	}
}

// TestAppend writes tokens into caches of every addressing and reads them back by attention, and copies a page.
func TestAppend(t *testing.T) { appends(t, newRig(t)) }

func appends(t *testing.T, r *rig) {
	for i, a := range []Address{BlockTable, Contiguous, Flat} {
		for j, pairs := range []int{0, 32, 16, 5} {
			c := Config{QHeads: 4, KVHeads: 2, HeadDim: 64, PageSize: 16, Seqs: 3, KVLen: 60, Address: a}
			s := scene{cfg: c, lens: []int32{60, 1, 33}}
			s.build(r, uint64(i))
			var pos []int32
			var q, k, v []float32
			freq := make([]float32, pairs)
			for f := range freq {
				freq[f] = float32(math.Pow(10000, -float64(f)/float64(max(pairs, 1))))
			}
			qIndptr, rng := []int32{0}, rand.New(rand.NewPCG(1, uint64(j)))
			for _, call := range s.calls { // all tokens anew
				n := call.KVLen
				kv := attn.Tensors{K: s.view(normal(rng, n*2*64)), V: s.view(normal(rng, n*2*64))}
				call.KV = kv
				k, v = append(k, kv.K.Data...), append(v, kv.V.Data...)
				q = append(q, normal(rng, n*4*64)...)
				for p := range n {
					pos = append(pos, int32(p))
				}
				qIndptr = append(qIndptr, int32(len(pos)))
			}
			qb, kb, vb := store(BF16, q), store(BF16, k), store(BF16, v)
			step := s.step
			step.QIndptr = upload(r, qIndptr)
			ap, err := r.ks.NewAppender(c)
			must(t, err)
			x := Append{Rows: len(pos), Q: upload(r, qb), K: upload(r, kb), V: upload(r, vb), Positions: upload(r, pos), Pairs: pairs, Interleaved: j == 2}
			if pairs > 0 {
				x.InvFreq = upload(r, freq)
			}
			must(t, ap.Run(r.stream, &step, &s.layer, &x))
			s.rotate(k, freq, j == 2)
			s.checkAppended(r, k, v, qIndptr)
		}
	}
}

// rotate turns the pairs of all keys in place: the reference, from the definition.
func (s *scene) rotate(k []float32, freq []float32, interleaved bool) {
	at := 0
	for _, call := range s.calls {
		for p := range call.KVLen {
			for range s.cfg.KVHeads {
				x := k[at : at+s.cfg.HeadDim]
				for i, f := range freq {
					a, b := i, i+len(freq)
					if interleaved {
						a, b = 2*i, 2*i+1
					}
					sin, cos := math.Sincos(float64(p) * float64(f))
					u, v := float64(x[a]), float64(x[b])
					x[a], x[b] = float32(u*cos-v*sin), float32(u*sin+v*cos)
				}
				at += s.cfg.HeadDim
			}
		}
	}
	store(BF16, k)
}

// checkAppended attends the last token of each sequence with what was appended.
func (s *scene) checkAppended(r *rig, k, v []float32, qIndptr []int32) {
	for b, call := range s.calls {
		from, to := int(qIndptr[b])*s.cfg.KVHeads*s.cfg.HeadDim, int(qIndptr[b+1])*s.cfg.KVHeads*s.cfg.HeadDim
		call.KV = attn.Tensors{K: s.view(k[from:to]), V: s.view(v[from:to])}
	}
	p := r.plan(s.cfg)
	s.run(r, p)
	s.check(r, fmt.Sprintf("appended, %v", s.cfg.Address))
}

// TestCopy copies pages of a pool.
func TestCopy(t *testing.T) { copies(t, newRig(t)) }

func copies(t *testing.T, r *rig) {
	const page, n = 48, 5
	pool := make([]byte, page*n)
	for i := range pool {
		pool[i] = byte(i / page)
	}
	p := upload(r, pool)
	c, err := r.ks.NewCopier()
	must(t, err)
	must(t, c.Run(r.stream, p, page, upload(r, []int32{4, 0}), upload(r, []int32{1, 3}), 2))
	got := download[byte](r, p, page*n)
	for i, b := range got {
		if want := []byte{3, 1, 2, 3, 1}[i/page]; b != want {
			t.Fatalf("byte %d is %d, want %d", i, b, want)
		}
	}
	if err := c.Run(r.stream, p, 6, p, p, 1); err == nil {
		t.Error("pages of 6 bytes")
	}
}
