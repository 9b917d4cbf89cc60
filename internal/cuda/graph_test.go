package cuda_test

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// TestCapture: nothing runs while it is recorded; a replay repeats the arguments of the recording, on the memory's
// contents of its own time.
func TestCapture(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_axpy", axpyKernel())
	b, h := w.alloc(8), w.host(4)
	p := axpy{X: b.Ptr(), Y: b.Ptr() + 4, A: 2, N: 1}
	l := must(f.NewLaunch(cuda.Arg(&p)))(t)
	l.Grid, l.Block, l.PDL = cuda.Dim3{X: 1}, cuda.Dim3{X: 32}, true
	w.check(w.s.Fill32(b.Ptr(), math.Float32bits(1), 2))
	g, err := w.s.Capture(func() error {
		return errors.Join(w.s.CopyIn(b.Ptr(), h, 0, 4), l.Run(w.s), l.Run(w.s))
	})
	w.check(err)
	p.A = 1000
	if n := must(g.Nodes())(t); n != 3 {
		t.Errorf("%d nodes, want 3", n)
	}
	x := must(g.Instantiate())(t)
	w.close(g) // the Exec doesn't need it
	w.check(w.s.Synchronize())
	if n := len(w.fake.Launches()); n != 0 {
		t.Fatalf("%d launches ran during the capture", n)
	}
	got := make([]float32, 1)
	want := float32(1)
	for _, v := range []float32{3, -5} {
		copy(h.Bytes(), cuda.AsBytes([]float32{v}))
		w.check(x.Upload(w.s))
		w.check(x.Launch(w.s))
		w.check(w.s.Download(cuda.AsBytes(got), b.Ptr()+4))
		if want += 2 * 2 * v; got[0] != want {
			t.Errorf("after %v: %v, want %v", v, got[0], want)
		}
	}
	if log := w.fake.Launches(); len(log) != 4 || !log[3].PDL {
		t.Errorf("launches %+v", log)
	}
	// A graph inside a graph.
	g = must(w.s.Capture(func() error { return errors.Join(x.Launch(w.s), x.Launch(w.s)) }))(t)
	if n := must(g.Nodes())(t); n != 6 {
		t.Errorf("%d nodes, want 6", n)
	}
	w.close(g, x)
}

// TestCaptureFails: whatever happens inside, the stream works afterwards and no graph is left.
func TestCaptureFails(t *testing.T) {
	w := open(t, cudatest.Options{})
	b := w.alloc(8)
	own := errors.New("own")
	for _, c := range []struct {
		name string
		f    func() error
		kind error
	}{
		{"error", func() error { return own }, own},
		{"Synchronize", w.s.Synchronize, cuda.ErrCapture},
		{"Done", second(w.s.Done), cuda.ErrCapture},
		{"Upload", func() error { return w.s.Upload(b.Ptr(), []byte{1}) }, cuda.ErrCapture},
		{"Download", func() error { return w.s.Download([]byte{1}, b.Ptr()) }, cuda.ErrCapture},
		{"Alloc", func() error { return second3(w.ctx.Alloc(8)) }, cuda.ErrCapture},
		{"AllocHost", func() error { return second3(w.ctx.AllocHost(8)) }, cuda.ErrCapture},
		{"LoadModule", func() error { return second3(w.ctx.LoadModule(cudatest.Image())) }, cuda.ErrCapture},
		{"Capture", func() error { return second3(w.s.Capture(func() error { return nil })) }, cuda.ErrCapture},
		{"swallowed", func() error { w.ctx.Alloc(8); return nil }, cuda.ErrCapture},
		{"not joined", fork(w, b.Ptr(), false), cuda.ErrCapture},
	} {
		g, err := w.s.Capture(c.f)
		if g != nil {
			t.Errorf("%s: a graph", c.name)
		}
		wantErr(t, c.name, err, c.kind)
		w.check(w.s.Fill(b.Ptr(), 1, 1))
		w.check(w.s.Synchronize())
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic got lost")
			}
		}()
		w.s.Capture(func() error { panic("mine") })
	}()
	w.check(w.s.Synchronize())
}

// fork returns what runs a fill on a second stream inside a capture of w.s, and joins it or not.
func fork(w *world, p cuda.Ptr, join bool) func() error {
	s2 := must(w.ctx.NewStream(cuda.NormalPriority))(w.t)
	e := must(w.ctx.NewEvent(false))(w.t)
	w.t.Cleanup(func() { w.close(s2, e) })
	return func() error {
		err := errors.Join(w.s.Fill(p, 1, 1), w.s.Record(e), s2.Wait(e), s2.Fill(p, 2, 1), s2.Record(e))
		if join {
			err = errors.Join(err, w.s.Wait(e))
		}
		return errors.Join(err, w.s.Fill(p+1, 3, 1))
	}
}

