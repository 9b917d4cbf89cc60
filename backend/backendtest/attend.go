package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// scene is a cache filled with random tokens of a few sequences, and queries for their last ones.
type scene struct {
	layout  ops.KVLayout
	qHeads  int
	kvLens  []int // tokens of each sequence
	qLens   []int // of which so many are queried
	att     ops.Attention
	sinks   []float32
	rope    *ops.Rope
	policy  plan.Policy
	scatter int // pages of a sequence are that many numbers apart
}

// noPage stands in the entries of a table that are past its tokens.
const noPage = 1 << 30

// table returns the pages of sequence s: interleaved with the other sequences', in no order.
func (c *scene) table(s int) []int32 {
	need := (c.kvLens[s] + c.layout.PageSize - 1) / c.layout.PageSize
	var t []int32
	for i := range need {
		t = append(t, int32((i*len(c.kvLens)+s)*c.scatter%c.layout.Pages))
	}
	return t
}

// size sets the number of pages, prime to scatter so that no two pages of the scene coincide, and flat mode.
func (c *scene) size(o Options) {
	most := 0
	for s := range c.kvLens {
		most = max(most, (c.kvLens[s]+c.layout.PageSize-1)/c.layout.PageSize)
	}
	c.layout.Pages = most*len(c.kvLens) + 1
	c.scatter = 1
	for _, s := range []int{7, 5, 3} {
		if c.layout.Pages%s != 0 {
			c.scatter = s
			break
		}
	}
	if o.Flat {
		c.layout.Ranges, c.layout.RangePages = len(c.kvLens)+1, most
	}
}

// batch is a step in which sequence s brings tokens [lo[s], hi[s]).
func (c *scene) batch(lo, hi []int) *ops.Batch {
	b := &ops.Batch{QIndptr: []int32{0}, PageIndptr: []int32{0}, Policy: c.policy}
	for s := range c.kvLens {
		for p := lo[s]; p < hi[s]; p++ {
			b.Tokens = append(b.Tokens, int32(len(b.Tokens)))
			b.Positions = append(b.Positions, int32(p))
		}
		b.QIndptr = append(b.QIndptr, int32(len(b.Tokens)))
		b.KVLens = append(b.KVLens, int32(hi[s]))
		b.PageIndices = append(append(b.PageIndices, c.table(s)[:(hi[s]+c.layout.PageSize-1)/c.layout.PageSize]...), noPage)
		b.PageIndptr = append(b.PageIndptr, int32(len(b.PageIndices)))
		b.Ranges = append(b.Ranges, int32(s+1))
	}
	return b
}

// bind maps the pages of a batch where the cache is flat.
func (c *scene) bind(s side, kv ops.KV, b *ops.Batch) {
	binder, ok := kv.(ops.Binder)
	if !ok {
		return
	}
	for i := range b.Seqs() {
		s.must(binder.Unbind(b.Ranges[i]))
		n := (int(b.KVLens[i]) + c.layout.PageSize - 1) / c.layout.PageSize
		s.must(binder.Bind(b.Ranges[i], 0, b.Table(i)[:n]))
	}
}

// row is the random vector of a sequence's token: kind 0 q, 1 k, 2 v.
func (c *scene) row(kind, s, pos, n int) []float32 {
	x := normal(uint64(kind)<<40|uint64(s)<<32|uint64(pos), n)
	if kind == 0 {
		for i := range x {
			x[i] *= 2 // scores of deviation 2: rescaling happens
		}
	}
	return x
}

// rows concatenates the vectors of a batch's rows.
func (c *scene) rows(kind int, b *ops.Batch, n int) []float32 {
	var x []float32
	for s := range c.kvLens {
		for r := b.QIndptr[s]; r < b.QIndptr[s+1]; r++ {
			x = append(x, c.row(kind, s, int(b.Positions[r]), n)...)
		}
	}
	return x
}

// step runs RopeAppend and Attend of tokens [lo, hi), with k and v times poison, and returns the output's buffer.
func (c *scene) step(s side, kv ops.KV, lo, hi []int, poison float32) ops.Buf {
	b := c.batch(lo, hi)
	s.must(b.Check(kv.Layout()))
	qn, kn := c.qHeads*c.layout.HeadDim, c.layout.KVHeads*c.layout.HeadDim
	k, v := c.rows(1, b, kn), c.rows(2, b, kn)
	for i := range k {
		k[i], v[i] = k[i]*poison, v[i]*poison
	}
	n := b.Rows()
	c.bind(s, kv, b)
	s.must(s.be.Begin(b))
	q, kb, vb := s.fill(n, qn, c.rows(0, b, qn)), s.fill(n, kn, k), s.fill(n, kn, v)
	dst := s.alloc(n, qn)
	att := c.att
	if c.sinks != nil {
		att.Sinks = s.upload(quant.F32, 1, c.qHeads, c.sinks)
	}
	layer := c.layout.Layers - 1
	s.be.RopeAppend(q, kb, vb, kv, layer, c.rope)
	s.be.Attend(dst, q, kv, layer, &att)
	s.must(s.be.End())
	return dst
}

// run fills the cache up to the queried tokens, then returns the attention of those.
func (c *scene) run(s side) []float32 {
	kv, err := s.be.NewKV(c.layout)
	s.must(err)
	lo, hi := make([]int, len(c.kvLens)), make([]int, len(c.kvLens))
	for i := range lo {
		hi[i] = c.kvLens[i] - c.qLens[i]
	}
	if slices.Max(hi) > 0 {
		c.step(s, kv, lo, hi, 1)
	}
	return s.read(c.step(s, kv, hi, c.kvLens, 1))
}

