package cpu

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/flashdecode/flashdecode/internal/mem"
	"github.com/flashdecode/flashdecode/internal/pool"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/simd/qgemm"
	"github.com/flashdecode/flashdecode/internal/simd/vec"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
)

// Options are the choices of New. The zero value is the fastest.
type Options struct {
	Workers int         // 0: one for each processor that Go may use
	Level   *simd.Level // nil: the strongest this machine has
	// FileOrder keeps weights in the order of the file instead of repacking them into strips at first use: no second
	// copy in memory and no time to make it, for a slower product.
	FileOrder bool
	// Evict is told which bytes of an uploaded tensor are no longer needed because a repacked copy exists. The file's
	// owner can give those pages back.
	Evict func(data []byte)
	// Fault turns the panic of an access to weights that have vanished (a truncated file) into an error; nil means
	// that the panic's own words must do.
	Fault func(recovered any) error
}

// Backend implements ops.Backend on processors. One goroutine at a time may use it.
type Backend struct {
	opts  Options
	level simd.Level
	vec   *vec.Kernels
	mul   *qgemm.Kernels
	pool  *pool.Pool

	batch *ops.Batch
	seqOf []int32 // [rows] the sequence that a row of the batch belongs to
	step  uint64  // number of the step, which tells what belongs to an older one
	err   error

	acts    qgemm.Acts
	sum     []float32 // products before they join the residual stream, [rows, out]
	weights []*weight
	packed  []*mem.Region
	bufs    []*mem.Region
	kvs     []*kv
	ropes   []ropeTable
	regions regions
	attend  attendTask
	closed  bool
}

var _ ops.Backend = (*Backend)(nil)

// New starts the workers.
func New(o Options) (*Backend, error) {
	if o.Workers < 0 {
		return nil, fmt.Errorf("cpu: %d workers", o.Workers)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	b := &Backend{opts: o, level: simd.Detect()}
	if o.Level != nil {
		if *o.Level > b.level {
			return nil, fmt.Errorf("cpu: this machine or build has no %v instructions (strongest: %v)", *o.Level, b.level)
		}
		b.level = *o.Level
	}
	b.vec, b.mul = vec.New(b.level), qgemm.New(b.level)
	b.pool = pool.New(o.Workers)
	b.regions.init(b)
	b.attend.init(b)
	return b, nil
}

// Limits implements ops.Backend.
func (b *Backend) Limits() ops.Limits {
	return ops.Limits{
		Name:    fmt.Sprintf("cpu/%v, %d threads", b.level, b.pool.Workers()),
		Plan:    plan.CPU(b.pool.Workers()),
		KVTypes: ops.KVTypes(),
	}
}

// buf is an activation matrix.
type buf struct {
	rows, cols int
	data       []float32 // [capacity, cols]
}

func (b *buf) Shape() (int, int)   { return b.rows, b.cols }
func (b *buf) row(r int) []float32 { return b.data[r*b.cols : (r+1)*b.cols] }

// Alloc implements ops.Backend. Memory is taken as rows are first used.
func (b *Backend) Alloc(rows, cols int) (ops.Buf, error) {
	if rows < 1 || cols < 1 || rows > 1<<24 || cols > 1<<28/rows*16 {
		return nil, fmt.Errorf("cpu: buffer of %d rows and %d columns", rows, cols)
	}
	r, err := mem.Reserve(int64(rows) * int64(cols) * 4)
	if err != nil {
		return nil, err
	}
	b.bufs = append(b.bufs, r)
	return &buf{cols: cols, data: floatsOf(r.Bytes)}, nil
}

// Begin implements ops.Backend.
func (b *Backend) Begin(batch *ops.Batch) error {
	if b.closed {
		return errors.New("cpu: step on a closed backend")
	}
	b.batch, b.err = batch, nil
	b.seqOf = b.seqOf[:0]
	for s := range batch.Seqs() {
		for range batch.QLen(s) {
			b.seqOf = append(b.seqOf, int32(s))
		}
	}
	b.step++
	b.pool.Begin()
	return nil
}

// End implements ops.Backend.
func (b *Backend) End() error {
	f := b.pool.End()
	if f != nil {
		b.err = b.fault(f) // the cause of other errors, if there are any
	}
	b.batch = nil
	return b.err
}

// fault explains a panic of a worker.
func (b *Backend) fault(f *pool.Fault) error {
	if b.opts.Fault != nil {
		if err := b.opts.Fault(f.Value); err != nil {
			return fmt.Errorf("cpu: %w", err)
		}
	}
	return fmt.Errorf("cpu: %w\n%s", f, f.Stack)
}

func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Close implements ops.Backend.
func (b *Backend) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.pool.Close()
	var errs []error
	for _, c := range b.kvs {
		errs = append(errs, c.Close())
	}
	for _, rs := range [][]*mem.Region{b.packed, b.bufs} {
		for _, r := range rs {
			errs = append(errs, r.Free())
		}
	}
	return errors.Join(errs...)
}
