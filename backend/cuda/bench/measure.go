package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// measure measures one cell.
func (l *lab) measure(ctx context.Context, c *Cell) (*Row, error) {
	row := newRow(c)
	row.GPU = l.ctx.Device().Name
	if err := l.prepare(c); err != nil {
		return nil, err
	}
	var err error
	if row.Floor, err = l.floor(c.bytes()); err != nil {
		return nil, err
	}
	row.Floor = round(row.Floor, 2)
	for _, v := range l.o.Variants {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := l.variant(row, c, v); err != nil {
			if errors.Is(err, cuda.ErrContextLost) {
				return nil, fmt.Errorf("%s: %w", v.Name, err)
			}
			row.US[v.Name] = err.Error()
		}
	}
	return row, nil
}

// setBytes is K and V of a set with pages rounded up, for the largest page that a variant may have.
func setBytes(c *Cell, page int) int64 {
	var pages int64
	for _, n := range c.lens() {
		pages += (int64(n) + int64(page) - 1) / int64(page)
	}
	return pages * int64(page) * c.tokenBytes()
}

// prepare fills the pool with random numbers of the cell's type, and makes queries.
func (l *lab) prepare(c *Cell) error {
	need := max(l.o.Rotate, 2*setBytes(c, 64))
	if l.pool.buf == nil || l.pool.buf.Bytes() < need || l.filled != c.KV || !l.ready {
		l.floors = map[int64]float64{}
		p, err := l.pool.get(l.ctx, need)
		if err != nil {
			return err
		}
		bytes := l.pool.buf.Bytes()
		if err := l.oracle.Fill(l.stream, c.KV.String(), p, bytes/int64(c.KV.Bytes()), 0, 1, 1); err != nil {
			return err
		}
		l.filled, l.ready = c.KV, true
	}
	n := int64(c.Seqs * c.QHeads * c.HeadDim)
	q, err := l.q.get(l.ctx, 2*n)
	if err != nil {
		return err
	}
	if _, err := l.out.get(l.ctx, 2*n); err != nil {
		return err
	}
	if _, err := l.lse.get(l.ctx, int64(4*c.Seqs*c.QHeads)); err != nil {
		return err
	}
	return l.oracle.Fill(l.stream, "bf16", q, n, 0, 2, 1)
}

// setup is a variant of a cell on the device.
type setup struct {
	plan   *attention.Plan
	step   attention.Step
	layer  attention.Layer
	stride int64 // bytes from set to set
	sets   int64
}

// variant times one variant and compares it with the reference.
func (l *lab) variant(row *Row, c *Cell, v Variant) (err error) {
	s, err := l.setup(c, v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.plan.Close()) }()
	if !l.o.NoError {
		e, lse, err := l.error(c, s)
		if err != nil {
			return err
		}
		row.Err[v.Name], row.LSE[v.Name] = roundSig(e), roundSig(lse)
	}
	n := l.launches(s.stride)
	if c.Lens != nil { // work is cut on the device, once a step
		n = max(n, layers)
	}
	us, err := l.timed(n, func() error { return s.plan.Begin(l.stream, &s.step) }, func(i int) error { return l.launch(s, int64(i)) })
	if err != nil {
		return err
	}
	launch := s.plan.Choice()
	row.US[v.Name] = round(us, 2)
	row.GBps[v.Name] = round(float64(c.bytes())/us/1e3, 1)
	row.Percent[v.Name] = round(100*row.Floor/us, 1)
	if v.Alg != attention.Naive {
		row.Launch[v.Name], row.Predict[v.Name] = launch.String(), round(float64(launch.EstNS)/1000, 2)
	}
	return nil
}

// setup makes the plan, tables and addresses.
func (l *lab) setup(c *Cell, v Variant) (*setup, error) {
	lens := c.lens()
	if v.Address == attention.Contiguous && c.Lens != nil {
		return nil, errors.New("bench: contiguous room for the longest of very different lengths would be most of memory")
	}
	page := v.Page
	perSeq := (c.KVLen + page - 1) / page
	cfg := attention.Config{
		QHeads: c.QHeads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, KVType: c.KV, Address: v.Address, PageSize: page,
		Seqs: c.Seqs, KVLen: perSeq * page, Variant: v.Alg, Chained: v.Chained, Entries: int(setBytes(c, page) / c.tokenBytes() / int64(page)),
	}
	if v.Alg == attention.NoSplit {
		cfg.Policy = plan.None()
	}
	p, err := l.ks.Plan(cfg)
	if err != nil {
		return nil, err
	}
	s := &setup{plan: p, step: attention.Step{Seqs: c.Seqs, Lens: lens}}
	if err := l.place(c, v, s, perSeq); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return s, nil
}

