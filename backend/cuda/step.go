package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
)

// step is what Begin copies to the device: int32 arrays one after the other, and the flat ranges' addresses.
type step struct {
	number uint64
	host   *cuda.HostBuffer
	dev    *cuda.Buffer

	qLen      int // most new tokens of a sequence
	stride    int // of table rows
	kvLens    attention.Ptr
	qIndptr   attention.Ptr
	positions attention.Ptr
	table     attention.Ptr
	lens      []int32
}

func (s *step) close() error {
	var errs []error
	if s.host != nil {
		errs = append(errs, s.host.Close())
	}
	if s.dev != nil {
		errs = append(errs, s.dev.Close())
	}
	s.host, s.dev = nil, nil
	return errors.Join(errs...)
}

// grow makes the blocks at least n bytes long.
func (s *step) grow(ctx *cuda.Context, n int64) (err error) {
	if s.dev != nil && s.dev.Bytes() >= n {
		return nil
	}
	if err := s.close(); err != nil {
		return err
	}
	if s.host, err = ctx.AllocHost(2 * n); err == nil {
		s.dev, err = ctx.Alloc(2 * n)
	}
	return err
}

// Begin starts a step: the batch is copied to the device once for all layers.
func (b *Backend) Begin(batch *ops.Batch) error {
	b.batch, b.err = nil, nil
	if batch.Seqs() > b.opts.MaxSeqs || batch.Rows() > b.opts.MaxRows {
		return fmt.Errorf("cuda: step of %d sequences and %d rows: the backend was made for %d and %d", batch.Seqs(), batch.Rows(), b.opts.MaxSeqs, b.opts.MaxRows)
	}
	n, s := batch.Seqs(), &b.step
	s.number++
	s.qLen, s.stride = 1, 1
	for i := range n {
		s.qLen, s.stride = max(s.qLen, batch.QLen(i)), max(s.stride, len(batch.Table(i)))
	}
	align := func(x int) int { return (x + 15) &^ 15 }
	ranges := len(batch.Ranges)
	flat := 0
	for _, c := range b.kvs {
		if c.flat != nil {
			flat++
		}
	}
	size := flat*align(8*ranges) + align(4*n) + align(4*(n+1)) + align(4*batch.Rows()) + align(4*n*s.stride)
	if err := s.grow(b.ctx, int64(max(size, 16))); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	off := 0
	put := func(count int) ([]int32, attention.Ptr) {
		at, p := s.host.Bytes()[off:], s.dev.Ptr()+attention.Ptr(off)
		off += align(4 * count)
		return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(at))), count), p
	}
	for _, c := range b.kvs {
		if c.flat != nil {
			var to []int32
			to, c.bases = put(2 * ranges)
			c.addresses(unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(to))), ranges), batch.Ranges)
		}
	}
	var lens, indptr, positions, table []int32
	lens, s.kvLens = put(n)
	indptr, s.qIndptr = put(n + 1)
	positions, s.positions = put(batch.Rows())
	table, s.table = put(n * s.stride)
	copy(lens, batch.KVLens)
	copy(indptr, batch.QIndptr)
	copy(positions, batch.Positions)
	for i := range n {
		copy(table[i*s.stride:(i+1)*s.stride], batch.Table(i))
	}
	s.lens = batch.KVLens
	b.batch = batch
	return b.stream.CopyIn(s.dev.Ptr(), s.host, 0, int64(off))
}

// addresses fills in where the ranges are in a flat cache. Those that it has not belong to another one.
func (c *kv) addresses(to []uint64, ranges []int32) {
	for i, r := range ranges {
		if to[i] = 0; int(r) < c.layout.Ranges {
			to[i] = uint64(c.flat.Base(r))
		}
	}
}

