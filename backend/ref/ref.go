package ref

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Backend implements ops.Backend.
type Backend struct {
	batch *ops.Batch
	err   error
}

// New returns a reference backend.
func New() *Backend { return &Backend{} }

var _ ops.Backend = (*Backend)(nil)

type buf struct {
	rows, cols, maxRows int
	data                []float64
}

func (b *buf) Shape() (int, int)   { return b.rows, b.cols }
func (b *buf) row(r int) []float64 { return b.data[r*b.cols : (r+1)*b.cols] }

type weight struct {
	name       string
	typ        quant.Type
	rows, cols int
	data       []byte
	scratch    []float32
}

func (w *weight) Shape() (int, int) { return w.rows, w.cols }
func (w *weight) Type() quant.Type  { return w.typ }

// row returns row r as float32, exactly what the format says; the next call overwrites it.
func (w *weight) row(r int) []float32 {
	n := w.typ.RowBytes(w.cols)
	if err := quant.Dequantize(w.typ, w.scratch, w.data[r*n:(r+1)*n]); err != nil {
		panic(err) // sizes were checked by Upload
	}
	return w.scratch
}

func (b *Backend) Limits() ops.Limits {
	return ops.Limits{Name: "ref", Plan: plan.CPU(1), KVTypes: ops.KVTypes()}
}

func (b *Backend) Upload(name string, t quant.Type, rows, cols int, data []byte) (ops.Weight, error) {
	if rows < 1 || cols < 1 || cols%t.BlockSize() != 0 || len(data) != rows*t.RowBytes(cols) {
		return nil, fmt.Errorf("ref: tensor %q: %d bytes are not [%d %d] of %v", name, len(data), rows, cols, t)
	}
	return &weight{name, t, rows, cols, data, make([]float32, cols)}, nil
}

func (b *Backend) Alloc(rows, cols int) (ops.Buf, error) {
	if rows < 1 || cols < 1 {
		return nil, fmt.Errorf("ref: buffer of %d rows and %d columns", rows, cols)
	}
	return &buf{maxRows: rows, cols: cols, data: make([]float64, rows*cols)}, nil
}

func (b *Backend) Begin(batch *ops.Batch) error { b.batch, b.err = batch, nil; return nil }
func (b *Backend) End() error                   { return b.err }
func (b *Backend) Close() error                 { return nil }

func (b *Backend) Embed(dst ops.Buf, w ops.Weight, scale float32) {
	d := dst.(*buf)
	d.rows = b.batch.Rows()
	for r, t := range b.batch.Tokens {
		for i, v := range w.(*weight).row(int(t)) {
			d.row(r)[i] = float64(scale) * float64(v)
		}
	}
}

func (b *Backend) RMSNorm(dst, x ops.Buf, w ops.Weight, eps float32) {
	d, s, g := dst.(*buf), x.(*buf), w.(*weight)
	d.rows = s.rows
	scale := g.row(0)
	for at := 0; at < s.rows*s.cols; at += g.cols {
		in, out := s.data[at:at+g.cols], d.data[at:at+g.cols]
		sum := 0.0
		for _, v := range in {
			sum += v * v
		}
		inv := 1 / math.Sqrt(sum/float64(g.cols)+float64(eps))
		for i, v := range in {
			out[i] = v * inv * float64(scale[i])
		}
	}
}

// Values returns what a buffer holds, [rows, cols], for tests.
func (b *Backend) Values(x ops.Buf) []float64 { return x.(*buf).data[:x.(*buf).rows*x.(*buf).cols] }

func (b *Backend) Linear(x ops.Buf, ps []ops.Projection) {
	in := x.(*buf)
	for _, p := range ps {
		w, y := p.W.(*weight), p.Y.(*buf)
		if w.cols != in.cols || w.rows != y.cols {
			b.err = fmt.Errorf("ref: tensor %q [%d %d] between buffers of %d and %d columns", w.name, w.rows, w.cols, in.cols, y.cols)
			return
		}
		var bias []float32
		if p.Bias != nil {
			bias = p.Bias.(*weight).row(0)
		}
		y.rows = in.rows
		for n := range w.rows {
			wn := w.row(n)
			for r := range in.rows {
				sum := dot(in.row(r), wn)
				if bias != nil {
					sum += float64(bias[n])
				}
				if p.Accumulate {
					sum += y.row(r)[n]
				}
				y.row(r)[n] = sum
			}
		}
	}
}

func dot(x []float64, w []float32) float64 {
	sum := 0.0
	for i, v := range w {
		sum += x[i] * float64(v)
	}
	return sum
}

func (b *Backend) GatedMul(dst, gate, up ops.Buf, act ops.Activation) {
	d, g, u := dst.(*buf), gate.(*buf), up.(*buf)
	d.rows = g.rows
	for i := range g.rows * g.cols {
		d.data[i] = activate(g.data[i], act) * u.data[i]
	}
}

func activate(x float64, act ops.Activation) float64 {
	if act == ops.GELUTanh {
		// x/2·(1+tanh(u)) in a form that does not cancel for large negative u.
		u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
		return x / (1 + math.Exp(-2*u))
	}
	return x / (1 + math.Exp(-x))
}

func (b *Backend) Add(dst, x ops.Buf) {
	d, s := dst.(*buf), x.(*buf)
	for i := range d.rows * d.cols {
		d.data[i] += s.data[i]
	}
}

func (b *Backend) Gather(dst, src ops.Buf, rows []int32) {
	d, s := dst.(*buf), src.(*buf)
	d.rows = len(rows)
	for i, r := range rows {
		copy(d.row(i), s.row(int(r)))
	}
}

func (b *Backend) Logits(dst []float32, x ops.Buf, w ops.Weight, softcap float32) {
	in, m := x.(*buf), w.(*weight)
	for n := range m.rows {
		wn := m.row(n)
		for r := range in.rows {
			dst[r*m.rows+n] = float32(capped(dot(in.row(r), wn), softcap))
		}
	}
}

// capped is cap·tanh(s/cap), or s without a cap.
func capped(s float64, c float32) float64 {
	if c == 0 {
		return s
	}
	return float64(c) * math.Tanh(s/float64(c))
}
