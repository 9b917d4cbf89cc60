package cpu

import (
	"fmt"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Linear implements ops.Backend: x is converted once, then all strips of all projections are one parallel region.
func (b *Backend) Linear(x ops.Buf, ps []ops.Projection) {
	in := x.(*buf)
	for i := range ps {
		p := &ps[i]
		w, y := p.W.(*weight), p.Y.(*buf)
		if w.matrix.Cols != in.cols || w.matrix.Rows != y.cols {
			b.fail(fmt.Errorf("cpu: tensor %q [%d %d] between buffers of %d and %d columns", w.name, w.matrix.Rows, w.matrix.Cols, in.cols, y.cols))
			return
		}
		if err := b.prepare(w); err != nil {
			b.fail(err)
			return
		}
		y.rows = in.rows
	}
	b.convert(in, ps)
	b.multiply(in.rows, ps)
}

// isFloat tells the two classes of weights apart: those multiplied in float32, and those with 8-bit activations.
func isFloat(t quant.Type) bool { return t == quant.F32 || t == quant.F16 || t == quant.BF16 }

// convertRows is the number of rows of a chunk of conversion.
const convertRows = 8

// convert prepares the activations for every class of weight among ps.
func (b *Backend) convert(in *buf, ps []ops.Projection) {
	b.acts.Reset(in.rows, in.cols)
	var done [2]bool
	for i := range ps {
		t := ps[i].W.(*weight).matrix.Type
		class := 0
		if isFloat(t) {
			class = 1
		}
		if done[class] {
			continue
		}
		done[class] = true
		c := &b.regions.conv
		c.in, c.t = in, t
		b.forRows(b.regions.converting, in.rows, convertRows, in.rows*in.cols)
	}
}

type convertTask struct {
	b  *Backend
	in *buf
	t  quant.Type
}

func (t *convertTask) Chunk(_, i int) {
	m0, m1 := t.b.rowRange(i)
	t.b.mul.SetActs(&t.b.acts, t.t, t.in.data, t.in.cols, m0, m1)
}

// multiply runs the products. Strips of all projections are numbered one after the other and cut into chunks: a few
// for each worker, so that one that is late does not hold up the others for long.
func (b *Backend) multiply(rows int, ps []ops.Projection) {
	t := &b.regions.mult
	t.ps, t.rows, t.starts = ps, rows, t.starts[:0]
	strips, bytes, most := 0, 0, 0
	for i := range ps {
		m := &ps[i].W.(*weight).matrix
		t.starts = append(t.starts, strips)
		strips += m.Strips()
		bytes += len(m.Data)
		if ps[i].Accumulate {
			most = max(most, rows*m.Rows)
		}
	}
	t.starts = append(t.starts, strips)
	grow(&b.sum, most)
	chunks := min(strips, b.chunksFor(bytes*min(rows, 8)))
	t.chunk = (strips + chunks - 1) / chunks
	b.pool.Run(b.regions.multiplying, (strips+t.chunk-1)/t.chunk)
}

// Work of about grain bytes is worth a claim of its own (some 100 ns); more than chunksPerWorker pieces for each
// worker even the load no further.
const (
	grain           = 16 << 10
	chunksPerWorker = 6
)

// chunksFor returns in how many pieces to cut work that reads that many bytes.
func (b *Backend) chunksFor(bytes int) int {
	return max(1, min(bytes/grain, chunksPerWorker*b.pool.Workers()))
}

type multiplyTask struct {
	b      *Backend
	ps     []ops.Projection
	rows   int
	starts []int // first strip of each projection, and the end
	chunk  int   // strips
}

func (t *multiplyTask) Chunk(_, i int) {
	lo, hi := i*t.chunk, min((i+1)*t.chunk, t.starts[len(t.ps)])
	for k := range t.ps {
		s0, s1 := max(lo, t.starts[k])-t.starts[k], min(hi, t.starts[k+1])-t.starts[k]
		if s0 < s1 {
			t.strips(&t.ps[k], s0, s1)
		}
	}
}

// strips computes strips [s0, s1) of one projection for all rows.
func (t *multiplyTask) strips(p *ops.Projection, s0, s1 int) {
	w, y := p.W.(*weight), p.Y.(*buf)
	n := w.matrix.Rows
	out := y.data
	if p.Accumulate {
		out = t.b.sum
	}
	t.b.mul.Mul(&w.matrix, &t.b.acts, s0, s1, out, n)
	if p.Bias == nil && !p.Accumulate {
		return
	}
	lo, hi := s0*stripRows, min(s1*stripRows, n)
	for r := range t.rows {
		row := out[r*n+lo : r*n+hi]
		if p.Bias != nil {
			t.b.vec.Add(row, p.Bias.(*weight).vector[lo:hi])
		}
		if p.Accumulate {
			t.b.vec.Add(y.data[r*n+lo:r*n+hi], row)
		}
	}
}

// stripRows is the number of matrix rows of a strip.
const stripRows = 16

// Logits implements ops.Backend.
func (b *Backend) Logits(dst []float32, x ops.Buf, w ops.Weight, softcap float32) {
	in, m := x.(*buf), w.(*weight)
	y := &b.regions.logits
	y.rows, y.cols, y.data = in.rows, m.matrix.Rows, dst
	b.regions.logitsProj[0] = ops.Projection{W: m, Y: y}
	b.Linear(in, b.regions.logitsProj[:])
	if softcap != 0 && b.err == nil {
		b.vec.Softcap(dst[:in.rows*m.matrix.Rows], softcap)
	}
	y.data = nil
}
