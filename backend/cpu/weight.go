package cpu

import (
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/mem"
	"github.com/flashdecode/flashdecode/internal/simd/qgemm"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// weight is a tensor as uploaded, and as products read it once one was asked for.
type weight struct {
	name     string
	matrix   qgemm.Matrix // Data is nil until the first product
	file     []byte
	reserved []byte    // where the strips will go
	vector   []float32 // of a single row: norms and biases
}

// packedBytes is the room its strips take, in whole cache lines.
func (w *weight) packedBytes() int64 {
	n := qgemm.PackedBytes(w.matrix.Type, w.matrix.Rows, w.matrix.Cols)
	return int64(n+63) &^ 63
}

func (w *weight) Shape() (int, int) { return w.matrix.Rows, w.matrix.Cols }
func (w *weight) Type() quant.Type  { return w.matrix.Type }

// Upload implements ops.Backend.
func (b *Backend) Upload(name string, t quant.Type, rows, cols int, data []byte) (ops.Weight, error) {
	if rows < 1 || cols < 1 || cols%t.BlockSize() != 0 || len(data)/t.RowBytes(cols) != rows || len(data)%t.RowBytes(cols) != 0 {
		return nil, fmt.Errorf("cpu: tensor %q: %d bytes are not [%d %d] of %v", name, len(data), rows, cols, t)
	}
	w := &weight{name: name, matrix: qgemm.Matrix{Type: t, Rows: rows, Cols: cols}, file: data}
	if rows == 1 {
		w.vector = make([]float32, cols)
		if err := quant.Dequantize(t, w.vector, data); err != nil {
			return nil, fmt.Errorf("cpu: tensor %q: %w", name, err)
		}
	}
	b.weights = append(b.weights, w)
	return w, nil
}

// row writes row r as float32 to dst.
func (w *weight) row(dst []float32, r int) error {
	n := w.matrix.Type.RowBytes(w.matrix.Cols)
	return quant.Dequantize(w.matrix.Type, dst, w.file[r*n:(r+1)*n])
}

// prepare makes w ready for products. Repacking happens here, at the first one, so that opening a model costs
// nothing and tensors that are never multiplied (an embedding with an output matrix beside it) stay in the file.
func (b *Backend) prepare(w *weight) error {
	m := &w.matrix
	if m.Data != nil {
		return nil
	}
	if b.opts.FileOrder {
		m.Data = w.file
		return nil
	}
	if w.reserved == nil {
		if err := b.reservePacked(); err != nil {
			return err
		}
	}
	b.regions.pack.w = w
	strips := m.Strips()
	b.pool.Run(b.regions.packing, (strips+packStrips-1)/packStrips)
	if b.pool.Faulted() {
		return fmt.Errorf("cpu: tensor %q was not repacked", w.name) // the next step tries again
	}
	m.Data, m.Packed = w.reserved, true
	if b.opts.Evict != nil {
		b.opts.Evict(w.file)
	}
	return nil
}

// reservePacked finds room for the strips of all weights that have none, in one region: one tensor at a time would
// waste half a huge page on each. Memory is taken as strips are written.
func (b *Backend) reservePacked() error {
	var total int64
	for _, w := range b.weights {
		if w.reserved == nil {
			total += w.packedBytes()
		}
	}
	r, err := mem.Reserve(total)
	if err != nil {
		return fmt.Errorf("cpu: repacked weights: %w (weights in file order need no such memory)", err)
	}
	b.packed = append(b.packed, r)
	rest := r.Bytes
	for _, w := range b.weights {
		if w.reserved == nil {
			n := w.packedBytes()
			w.reserved, rest = rest[:n:n], rest[n:]
		}
	}
	return nil
}

// packStrips is the number of strips of a chunk of repacking.
const packStrips = 16

type packTask struct {
	b *Backend
	w *weight
}

func (t *packTask) Chunk(_, i int) {
	m := &t.w.matrix
	t.b.mul.Pack(t.w.reserved, t.w.file, m.Type, m.Rows, m.Cols, i*packStrips, min((i+1)*packStrips, m.Strips()))
}

// floatsOf views bytes as float32.
func floatsOf(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}
