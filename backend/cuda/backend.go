package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Options are the choices of New.
type Options struct {
	Device  int
	Type    quant.Type // of activations: BF16 or F16; the zero value, F32, means BF16
	MaxSeqs int        // most sequences of a step: 0 means 256
	MaxRows int        // most new tokens of a step: 0 means 8192
	Checked bool       // validate lengths and tables on the device too
}

// Backend runs on one device.
type Backend struct {
	opts   Options
	typ    attention.Type
	ctx    *cuda.Context
	stream *cuda.Stream
	ks     *attention.Kernels

	batch *ops.Batch
	step  step
	err   error

	bufs  []*cuda.Buffer
	kvs   []*kv
	plans []*boundPlan
	ropes []rope
}

// New opens the device.
func New(o Options) (*Backend, error) {
	drv, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	return newBackend(drv, o, attention.Load)
}

// newBackend is New with a driver and kernels of a test's choice.
func newBackend(drv *cuda.Driver, o Options, load func(*attention.Context) (*attention.Kernels, error)) (b *Backend, err error) {
	if o.Type == quant.F32 {
		o.Type = quant.BF16
	}
	if o.MaxSeqs == 0 {
		o.MaxSeqs = 256
	}
	if o.MaxRows == 0 {
		o.MaxRows = 8192
	}
	typ, ok := types[o.Type]
	if !ok || o.MaxSeqs < 1 || o.MaxRows < o.MaxSeqs {
		return nil, fmt.Errorf("cuda: activations of type %v, steps of %d sequences and %d rows: want BF16 or F16, and no more sequences than rows",
			o.Type, o.MaxSeqs, o.MaxRows)
	}
	dev, err := drv.Device(o.Device)
	if err != nil {
		return nil, err
	}
	b = &Backend{opts: o, typ: typ}
	if b.ctx, err = dev.Open(); err != nil {
		return nil, err
	}
	if b.stream, err = b.ctx.NewStream(cuda.NormalPriority); err == nil {
		b.ks, err = load(b.ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// types are the formats of activations and caches.
var types = map[quant.Type]attention.Type{quant.BF16: attention.BF16, quant.F16: attention.F16}

// Limits describes the device.
func (b *Backend) Limits() ops.Limits {
	l := plan.H200()
	if len(b.plans) > 0 {
		l = b.plans[0].Limits()
	}
	return ops.Limits{Name: "cuda/" + b.ctx.Device().Name, Plan: l, KVTypes: []quant.Type{b.opts.Type}}
}

// Close gives everything back, or names what could not be.
func (b *Backend) Close() error {
	var errs []error
	if b.stream != nil {
		errs = append(errs, b.stream.Synchronize())
	}
	for _, p := range b.plans {
		errs = append(errs, p.close())
	}
	for _, c := range b.kvs {
		errs = append(errs, c.Close())
	}
	for _, m := range b.bufs {
		errs = append(errs, m.Close())
	}
	errs = append(errs, b.step.close())
	if b.ks != nil {
		errs = append(errs, b.ks.Close())
	}
	if b.stream != nil {
		errs = append(errs, b.stream.Close())
	}
	b.plans, b.kvs, b.bufs = nil, nil, nil
	return errors.Join(append(errs, b.ctx.Close())...)
}

// fail keeps the first error of a step.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// buf is an activation matrix.
type buf struct {
	rows, cols, most int
	mem              *cuda.Buffer
}

func (m *buf) Shape() (int, int) { return m.rows, m.cols }

// Alloc makes an activation matrix of at most rows rows.
func (b *Backend) Alloc(rows, cols int) (ops.Buf, error) {
	if rows < 1 || cols < 1 || rows > 1<<24 || cols > 1<<24 {
		return nil, fmt.Errorf("cuda: buffer of %d rows and %d columns", rows, cols)
	}
	mem, err := b.ctx.Alloc(int64(rows) * int64(cols) * 2)
	if err != nil {
		return nil, err
	}
	b.bufs = append(b.bufs, mem)
	return &buf{cols: cols, most: rows, mem: mem}, nil
}

// Write sets a buffer to x, [rows, cols], rounded to the type of activations, after what was put into the stream.
func (b *Backend) Write(dst ops.Buf, x []float32) error {
	d := dst.(*buf)
	if len(x)%d.cols != 0 || len(x)/d.cols > d.most {
		return fmt.Errorf("cuda: %d numbers into a buffer of %d × %d", len(x), d.most, d.cols)
	}
	bytes := make([]byte, 2*len(x))
	if err := quant.Quantize(b.opts.Type, bytes, x); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	d.rows = len(x) / d.cols
	return b.stream.Upload(d.mem.Ptr(), bytes)
}

// Read returns what a buffer holds, after what was put into the stream.
func (b *Backend) Read(src ops.Buf) ([]float32, error) {
	d := src.(*buf)
	bytes, x := make([]byte, 2*d.rows*d.cols), make([]float32, d.rows*d.cols)
	if err := b.stream.Download(bytes, d.mem.Ptr()); err != nil {
		return nil, err
	}
	return x, quant.Dequantize(b.opts.Type, x, bytes)
}

// vector is an uploaded vector of float32.
type vector struct {
	cols int
	mem  *cuda.Buffer
}

func (w *vector) Shape() (int, int) { return 1, w.cols }
func (w *vector) Type() quant.Type  { return quant.F32 }

// Upload accepts a vector of float32: attention sinks.
func (b *Backend) Upload(name string, t quant.Type, rows, cols int, data []byte) (ops.Weight, error) {
	if t != quant.F32 || rows != 1 || cols < 1 || len(data) != 4*cols {
		return nil, fmt.Errorf("cuda: tensor %s of type %v, [%d, %d]: only vectors of float32 are taken yet", name, t, rows, cols)
	}
	mem, err := b.ctx.Alloc(int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("cuda: tensor %s: %w", name, err)
	}
	b.bufs = append(b.bufs, mem)
	return &vector{cols, mem}, b.stream.Upload(mem.Ptr(), data)
}

// rope is a rotary embedding's frequencies on the device.
type rope struct {
	freq []float32
	mem  *cuda.Buffer
}

// ropeOf returns where the frequencies are, uploading them when they are new.
func (b *Backend) ropeOf(freq []float32) (attention.Ptr, error) {
	if len(freq) == 0 {
		return 0, nil
	}
	i := slices.IndexFunc(b.ropes, func(r rope) bool { return slices.Equal(r.freq, freq) })
	if i < 0 {
		mem, err := b.ctx.Alloc(int64(4 * len(freq)))
		if err != nil {
			return 0, err
		}
		b.bufs = append(b.bufs, mem)
		b.ropes = append(b.ropes, rope{slices.Clone(freq), mem})
		i = len(b.ropes) - 1
		if err := b.stream.Upload(mem.Ptr(), cuda.AsBytes(freq)); err != nil {
			return 0, err
		}
	}
	return b.ropes[i].mem.Ptr(), nil
}
