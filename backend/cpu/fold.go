package cpu

import (
	"math"

	"github.com/flashdecode/flashdecode/internal/simd/kvdot"
	"github.com/flashdecode/flashdecode/plan"
)

// span is query rows of one sequence and KV head, and the tokens to fold into their States.
type span struct {
	seq, head   int
	row, tokens int // first query token, and how many of them; each is group rows
	first, end  int // tokens of the cache
}

// Chunk computes one block or one item.
func (t *attendTask) Chunk(worker, i int) {
	s, w := t.scratch[worker], t.work
	dim := t.kv.layout.HeadDim
	if i < len(w.blocks) {
		bl := &w.blocks[i]
		sp := t.span(int(bl.seq), int(bl.head), int(bl.row), int(bl.rows))
		t.block(s, sp, s.state)
		t.finish(sp, s.state)
		return
	}
	it := &w.plan.Items[i-len(w.blocks)]
	sp := t.span(int(w.seqOf[it.Seq]), int(it.KVHead), int(it.Row), int(it.Rows))
	sp.first, sp.end = int(it.First), int(it.First+it.Count)
	n := sp.tokens * t.group
	state := s.state
	if it.State >= 0 {
		state = w.states[int(it.State)*stateLen(dim):]
	}
	t.load(s, sp)
	empty(state, n, dim)
	t.fold(s, sp, state)
	if it.Merge < 0 {
		t.finish(sp, state)
		return
	}
	t.arrive(int(it.Merge), sp)
}

// span returns all tokens that rows [row, row+tokens) of a sequence see.
func (t *attendTask) span(seq, head, row, tokens int) span {
	pos := int(t.b.batch.KVLens[seq]) - t.b.batch.QLen(seq) + row
	return span{seq, head, row, tokens, first(pos, t.att.Window), pos + tokens}
}

// load scales the queries of sp into s.
func (t *attendTask) load(s *foldScratch, sp span) {
	n := t.group * t.kv.layout.HeadDim
	for i := range sp.tokens {
		r := int(t.b.batch.QIndptr[sp.seq]) + sp.row + i
		q := t.q.row(r)[sp.head*n : (sp.head+1)*n]
		for j, x := range q {
			s.q[i*n+j] = x * t.att.Scale
		}
	}
}

// block folds everything the rows see. Under a fixed policy it does so chunk by chunk and merges the chunks' States
// in order, as the merge of planned items does: a token's result is then the same bits whether it came in a prompt or
// was decoded alone.
func (t *attendTask) block(s *foldScratch, sp span, state []float32) {
	n, dim := sp.tokens*t.group, t.kv.layout.HeadDim
	t.load(s, sp)
	empty(state, n, dim)
	size := t.chunkTokens()
	if size == 0 {
		t.fold(s, sp, state)
		return
	}
	grow(&s.part, n*stateLen(dim))
	for at, end := sp.first/size*size, sp.end; at < end; at += size {
		sp.first, sp.end = max(sp.first, at), min(at+size, end)
		empty(s.part, n, dim)
		t.fold(s, sp, s.part)
		t.merge(state, s.part, n)
	}
}

// chunkTokens is the length of the pieces of a fixed policy, 0 for any other.
func (t *attendTask) chunkTokens() int {
	p, page := t.b.batch.Policy, t.kv.layout.PageSize
	if p.Mode != plan.ModeFixed {
		return 0
	}
	return (p.N + page - 1) / page * page
}

// fold folds tokens [first, end) into the States of sp's rows, each row taking those it may see. The leaves cut tokens
// into stripes from where the tiles begin; under a fixed policy that is the start of the piece, whatever the window of
// the rows, so that the arithmetic of a row does not depend on the rows beside it.
func (t *attendTask) fold(s *foldScratch, sp span, state []float32) {
	l := &t.kv.layout
	base := sp.first / tileTokens * tileTokens
	if size := t.chunkTokens(); size > 0 {
		base = sp.first / size * size
	}
	if l.PageSize%tileTokens == 0 {
		t.foldTiles(s, sp, state, base, sp.end)
		return
	}
	// Pages that do not hold whole tiles: one at a time, since token numbers jump at their ends.
	for at := sp.first / l.PageSize * l.PageSize; at < sp.end; at += l.PageSize {
		t.foldTiles(s, sp, state, at, min(at+l.PageSize, sp.end))
	}
}

