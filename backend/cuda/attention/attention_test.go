package attention

import (
	"fmt"
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
	for i, lens := range [][]int32{{3000, 1, 17, 0, 200, 64}, {3000, 3000, 3000, 3000, 3000, 3000}, {0, 0, 0, 0, 0, 1}, {2999, 2000, 100, 50, 1, 0}} {
		for _, pol := range []plan.Policy{plan.Auto(), plan.Fixed(96)} {
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
