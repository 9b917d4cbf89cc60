package cpu

import (
	"math"

	"github.com/flashdecode/flashdecode/internal/pool"
	"github.com/flashdecode/flashdecode/ops"
)

// regions are the parallel regions of a step, made once. Their fields are set before each run.
type regions struct {
	rows, perChunk int // of the row-wise region that runs now

	pack       packTask
	conv       convertTask
	mult       multiplyTask
	norm       normTask
	gate       gateTask
	rope       ropeTask
	embed      embedTask
	logits     buf
	logitsProj [1]ops.Projection

	packing, converting, multiplying, norming, gating, roping, embedding *pool.Region
}

func (r *regions) init(b *Backend) {
	r.pack.b, r.conv.b, r.mult.b, r.rope.b = b, b, b, b // the others are set whole before each run
	r.packing, r.converting = pool.NewRegion(&r.pack), pool.NewRegion(&r.conv)
	r.multiplying, r.norming = pool.NewRegion(&r.mult), pool.NewRegion(&r.norm)
	r.gating, r.roping = pool.NewRegion(&r.gate), pool.NewRegion(&r.rope)
	r.embedding = pool.NewRegion(&r.embed)
}

// parallelFrom is the number of elements from which a row-wise operation is worth a parallel region: below, waking
// the other workers' caches costs more than it saves.
const parallelFrom = 16 << 10

// forRows runs a row-wise task, perChunk rows a chunk, on all workers or, if there is little to do, on this one.
func (b *Backend) forRows(r *pool.Region, rows, perChunk, elements int) {
	if elements < parallelFrom {
		perChunk = rows
	}
	b.regions.rows, b.regions.perChunk = rows, max(perChunk, 1)
	b.pool.Run(r, (rows+perChunk-1)/max(perChunk, 1))
}

// rowRange is the rows of chunk i of the task that runs.
func (b *Backend) rowRange(i int) (lo, hi int) {
	return i * b.regions.perChunk, min((i+1)*b.regions.perChunk, b.regions.rows)
}

const elementRows = 8 // rows of a chunk of elementwise work

// RMSNorm implements ops.Backend.
func (b *Backend) RMSNorm(dst, x ops.Buf, w ops.Weight, eps float32) {
	d, s := dst.(*buf), x.(*buf)
	d.rows = s.rows
	b.regions.norm = normTask{b, d, s, w.(*weight).vector, eps}
	b.forRows(b.regions.norming, s.rows, elementRows, s.rows*s.cols)
}

type normTask struct {
	b      *Backend
	dst, x *buf
	w      []float32
	eps    float32
}

func (t *normTask) Chunk(_, i int) {
	lo, hi := t.b.rowRange(i)
	n := len(t.w)
	for at := lo * t.x.cols; at < hi*t.x.cols; at += n {
		t.b.vec.RMSNorm(t.dst.data[at:at+n], t.x.data[at:at+n], t.w, t.eps)
	}
}

// GatedMul implements ops.Backend.
func (b *Backend) GatedMul(dst, gate, up ops.Buf, act ops.Activation) {
	d, g := dst.(*buf), gate.(*buf)
	d.rows = g.rows
	b.regions.gate = gateTask{b, d, g, up.(*buf), act}
	b.forRows(b.regions.gating, g.rows, elementRows, g.rows*g.cols)
}

type gateTask struct {
	b         *Backend
	dst, gate *buf
	up        *buf
	act       ops.Activation
}

func (t *gateTask) Chunk(_, i int) {
	lo, hi := t.b.rowRange(i)
	for r := lo; r < hi; r++ {
		if t.act == ops.GELUTanh {
			t.b.vec.GeluTanhMul(t.dst.row(r), t.gate.row(r), t.up.row(r))
		} else {
			t.b.vec.SiluMul(t.dst.row(r), t.gate.row(r), t.up.row(r))
		}
	}
}

// Add implements ops.Backend.
func (b *Backend) Add(dst, x ops.Buf) {
	d, s := dst.(*buf), x.(*buf)
	n := d.rows * d.cols
	b.vec.Add(d.data[:n], s.data[:n])
}

// Gather implements ops.Backend.
func (b *Backend) Gather(dst, src ops.Buf, rows []int32) {
	d, s := dst.(*buf), src.(*buf)
	d.rows = len(rows)
	for i, r := range rows {
		copy(d.row(i), s.row(int(r)))
	}
}

// Embed implements ops.Backend.
func (b *Backend) Embed(dst ops.Buf, w ops.Weight, scale float32) {
	d := dst.(*buf)
	d.rows = b.batch.Rows()
	b.regions.embed = embedTask{b, d, w.(*weight), scale}
	b.forRows(b.regions.embedding, d.rows, elementRows, d.rows*d.cols)
}

type embedTask struct {
	b     *Backend
	dst   *buf
	w     *weight
	scale float32
}

// Chunk runs in a region even for a single row: the embedding is read from the file, and a region turns the fault of
// a file that was truncated into an error.
func (t *embedTask) Chunk(_, i int) {
	lo, hi := t.b.rowRange(i)
	for r := lo; r < hi; r++ {
		row := t.dst.row(r)
		if err := t.w.row(row, int(t.b.batch.Tokens[r])); err != nil {
			panic(err) // Upload checked the sizes
		}
		if t.scale != 1 {
			t.b.vec.Scale(row, t.scale)
		}
	}
}

// ropeTable is the cosines and sines of one rotation for the rows of a step.
type ropeTable struct {
	rope     *ops.Rope
	step     uint64
	cos, sin []float32 // [rows, pairs]
}

// table returns the angles of rope for this step. Layers share it.
func (b *Backend) table(rope *ops.Rope) *ropeTable {
	for i := range b.ropes {
		if t := &b.ropes[i]; t.rope == rope {
			if t.step != b.step {
				t.fill(b)
			}
			return t
		}
	}
	b.ropes = append(b.ropes, ropeTable{rope: rope})
	t := &b.ropes[len(b.ropes)-1]
	t.fill(b)
	return t
}

// fill computes the angles in float64: at a position of a million a float32 product is off by 0.06 radians.
func (t *ropeTable) fill(b *Backend) {
	t.step = b.step
	n := len(t.rope.InvFreq)
	grow(&t.cos, n*b.batch.Rows())
	grow(&t.sin, n*b.batch.Rows())
	scale := 1.0
	if t.rope.Scale != 0 {
		scale = float64(t.rope.Scale)
	}
	for r, pos := range b.batch.Positions {
		for i, f := range t.rope.InvFreq {
			sin, cos := math.Sincos(float64(pos) * float64(f))
			t.cos[r*n+i], t.sin[r*n+i] = float32(scale*cos), float32(scale*sin)
		}
	}
}
