package cpu

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/flashdecode/flashdecode/internal/pool"
	"github.com/flashdecode/flashdecode/internal/simd/kvdot"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
)

// Attend implements ops.Backend: one parallel region over the work items of the whole batch. Sequences that bring
// few rows are planned (package plan): their keys and values are split, and the States of the pieces merged. Those
// that bring many, prompts, have work enough in blocks of rows and are not split.
func (b *Backend) Attend(dst, q ops.Buf, cache ops.KV, layer int, a *ops.Attention) {
	t := &b.attend
	t.dst, t.q, t.kv, t.layer, t.att = dst.(*buf), q.(*buf), cacheOf(cache), layer, a
	l := &t.kv.layout
	heads := t.q.cols / l.HeadDim
	if t.q.cols%l.HeadDim != 0 || heads%l.KVHeads != 0 || t.dst.cols != t.q.cols {
		b.fail(fmt.Errorf("cpu: attention of %d columns over %d heads of %d into %d columns", t.q.cols, l.KVHeads, l.HeadDim, t.dst.cols))
		return
	}
	t.group, t.dst.rows = heads/l.KVHeads, t.q.rows
	w, err := t.workFor(a.Window, plan.Shape{
		QHeads: heads, KVHeads: l.KVHeads, HeadDim: l.HeadDim, PageSize: l.PageSize,
		TokenBytes: 2 * l.Type.RowBytes(l.HeadDim), Causal: true,
	})
	if err != nil {
		b.fail(err)
		return
	}
	t.work = w
	for i := range w.plan.Merges {
		w.pending[i].Store(w.plan.Merges[i].Splits)
	}
	b.pool.Run(t.region, len(w.blocks)+len(w.plan.Items))
}

// attendTask is the attention of one layer.
type attendTask struct {
	b       *Backend
	region  *pool.Region
	dst, q  *buf
	kv      *kv
	layer   int
	att     *ops.Attention
	group   int // query heads of a KV head
	limits  plan.Limits
	planner plan.Planner
	seqs    []plan.Seq // those that are planned
	works   []work     // by window and shape
	work    *work
	scratch []*foldScratch
}

// work is what all layers with the same window and the same shape share during a step.
type work struct {
	window  int
	shape   plan.Shape
	step    uint64
	blocks  []block
	plan    plan.Plan
	seqOf   []int32        // [planned sequences] their numbers in the batch
	pending []atomic.Int32 // [merges] how many States are not there yet
	states  []float32      // the plan's State slots

	reserved int         // sequences that the arrays are large enough for
	policy   plan.Policy // and the policy
}

// block is consecutive rows of one sequence that brings many, for one KV head.
type block struct{ seq, head, row, rows, tokens int32 }

// A sequence whose rows, times the group, are at most plannedRows is planned. Otherwise its rows are cut into blocks
// of about blockRows query vectors: enough to reuse what is loaded of K and V, few enough to stay in the caches.
const (
	plannedRows = 64
	blockRows   = 48
)

func (t *attendTask) init(b *Backend) {
	t.b, t.region, t.limits = b, pool.NewRegion(t), plan.CPU(b.pool.Workers())
	for range b.pool.Workers() {
		t.scratch = append(t.scratch, new(foldScratch))
	}
}

// workFor returns the work of layers with that window and shape, planned at the first of them in a step. A step may
// attend to several caches.
func (t *attendTask) workFor(window int, shape plan.Shape) (*work, error) {
	i := slices.IndexFunc(t.works, func(w work) bool { return w.window == window && w.shape == shape })
	if i < 0 {
		i = len(t.works)
		t.works = append(t.works, work{window: window, shape: shape})
	}
	w := &t.works[i]
	if w.step == t.b.step {
		return w, nil
	}
	if err := t.plan(w); err != nil {
		return nil, err
	}
	w.step = t.b.step
	return w, nil
}