// attendBound: scores err by (dim+2)·eps·Σ|q·k|, here of deviation 2·√dim·…, which the softmax turns into a relative
// error of the weights of the same size; Q8_0 keys also see the rounding of the query. Values are of deviation 1, so
// an absolute bound in units of eps holds for every element; the factor is √-like in the tokens.
func (c *scene) bound() func(int) float64 {
	b := 1e-5
	if c.layout.Type == quant.Q8_0 {
		b = 6e-3
	}
	return func(int) float64 { return b }
}

func testAttend(t *testing.T, o Options) {
	type shape struct{ q, kv, dim int }
	shapes := []shape{{6, 2, 64}, {4, 1, 128}, {5, 1, 32}, {3, 3, 96}, {2, 1, 256}, {12, 1, 32}} // few columns: read costs their square
	lens := [][2][]int{                                                                          // kvLens, qLens
		{{1}, {1}}, {{16}, {1}}, {{17}, {1}}, {{500}, {1}}, {{300, 1, 33, 64}, {1, 1, 1, 1}},
		{{40}, {40}}, {{130, 70}, {9, 70}}, {{50, 200}, {1, 65}},
	}
	for ti, typ := range ops.KVTypes() {
		for i, l := range lens {
			for j, sh := range shapes {
				if o.Few && (ti+i+j)%3 != 0 || testing.Short() && (ti+2*i+j)%4 != 0 {
					continue
				}
				c := scene{
					layout: ops.KVLayout{Layers: 2, KVHeads: sh.kv, HeadDim: sh.dim, Type: typ, PageSize: []int{16, 1, 24, 64, 5}[(i+j)%5]},
					qHeads: sh.q, kvLens: l[0], qLens: l[1], policy: policies[(i+2*j)%len(policies)],
					att: ops.Attention{Scale: float32(1 / math.Sqrt(float64(sh.dim)))},
				}
				switch (i + j) % 4 {
				case 1:
					c.att.Window = 37
				case 2:
					c.att.Softcap = 4
				case 3:
					c.sinks = normal(77, sh.q)
				}
				c.size(o)
				p := newPair(t, o)
				got, want := p.both(c.run)
				check(t, fmt.Sprintf("%v %+v lens %v page %d %v %+v", typ, sh, l, c.layout.PageSize, c.policy, c.att), got, want, c.bound())
			}
		}
	}
}

func testRope(t *testing.T, o Options) {
	inv := []float32{1, 0.3, 0.05, 1e-3, 0.7, 0.01, 0.2, 2e-4}
	for _, r := range []*ops.Rope{nil, {InvFreq: inv, Interleaved: true}, {InvFreq: inv}, {InvFreq: inv[:4], Scale: 1.3}} {
		c := scene{
			layout: ops.KVLayout{Layers: 1, KVHeads: 2, HeadDim: 16, Type: quant.F32, PageSize: 16}, qHeads: 4,
			kvLens: []int{80, 3}, qLens: []int{30, 3}, rope: r, att: ops.Attention{Scale: 0.25},
		}
		c.size(o)
		p := newPair(t, o)
		got, want := p.both(c.run)
		check(t, fmt.Sprintf("%+v", r), got, want, c.bound())
	}
}

// testPoison writes NaN behind the tokens that count, then attends without them.
func testPoison(t *testing.T, o Options) {
	for _, typ := range ops.KVTypes() {
		for _, n := range []int{1, 15, 16, 17, 63, 100} {
			c := scene{
				layout: ops.KVLayout{Layers: 1, KVHeads: 2, HeadDim: 64, Type: typ, PageSize: 32}, qHeads: 6,
				kvLens: []int{n + 40}, qLens: []int{40}, att: ops.Attention{Scale: 0.125}, policy: plan.Splits(2),
			}
			c.size(o)
			p := newPair(t, o)
			got, want := p.both(func(s side) []float32 {
				kv, err := s.be.NewKV(c.layout)
				s.must(err)
				nan := float32(math.NaN())
				c.step(s, kv, []int{0}, []int{n + 40}, nan)             // all tokens are NaN
				c.step(s, kv, []int{0}, []int{n}, 1)                    // the first n are good again
				return s.read(c.step(s, kv, []int{n - 1}, []int{n}, 1)) // and only they are read
			})
			check(t, fmt.Sprintf("%v n=%d", typ, n), got, want, c.bound())
		}
	}
}

func testCopyPage(t *testing.T, o Options) {
	c := scene{
		layout: ops.KVLayout{Layers: 2, KVHeads: 1, HeadDim: 32, Type: quant.F16, PageSize: 16}, qHeads: 2,
		kvLens: []int{16}, qLens: []int{1}, att: ops.Attention{Scale: 0.2},
	}
	c.layout.Pages, c.scatter = 40, 1
	if o.Flat {
		c.layout.Ranges, c.layout.RangePages = 2, 2
	}
	p := newPair(t, o)
	got, want := p.both(func(s side) []float32 {
		kv, err := s.be.NewKV(c.layout)
		s.must(err)
		c.step(s, kv, []int{0}, []int{16}, 1)
		s.must(kv.CopyPage(39, 0))
		if err := kv.CopyPage(40, 0); err == nil && s.be != nil {
			s.t.Error("copied to a page that does not exist")
		}
		s.must(kv.Release([]int32{0}))
		b := c.batch([]int{15}, []int{16})
		b.PageIndices[0] = 39
		c.bind(s, kv, b)
		s.must(s.be.Begin(b))
		q, dst := s.fill(1, 64, c.row(0, 0, 15, 64)), s.alloc(1, 64)
		s.be.Attend(dst, q, kv, 1, &c.att)
		return s.read(dst)
	})
	check(t, "attention over the copy", got, want, c.bound())
}