// joined: a stream that joined a capture is captured as well. Waiting for it is refused, and spoils nothing.
func joined(w *world, p cuda.Ptr) {
	w.t.Helper()
	s2, e := must(w.ctx.NewStream(cuda.NormalPriority))(w.t), must(w.ctx.NewEvent(false))(w.t)
	defer w.close(s2, e)
	g, err := w.s.Capture(func() error {
		err := errors.Join(w.s.Record(e), s2.Wait(e))
		wantErr(w.t, "Synchronize", s2.Synchronize(), cuda.ErrCapture, "Stream.Synchronize")
		wantErr(w.t, "Upload", s2.Upload(p, []byte{1}), cuda.ErrCapture, "Stream.Upload")
		return errors.Join(err, s2.Record(e), w.s.Wait(e))
	})
	w.check(err)
	w.close(g)
	w.check(s2.Synchronize())
}

func TestCaptureFork(t *testing.T) {
	w := open(t, cudatest.Options{})
	b := w.alloc(8)
	g, err := w.s.Capture(fork(w, b.Ptr(), true))
	w.check(err)
	x := must(g.Instantiate())(t)
	w.check(x.Launch(w.s))
	got := make([]byte, 2)
	w.check(w.s.Download(got, b.Ptr()))
	if n := must(g.Nodes())(t); n != 3 || got[0] != 2 || got[1] != 3 {
		t.Errorf("%d nodes, memory %v", n, got)
	}
	w.close(x, g)

	joined(w, b.Ptr())

	// An event from outside can't be waited for inside, nor one from inside asked outside.
	e := must(w.ctx.NewEvent(false))(t)
	defer w.close(e)
	w.check(w.s.Record(e))
	_, err = w.s.Capture(func() error { return w.s.Wait(e) })
	wantErr(t, "Wait", err, cuda.ErrCapture)
	g, err = w.s.Capture(func() error { return w.s.Record(e) })
	w.check(err)
	w.close(g)
	wantErr(t, "Synchronize", e.Synchronize(), cuda.ErrCapture, "last recorded in a capture")
	w.check(w.s.Record(e))
	w.check(e.Synchronize())
}

// hopping gives the scheduler a chance to move the goroutine after its context was made current.
type hopping struct{ *cudatest.Driver }

func (h hopping) CtxSetCurrent(c driver.Context) driver.Result {
	r := h.Driver.CtxSetCurrent(c)
	runtime.Gosched()
	return r
}

// TestBound: a goroutine stays on the thread on which its context is current. Two contexts in use on few threads show
// it if not.
func TestBound(t *testing.T) {
	fake := cudatest.New(cudatest.Options{Devices: []cudatest.Spec{cudatest.H200(), cudatest.H200()}})
	drv := must(cuda.New(hopping{fake}))(t)
	var wg sync.WaitGroup
	for i := range 8 {
		ctx := must(must(drv.Device(i % 2))(t).Open())(t)
		wg.Go(func() {
			for range 100 {
				b, err := ctx.Alloc(8)
				if err == nil {
					err = b.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if err := ctx.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestConcurrent: every call binds its own thread, so goroutines may share a context; -race watches the rest.
func TestConcurrent(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_axpy", axpyKernel())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := w.ctx.NewStream(cuda.NormalPriority)
			if err != nil {
				t.Error(err)
				return
			}
			b, err := w.ctx.Alloc(8)
			if err != nil {
				t.Error(err)
				return
			}
			p := axpy{X: b.Ptr(), Y: b.Ptr() + 4, A: float32(i), N: 1}
			l, err := f.NewLaunch(cuda.Arg(&p))
			if err != nil {
				t.Error(err)
				return
			}
			l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 32}
			for range 20 {
				got := make([]float32, 1)
				g, cerr := s.Capture(func() error { return l.Run(s) })
				if cerr != nil {
					t.Error(cerr)
					return
				}
				err := errors.Join(s.Fill32(b.Ptr(), math.Float32bits(1), 2), l.Run(s), s.Download(cuda.AsBytes(got), b.Ptr()+4), g.Close())
				if err != nil || got[0] != float32(i+1) {
					t.Errorf("%d: %v, %v", i, got, err)
					return
				}
			}
			if err := errors.Join(b.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