// plan cuts the batch into items and blocks.
func (t *attendTask) plan(w *work) error {
	batch, l := t.b.batch, &t.kv.layout
	t.seqs, w.seqOf, w.blocks = t.seqs[:0], w.seqOf[:0], w.blocks[:0]
	for s := range batch.Seqs() {
		q, kvLen := batch.QLen(s), int(batch.KVLens[s])
		if q*t.group > plannedRows {
			w.addBlocks(s, q, l.KVHeads, kvLen, max(1, blockRows/t.group))
			continue
		}
		t.seqs = append(t.seqs, plan.Seq{QLen: int32(q), KVLen: int32(kvLen), First: int32(first(kvLen-q, w.window))})
		w.seqOf = append(w.seqOf, int32(s))
	}
	slices.SortStableFunc(w.blocks, func(x, y block) int { return int(y.tokens - x.tokens) }) // long ones first
	if batch.Policy.Mode == plan.ModeFixed && len(t.seqs) > 0 && (len(t.seqs) > w.reserved || batch.Policy != w.policy) {
		t.reserve(w)
	}
	if err := t.planner.Plan(&w.plan, w.shape, t.seqs, t.limits, batch.Policy); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	t.growFor(w)
	t.growScratch(w)
	return nil
}

// growScratch makes every worker's scratch large enough: a worker that has been idle must not allocate when its first
// item comes, nor for a sequence that grows, up to the length of the whole cache.
func (t *attendTask) growScratch(w *work) {
	rows, tiles := 1, t.kv.layout.Pages*t.kv.pageTiles
	for i := range w.plan.Items {
		rows = max(rows, int(w.plan.Items[i].Rows))
	}
	for i := range w.blocks {
		rows = max(rows, int(w.blocks[i].rows))
	}
	for _, s := range t.scratch {
		s.size(rows*t.group, t.kv.layout.HeadDim)
		s.kvdot.Reserve(t.kv.kernels, rows*t.group, tiles)
		if cap(s.off) < tiles {
			s.off = make([]int64, 0, tiles)
		}
	}
}

func (t *attendTask) growFor(w *work) {
	grow(&w.pending, len(w.plan.Merges))
	grow(&w.states, w.plan.States*stateLen(t.kv.layout.HeadDim))
}

// reserve plans sequences that fill the cache, so that the arrays have their final size: pieces of fixed length get
// more and more as sequences grow, and no step is to allocate for that. Other policies make few pieces.
func (t *attendTask) reserve(w *work) {
	w.reserved, w.policy = len(t.seqs), t.b.batch.Policy
	each := t.kv.layout.Pages * t.kv.layout.PageSize / len(t.seqs)
	full := make([]plan.Seq, len(t.seqs))
	for i, s := range t.seqs {
		n := int32(min(max(each, int(s.KVLen)), 1<<30))
		full[i] = plan.Seq{QLen: s.QLen, KVLen: n, First: int32(first(int(n-s.QLen), w.window))}
	}
	if t.planner.Plan(&w.plan, w.shape, full, t.limits, w.policy) == nil { // else too many pieces: let it grow
		t.growFor(w)
	}
}

// first is the first token that a row at pos sees through a window.
func first(pos, window int) int {
	if window <= 0 {
		return 0
	}
	return max(0, pos-window+1)
}

func (w *work) addBlocks(seq, q, heads, kvLen, tokens int) {
	for row := 0; row < q; row += tokens {
		n := min(tokens, q-row)
		for h := range heads {
			end := kvLen - q + row + n
			w.blocks = append(w.blocks, block{int32(seq), int32(h), int32(row), int32(n), int32(end - first(end-n, w.window))})
		}
	}
}

func (s *foldScratch) size(rows, dim int) {
	grow(&s.q, rows*dim)
	grow(&s.state, rows*stateLen(dim))
	grow(&s.lo, rows)
	grow(&s.hi, rows)
}

// grow makes s at least n long. What it held is lost.
func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}

// stateLen is the floats of one row's State: M, L, O.
func stateLen(dim int) int { return 2 + dim }

// foldScratch is what one worker needs for an item.
type foldScratch struct {
	kvdot  kvdot.Scratch
	item   kvdot.Item
	q      []float32 // [rows][dim], scaled
	lo, hi []int32   // [rows]
	off    []int64   // [tiles]
	state  []float32 // states of an item that is not split
	part   []float32 // states of one fixed chunk of a block
}

// empty makes the States of n rows empty. They lie as M [n], L [n], O [n][dim].
func empty(state []float32, n, dim int) {
	for r := range n {
		state[r] = float32(math.Inf(-1))
	}
	clear(state[n : n*stateLen(dim)])
}