// foldTiles folds the tiles that hold tokens [base, end), of which the first starts a tile.
func (t *attendTask) foldTiles(s *foldScratch, sp span, state []float32, base, end int) {
	b := t.b.batch
	n, dim := sp.tokens*t.group, t.kv.layout.HeadDim
	s.off = t.kv.tiles(s.off[:0], t.kv.pages(b, sp.seq), t.layer, sp.head, base, end)
	pos := int(b.KVLens[sp.seq]) - b.QLen(sp.seq) + sp.row
	for i := range sp.tokens {
		lo := max(sp.first, base, first(pos+i, t.att.Window)) - base
		hi := max(min(end, pos+i+1)-base, lo)
		for g := range t.group {
			s.lo[i*t.group+g], s.hi[i*t.group+g] = int32(lo), int32(hi)
		}
	}
	s.item = kvdot.Item{
		Rows: n, Q: s.q, Base: t.kv.base(), Off: s.off, Lo: s.lo, Hi: s.hi, Softcap: t.att.Softcap,
		M: state[:n], L: state[n : 2*n], O: state[2*n : n*stateLen(dim)],
	}
	t.kv.kernels.Fold(&s.item, &s.kvdot)
}

// arrive notes that one more State of a merge is there. The last one to arrive merges all, in the order of the plan,
// so that the result does not depend on who was last.
func (t *attendTask) arrive(merge int, sp span) {
	w := t.work
	if w.pending[merge].Add(-1) > 0 {
		return
	}
	n, dim := sp.tokens*t.group, t.kv.layout.HeadDim
	m, size := &w.plan.Merges[merge], n*stateLen(dim)
	states := w.states[int(m.State)*stateLen(dim):]
	for i := 1; i < int(m.Splits); i++ {
		t.merge(states, states[i*size:], n)
	}
	t.finish(sp, states)
}

// merge is attn.Merge of n rows' States: both are rescaled to the larger reference and added.
func (t *attendTask) merge(dst, src []float32, n int) {
	dim := t.kv.layout.HeadDim
	for r := range n {
		m := max(dst[r], src[r])
		if math.IsInf(float64(m), -1) {
			continue // both empty: -Inf - -Inf would be NaN
		}
		a := float32(math.Exp(float64(dst[r] - m)))
		b := float32(math.Exp(float64(src[r] - m)))
		dst[r] = m
		dst[n+r] = a*dst[n+r] + b*src[n+r]
		o := dst[2*n+r*dim : 2*n+(r+1)*dim]
		t.b.vec.Scale(o, a)
		t.b.vec.AddScaled(o, src[2*n+r*dim:2*n+(r+1)*dim], b)
	}
}

// finish normalises the States of sp's rows into the output. Sinks join the denominator here, once.
func (t *attendTask) finish(sp span, state []float32) {
	n, dim := sp.tokens*t.group, t.kv.layout.HeadDim
	for r := range n {
		row := int(t.b.batch.QIndptr[sp.seq]) + sp.row + r/t.group
		h := sp.head*t.group + r%t.group
		out := t.dst.row(row)[h*dim : (h+1)*dim]
		m, l, scale := float64(state[r]), float64(state[n+r]), 1.0
		if t.att.Sinks != nil {
			sink := float64(t.att.Sinks.(*weight).vector[h])
			top := max(m, sink)
			scale = math.Exp(m - top)
			l = l*scale + math.Exp(sink-top)
		}
		if l == 0 {
			clear(out) // nothing attended
			continue
		}
		copy(out, state[2*n+r*dim:2*n+(r+1)*dim])
		t.b.vec.Scale(out, float32(scale/l))
	}
}

// tiles appends the offsets of the tiles that hold tokens [base, end) of a head; base starts a tile, and the range
// stays within a page unless pages hold whole tiles.
func (c *kv) tiles(dst []int64, p seqPages, layer, head, base, end int) []int64 {
	size := c.layout.PageSize
	for at := base; at < end; {
		in := at % size
		off := c.offset(p, at/size, layer, head) + int64(in/tileTokens*c.tileBytes)
		for stop := min(at-in+size, end); at < stop; at += tileTokens {
			dst = append(dst, off)
			off += int64(c.tileBytes)
		}
	}
	return dst
}
