package ref

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// kv keeps rounded keys and values as float64, [page][layer][K|V][head][slot][dim]; a page exists once written.
type kv struct {
	layout ops.KVLayout
	pages  [][]float64
}

func (b *Backend) NewKV(l ops.KVLayout) (ops.KV, error) {
	if l.Layers < 1 || l.KVHeads < 1 || l.HeadDim < 1 || l.Pages < 1 || l.PageSize < 1 {
		return nil, fmt.Errorf("ref: cache of %+v", l)
	}
	if l.HeadDim%l.Type.BlockSize() != 0 {
		return nil, fmt.Errorf("ref: a head of %d is no multiple of %v's block of %d", l.HeadDim, l.Type, l.Type.BlockSize())
	}
	return &kv{l, make([][]float64, l.Pages)}, nil
}

func (c *kv) Layout() ops.KVLayout { return c.layout }
func (c *kv) PageBytes() int64     { return int64(8 * c.pageLen()) }
func (c *kv) Close() error         { c.pages = nil; return nil }

func (c *kv) pageLen() int {
	return 2 * c.layout.Layers * c.layout.KVHeads * c.layout.PageSize * c.layout.HeadDim
}

func (c *kv) CopyPage(dst, src int32) error {
	if n := int32(len(c.pages)); dst < 0 || dst >= n || src < 0 || src >= n {
		return fmt.Errorf("ref: copy of page %d to %d in a cache of %d", src, dst, n)
	}
	c.pages[dst] = append([]float64(nil), c.pages[src]...)
	return nil
}

func (c *kv) Release(pages []int32) error {
	for _, p := range pages {
		c.pages[p] = nil
	}
	return nil
}

// at returns the key (which = 0) or value (1) of a head at a token of a sequence.
func (c *kv) at(table []int32, layer, which, head, token int) []float64 {
	l := &c.layout
	p := table[token/l.PageSize]
	if c.pages[p] == nil {
		c.pages[p] = make([]float64, c.pageLen())
		for i := range c.pages[p] {
			c.pages[p][i] = math.NaN() // what was never written must not be read
		}
	}
	i := (((layer*2+which)*l.KVHeads+head)*l.PageSize + token%l.PageSize) * l.HeadDim
	return c.pages[p][i : i+l.HeadDim]
}

// store writes x as the cache's type keeps it.
func (c *kv) store(dst, x []float64) {
	f := make([]float32, len(x))
	for i, v := range x {
		f[i] = float32(v)
	}
	t := c.layout.Type
	packed := make([]byte, t.RowBytes(len(f)))
	if err := quant.Quantize(t, packed, f); err != nil {
		panic(err) // NewKV checked the type
	}
	if err := quant.Dequantize(t, f, packed); err != nil {
		panic(err)
	}
	for i, v := range f {
		dst[i] = float64(v)
	}
}

func (b *Backend) RopeAppend(q, k, v ops.Buf, cache ops.KV, layer int, rope *ops.Rope) {
	c := cache.(*kv)
	qb, kb, vb := q.(*buf), k.(*buf), v.(*buf)
	d := c.layout.HeadDim
	for s := range b.batch.Seqs() {
		for r := int(b.batch.QIndptr[s]); r < int(b.batch.QIndptr[s+1]); r++ {
			pos := int(b.batch.Positions[r])
			rotate(qb.row(r), d, pos, rope)
			rotate(kb.row(r), d, pos, rope)
			for h := range c.layout.KVHeads {
				c.store(c.at(b.batch.Table(s), layer, 0, h, pos), kb.row(r)[h*d:(h+1)*d])
				c.store(c.at(b.batch.Table(s), layer, 1, h, pos), vb.row(r)[h*d:(h+1)*d])
			}
		}
	}
}

// rotate turns the pairs of every head of row by pos·InvFreq.
func rotate(row []float64, headDim, pos int, rope *ops.Rope) {
	if rope == nil {
		return
	}
	scale := 1.0
	if rope.Scale != 0 {
		scale = float64(rope.Scale)
	}
	for h := 0; h < len(row); h += headDim {
		for i, f := range rope.InvFreq {
			a, b := h+i, h+i+len(rope.InvFreq)
			if rope.Interleaved {
				a, b = h+2*i, h+2*i+1
			}
			sin, cos := math.Sincos(float64(pos) * float64(f))
			x, y := row[a], row[b]
			row[a], row[b] = scale*(x*cos-y*sin), scale*(x*sin+y*cos)
		}
	}
}

func (b *Backend) Attend(dst, q ops.Buf, cache ops.KV, layer int, a *ops.Attention) {
	c := cache.(*kv)
	d, in := dst.(*buf), q.(*buf)
	d.rows = in.rows
	dim := c.layout.HeadDim
	heads := in.cols / dim
	group := heads / c.layout.KVHeads
	for s := range b.batch.Seqs() {
		for r := int(b.batch.QIndptr[s]); r < int(b.batch.QIndptr[s+1]); r++ {
			for h := range heads {
				sink := math.Inf(-1)
				if a.Sinks != nil {
					sink = float64(a.Sinks.(*weight).row(0)[h])
				}
				at := h * dim
				c.attend(d.row(r)[at:at+dim], in.row(r)[at:at+dim], b.batch.Table(s), layer, h/group, int(b.batch.Positions[r]), sink, a)
			}
		}
	}
}

// attend is softmax attention of one query head in three passes: scores, exponentials, weighted values. A token sees
// itself and what came before it.
func (c *kv) attend(out, q []float64, table []int32, layer, head, pos int, sink float64, a *ops.Attention) {
	first := 0
	if a.Window > 0 {
		first = max(0, pos-a.Window+1)
	}
	s := make([]float64, pos+1-first)
	top := sink
	for j := range s {
		sum := 0.0
		for i, v := range c.at(table, layer, 0, head, first+j) {
			sum += q[i] * v
		}
		s[j] = capped(float64(a.Scale)*sum, a.Softcap)
		top = math.Max(top, s[j])
	}
	total := math.Exp(sink - top)
	for j := range s {
		s[j] = math.Exp(s[j] - top)
		total += s[j]
	}
	clear(out)
	for j, p := range s {
		for i, v := range c.at(table, layer, 1, head, first+j) {
			out[i] += p / total * v
		}
	}
}
