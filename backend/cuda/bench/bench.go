package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/oracle"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// Options say what to measure.
type Options struct {
	Device   int
	Cells    []Cell
	Variants []Variant
	Rotate   int64  // bytes that K and V rotate over; 0: half a GiB
	Reps     int    // replays, of which the median counts; 0: 11
	NoError  bool   // don't compare with the reference
	Commit   string // goes into the rows
}

// Run measures every cell and reports it. A variant that can't run a cell is a finding, and its message takes the place
// of its time; a device that is lost ends the run.
func Run(ctx context.Context, o Options, report func(*Row) error) (err error) {
	drv, err := cuda.Open()
	if err != nil {
		return err
	}
	return run(ctx, drv, o, func(c *attention.Context) (*attention.Kernels, error) { return attention.Load(c) }, report)
}

// run is Run with a driver and kernels of a test's choice.
func run(ctx context.Context, drv *cuda.Driver, o Options, load func(*attention.Context) (*attention.Kernels, error), report func(*Row) error) (err error) {
	if o.Rotate == 0 {
		o.Rotate = 512 << 20
	}
	if o.Reps == 0 {
		o.Reps = 11
	}
	l, err := newLab(drv, o, load)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for i := range o.Cells {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := l.measure(ctx, &o.Cells[i])
		if err != nil {
			return fmt.Errorf("bench: %v: %w", &o.Cells[i], err)
		}
		row.Driver, row.Commit = drv.Version().String(), o.Commit
		if err := report(row); err != nil {
			return err
		}
	}
	return nil
}

// lab is a device made ready. Memory that cells need grows and is kept.
type lab struct {
	o      Options
	ctx    *cuda.Context
	stream *cuda.Stream
	start  *cuda.Event
	stop   *cuda.Event
	ks     *attention.Kernels
	oracle *oracle.Oracle

	pool    memory // K and V, random
	filled  attention.Type
	ready   bool
	work    memory
	q, out  memory
	lse     memory
	scores  memory
	want    memory
	wantLSE memory
	small   memory // lengths, tables
	floors  map[int64]float64
}

// memory is a buffer that grows.
type memory struct{ buf *cuda.Buffer }

func newLab(drv *cuda.Driver, o Options, load func(*attention.Context) (*attention.Kernels, error)) (l *lab, err error) {
	dev, err := drv.Device(o.Device)
	if err != nil {
		return nil, err
	}
	l = &lab{o: o, floors: map[int64]float64{}}
	if l.ctx, err = dev.Open(); err != nil {
		return nil, err
	}
	fail := func(err error) (*lab, error) { return nil, errors.Join(err, l.close()) }
	if l.stream, err = l.ctx.NewStream(cuda.NormalPriority); err != nil {
		return fail(err)
	}
	if l.start, err = l.ctx.NewEvent(true); err != nil {
		return fail(err)
	}
	if l.stop, err = l.ctx.NewEvent(true); err != nil {
		return fail(err)
	}
	if l.ks, err = load(l.ctx); err != nil {
		return fail(err)
	}
	l.oracle = oracle.New(l.ks)
	return l, nil
}

func (l *lab) close() error {
	var errs []error
	for _, m := range []*memory{&l.pool, &l.work, &l.q, &l.out, &l.lse, &l.scores, &l.want, &l.wantLSE, &l.small} {
		errs = append(errs, m.free())
	}
	if l.ks != nil {
		errs = append(errs, l.ks.Close())
	}
	for _, e := range []*cuda.Event{l.start, l.stop} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if l.stream != nil {
		errs = append(errs, l.stream.Close())
	}
	return errors.Join(append(errs, l.ctx.Close())...)
}

// get returns at least bytes bytes.
func (m *memory) get(ctx *cuda.Context, bytes int64) (p cuda.Ptr, err error) {
	if m.buf == nil || m.buf.Bytes() < bytes {
		if err := m.free(); err != nil {
			return 0, err
		}
		if m.buf, err = ctx.Alloc(max(bytes, 256)); err != nil {
			return 0, err
		}
	}
	return m.buf.Ptr(), nil
}

func (m *memory) free() error {
	if m.buf == nil {
		return nil
	}
	b := m.buf
	m.buf = nil
	return b.Close()
}

// maxLaunches bounds the launches of a graph: a million nodes would be as cold, but take seconds to make.
const maxLaunches = 1024

// layers is the fewest launches that share what a step does once, as the layers of a small model do.
const layers = 32

// launches of a graph that rotates over so many bytes, of a set each. Of large sets there are few, and some come again.
func (l *lab) launches(set int64) int {
	return int(min(maxLaunches, max(2, (l.o.Rotate+set-1)/set)))
}

// timed returns the median time of one of n things that f puts into the stream, in microseconds. once runs ahead of
// them in the graph and counts with them: what a step does once.
func (l *lab) timed(n int, once func() error, f func(i int) error) (us float64, err error) {
	g, err := l.stream.Capture(func() error {
		if err := once(); err != nil {
			return err
		}
		for i := range n {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	exec, err := g.Instantiate()
	if err = errors.Join(err, g.Close()); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, exec.Close()) }()
	times := make([]time.Duration, l.o.Reps)
	for i := range l.o.Reps + 2 { // two that are not counted
		d, err := l.replay(exec)
		if err != nil {
			return 0, err
		}
		if i >= 2 {
			times[i-2] = d
		}
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000 / float64(n), nil
}

// replay launches the graph between two events.
func (l *lab) replay(exec *cuda.Exec) (time.Duration, error) {
	if err := errors.Join(l.stream.Record(l.start), exec.Launch(l.stream), l.stream.Record(l.stop)); err != nil {
		return 0, err
	}
	if err := l.stop.Synchronize(); err != nil {
		return 0, err
	}
	return l.stop.Since(l.start)
}

func nothing() error { return nil }

// floor is the time to only read so many bytes, the best of several grids.
func (l *lab) floor(bytes int64) (float64, error) {
	bytes = max(16, bytes/16*16)
	if us, ok := l.floors[bytes]; ok {
		return us, nil
	}
	sms := l.ctx.Device().SMs
	sink, err := l.small.get(l.ctx, 1<<20)
	if err != nil {
		return 0, err
	}
	n, best := l.launches(bytes), 0.0
	sets := l.pool.buf.Bytes() / bytes
	for _, waves := range []int{1, 2, 4, 8, 16} {
		for _, unroll := range []int{4, 8} {
			us, err := l.timed(n, nothing, func(i int) error {
				return l.oracle.Read(l.stream, l.pool.buf.Ptr()+cuda.Ptr(int64(i)%sets*bytes), bytes, unroll, waves*sms, sink)
			})
			if err != nil {
				return 0, err
			}
			if best == 0 || us < best {
				best = us
			}
		}
	}
	l.floors[bytes] = best
	return best, nil
}