// place fills the step and the layer, and hands the plan its workspace.
func (l *lab) place(c *Cell, v Variant, s *setup, perSeq int) error {
	lens, half := c.lens(), int64(0)
	indptr, table := []int32{0}, []int32{}
	starts := make([]int64, len(lens)) // bytes from a set's K to each sequence
	row := c.tokenBytes() / 2
	for b, n := range lens {
		starts[b] = half
		pages := (int(n) + v.Page - 1) / v.Page
		if v.Address == attention.Contiguous {
			pages = perSeq
		}
		for range pages {
			table = append(table, int32(len(table)))
		}
		indptr = append(indptr, int32(len(table)))
		half += int64(pages*v.Page) * row
	}
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
	s.stride = 2 * half
	if s.sets = l.pool.buf.Bytes() / s.stride; s.sets < 1 {
		return fmt.Errorf("bench: a set of %d bytes in a pool of %d", s.stride, l.pool.buf.Bytes())
	}
	pool := l.pool.buf.Ptr()
	s.layer = attention.Layer{Q: l.q.buf.Ptr(), Out: l.out.buf.Ptr(), LSE: l.lse.buf.Ptr(), K: pool, V: pool + cuda.Ptr(half)}
	var bases []uint64
	if v.Address == attention.Flat {
		for _, at := range starts {
			bases = append(bases, uint64(pool)+uint64(at))
		}
		s.layer.K, s.layer.V = 0, cuda.Ptr(half)
	}
	ptrs, err := l.upload(lens, indptr, table, bases)
	if err != nil {
		return err
	}
	s.step.KVLen = ptrs[0]
	switch v.Address {
	case attention.BlockTable:
		s.step.Table, s.step.TableIndptr = ptrs[2], ptrs[1]
		if c.Lens == nil {
			s.step.TableIndptr, s.step.TableStride = 0, perSeq
		}
	case attention.Flat:
		s.step.SeqBase = ptrs[3]
	}
	work, err := l.work.get(l.ctx, s.plan.WorkspaceBytes())
	if err != nil {
		return err
	}
	return errors.Join(s.plan.Bind(work, l.work.buf.Bytes()), s.plan.Reset(l.stream))
}

// upload puts arrays one after the other.
func (l *lab) upload(lens, indptr, table []int32, bases []uint64) (at [4]cuda.Ptr, err error) {
	parts := [][]byte{cuda.AsBytes(lens), cuda.AsBytes(indptr), cuda.AsBytes(table), cuda.AsBytes(bases)}
	var total int64
	for _, b := range parts {
		total += int64(len(b)+255) &^ 255
	}
	p, err := l.small.get(l.ctx, max(total, 1<<20))
	if err != nil {
		return at, err
	}
	for i, b := range parts {
		at[i] = p
		if err := l.stream.Upload(p, b); err != nil {
			return at, err
		}
		p += cuda.Ptr((len(b) + 255) &^ 255)
	}
	return at, nil
}

// launch attends with set i.
func (l *lab) launch(s *setup, i int64) error {
	layer := s.layer
	layer.K += cuda.Ptr(i % s.sets * s.stride)
	layer.V += cuda.Ptr(i % s.sets * s.stride)
	return s.plan.Run(l.stream, &layer)
}

// error compares the first set's output and LSE with the reference.
func (l *lab) error(c *Cell, s *setup) (out, lse float64, err error) {
	if err := errors.Join(s.plan.Begin(l.stream, &s.step), l.launch(s, 0)); err != nil {
		return 0, 0, err
	}
	rows := int64(c.Seqs * c.QHeads)
	n := rows * int64(c.HeadDim)
	scores, err := l.scores.get(l.ctx, rows*int64(c.KVLen)*8)
	if err != nil {
		return 0, 0, err
	}
	want, err := l.want.get(l.ctx, n*4)
	if err != nil {
		return 0, 0, err
	}
	wantLSE, err := l.wantLSE.get(l.ctx, rows*4)
	if err != nil {
		return 0, 0, err
	}
	if err := l.oracle.Reference(l.stream, c.KV.String(), s.plan.Args(), c.Seqs, 1, int64(c.KVLen), scores, want, wantLSE); err != nil {
		return 0, 0, err
	}
	got, ref := make([]uint16, n), make([]float32, n)
	gotLSE, refLSE := make([]float32, rows), make([]float32, rows)
	if err := errors.Join(l.stream.Download(cuda.AsBytes(got), s.layer.Out), l.stream.Download(cuda.AsBytes(ref), want),
		l.stream.Download(cuda.AsBytes(gotLSE), s.layer.LSE), l.stream.Download(cuda.AsBytes(refLSE), wantLSE)); err != nil {
		return 0, 0, err
	}
	for i, w := range refLSE {
		if d := math.Abs(float64(gotLSE[i])-float64(w)) / (1e-5 + 1e-6*math.Abs(float64(w))); !(d <= lse) {
			lse = d
		}
	}
	return Frobenius(got, ref), lse, nil
}

// Frobenius is the relative error of a result in bf16: NaN if something in it is.
func Frobenius(got []uint16, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(quant.BF16ToF32(got[i])) - float64(w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	return math.Sqrt(diff / norm)
}