// End waits for the step and returns what went wrong in it.
func (b *Backend) End() error {
	err := b.stream.Synchronize()
	b.batch = nil
	if b.err != nil {
		err = errors.Join(b.err, err)
	}
	for _, p := range b.plans {
		if e := p.Fault(); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// attentionStep is the step for the kernels.
func (b *Backend) attentionStep(c *kv) attention.Step {
	s := &b.step
	st := attention.Step{Seqs: b.batch.Seqs(), QLen: s.qLen, KVLen: s.kvLens, Lens: s.lens}
	if s.qLen > 1 {
		st.QIndptr, st.Rows = s.qIndptr, b.batch.Rows()
	}
	if c.flat != nil {
		st.SeqBase = c.bases
	} else {
		st.Table, st.TableStride = s.table, s.stride
	}
	return st
}

// boundPlan is a plan with its workspace.
type boundPlan struct {
	*attention.Plan
	kv     *kv
	policy plan.Policy
	work   *cuda.Buffer
	step   uint64 // that Begin was last called for
}

func (p *boundPlan) close() error {
	err := p.Close()
	if p.work != nil {
		err = errors.Join(err, p.work.Close())
	}
	return err
}

// planFor finds or makes the plan of a cache under the batch's policy.
func (b *Backend) planFor(c *kv, heads int) (*boundPlan, error) {
	variant, pol := attention.Auto, b.batch.Policy
	if b.step.qLen > attention.MaxQLen {
		variant, pol = attention.Prefill, plan.Auto()
	}
	for _, p := range b.plans {
		if cfg := p.Config(); p.kv == c && cfg.QHeads == heads && (cfg.Variant == attention.Prefill) == (variant == attention.Prefill) && p.policy == pol {
			return p, nil
		}
	}
	cfg := c.config(heads)
	cfg.Variant, cfg.Policy, cfg.Seqs, cfg.QLen, cfg.Checked = variant, pol, b.opts.MaxSeqs, attention.MaxQLen, b.opts.Checked
	if pol.Mode == plan.ModeFixed { // whose workspace grows with all tokens; a page may be in several tables
		cfg.Entries = 8 * c.layout.Pages
	}
	if variant == attention.Prefill {
		cfg.QLen = b.opts.MaxRows
	}
	ap, err := b.ks.Plan(cfg)
	if err != nil {
		return nil, err
	}
	p := &boundPlan{Plan: ap, kv: c, policy: pol}
	if n := ap.WorkspaceBytes(); n > 0 {
		if p.work, err = b.ctx.Alloc(n); err == nil {
			err = errors.Join(ap.Bind(p.work.Ptr(), n), ap.Reset(b.stream))
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	b.plans = append(b.plans, p)
	return p, nil
}

// config is the shape of a cache.
func (c *kv) config(heads int) attention.Config {
	l := &c.layout
	cfg := attention.Config{QHeads: heads, KVHeads: l.KVHeads, HeadDim: l.HeadDim, Type: c.b.typ, KVType: c.b.typ, PageSize: l.PageSize, KVLen: l.Pages * l.PageSize,
		Pages: l.Pages}
	if c.flat != nil {
		cfg.Address, cfg.KVLen = attention.Flat, l.RangePages*l.PageSize
	}
	return cfg
}

// Attend sets dst[r] to the attention of q[r] over its sequence's tokens in the cache.
func (b *Backend) Attend(dst, q ops.Buf, cache ops.KV, layer int, a *ops.Attention) {
	if b.err != nil {
		return
	}
	d, in, c := dst.(*buf), q.(*buf), cacheOf(cache)
	heads := in.cols / c.layout.HeadDim
	if in.cols%c.layout.HeadDim != 0 || heads%c.layout.KVHeads != 0 || d.cols != in.cols || in.rows != b.batch.Rows() || d.most < in.rows || layer < 0 || layer >= c.layout.Layers {
		b.fail(fmt.Errorf("cuda: attention of %d × %d over %d heads of %d into %d columns, layer %d", in.rows, in.cols, c.layout.KVHeads, c.layout.HeadDim, d.cols, layer))
		return
	}
	p, err := b.planFor(c, heads)
	if err == nil && p.step != b.step.number {
		st := b.attentionStep(c)
		if err = p.Begin(b.stream, &st); err == nil {
			p.step = b.step.number
		}
	}
	if err != nil {
		b.fail(fmt.Errorf("cuda: %w", err))
		return
	}
	y := c.layer(layer)
	y.Q, y.Out, y.Scale, y.Softcap = in.mem.Ptr(), d.mem.Ptr(), a.Scale, a.Softcap
	if a.Window > 0 {
		y.Window = &attn.Window{Left: a.Window - 1, Right: -1}
	}
	if w, ok := a.Sinks.(*vector); ok {
		y.Sinks = w.mem.Ptr()
	}
	d.rows = in.rows
	if err := p.Run(b.stream, &y); err != nil {
		b.fail(fmt.Errorf("cuda: %w", err))
	}
}

// RopeAppend rotates q and k by their positions and writes k and v of every row into the pages of its sequence.
func (b *Backend) RopeAppend(q, k, v ops.Buf, cache ops.KV, layer int, r *ops.Rope) {
	if b.err != nil || b.batch.Rows() == 0 {
		return
	}
	c, in, kb, vb := cacheOf(cache), q.(*buf), k.(*buf), v.(*buf)
	width := c.layout.KVHeads * c.layout.HeadDim
	if in.cols%c.layout.HeadDim != 0 || kb.cols != width || vb.cols != width || in.rows != b.batch.Rows() || kb.rows != in.rows || vb.rows != in.rows || layer < 0 || layer >= c.layout.Layers {
		b.fail(fmt.Errorf("cuda: append of %d × %d keys and %d × %d values to %d heads of %d, layer %d", kb.rows, kb.cols, vb.rows, vb.cols, c.layout.KVHeads, c.layout.HeadDim, layer))
		return
	}
	if err := b.ropeAppend(c, in, kb, vb, layer, r); err != nil {
		b.fail(fmt.Errorf("cuda: %w", err))
	}
}

func (b *Backend) ropeAppend(c *kv, q, k, v *buf, layer int, r *ops.Rope) (err error) {
	if heads := q.cols / c.layout.HeadDim; c.appender == nil || c.heads != heads {
		if c.appender, err = b.ks.NewAppender(c.config(heads)); err != nil {
			return err
		}
		c.heads = heads
	}
	x := attention.Append{Rows: q.rows, Q: q.mem.Ptr(), K: k.mem.Ptr(), V: v.mem.Ptr(), Positions: b.step.positions}
	if r != nil {
		x.Pairs, x.Interleaved, x.Scale = len(r.InvFreq), r.Interleaved, r.Scale
		if x.InvFreq, err = b.ropeOf(r.InvFreq); err != nil {
			return err
		}
	}
	st, y := b.attentionStep(c), c.layer(layer)
	st.QIndptr = b.step.qIndptr
	return c.appender.Run(b.stream, &st, &y, &x)
}
