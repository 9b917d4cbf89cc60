package cuda_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// world is a fake device with one stream open on it; its cleanup closes both, before the leak check.
type world struct {
	t    *testing.T
	fake *cudatest.Driver
	drv  *cuda.Driver
	dev  *cuda.Device
	ctx  *cuda.Context
	s    *cuda.Stream
}

func open(t *testing.T, o cudatest.Options) *world {
	t.Helper()
	drv, fake := cudatest.Open(t, o)
	w := &world{t: t, fake: fake, drv: drv}
	w.dev = must(drv.Device(0))(t)
	w.ctx = must(w.dev.Open())(t)
	w.s = must(w.ctx.NewStream(cuda.NormalPriority))(t)
	t.Cleanup(func() {
		w.close(w.s)
		w.close(w.ctx)
	})
	return w
}

type closer interface{ Close() error }

func (w *world) close(cs ...closer) {
	w.t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			w.t.Errorf("Close of %T: %v", c, err)
		}
	}
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) alloc(n int64) *cuda.Buffer {
	w.t.Helper()
	b := must(w.ctx.Alloc(n))(w.t)
	w.t.Cleanup(func() { w.close(b) })
	return b
}

func (w *world) host(n int64) *cuda.HostBuffer {
	w.t.Helper()
	b := must(w.ctx.AllocHost(n))(w.t)
	w.t.Cleanup(func() { w.close(b) })
	return b
}

// kernel registers k under a name and returns the function.
func (w *world) kernel(name string, k cudatest.Kernel) *cuda.Function {
	w.t.Helper()
	w.fake.AddKernel(name, k)
	m := must(w.ctx.LoadModule(cudatest.Image(name)))(w.t)
	w.t.Cleanup(func() { w.close(m) })
	return must(m.Function(name))(w.t)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantErr(t *testing.T, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got %v, want %v", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q doesn't say %q", what, err, w)
		}
	}
}

// axpy is the arguments of a kernel as C has them: y += a·x.
type axpy struct {
	X, Y cuda.Ptr
	A    float32
	N    int32
}

// axpyKernel needs 24 bytes of argument.
func axpyKernel() cudatest.Kernel {
	return cudatest.Kernel{Params: []int{24}, Regs: 32, Run: func(c *cudatest.Call) {
		p := cudatest.Arg[axpy](c, 0)
		x, y := cudatest.Load[float32](c, p.X, int(p.N)), cudatest.Load[float32](c, p.Y, int(p.N))
		for i := range y {
			y[i] += p.A * x[i]
		}
		cudatest.Store(c, p.Y, y)
	}}
}

func TestDevice(t *testing.T) {
	spec := cudatest.H200()
	spec.Attributes[driver.DevSMs] = 7
	drv, _ := cudatest.Open(t, cudatest.Options{Devices: []cudatest.Spec{cudatest.A100(), spec}})
	all := must(drv.Devices())(t)
	if len(all) != 2 || all[0].Name != "NVIDIA A100-SXM4-80GB" || all[0].Clusters || all[0].Major != 8 {
		t.Errorf("devices: %v", all)
	}
	d := all[1]
	if d.SMs != 7 || d.Index != 1 || d.Major != 9 || d.Minor != 0 || !d.Clusters || !d.Cooperative || !d.VirtualMemory ||
		d.L2Bytes != 60<<20 || d.SharedPerBlockBytes != 232448 || d.MemoryBytes < 140e9 || d.PCI != "0000:1b:00" || d.UUID[15] != 2 {
		t.Errorf("device: %+v", d)
	}
	// 6016 bits twice a clock of 3201 MHz.
	if got, want := d.PeakBytesPerSecond(), 4.8143e12; math.Abs(got/want-1) > 1e-4 {
		t.Errorf("peak %g, want %g", got, want)
	}
	for _, i := range []int{-1, 2, 1 << 40} {
		_, err := drv.Device(i)
		wantErr(t, "Device", err, cuda.ErrNoDevice)
	}
}

func TestUploadDownload(t *testing.T) {
	w := open(t, cudatest.Options{})
	for _, n := range []int64{1, 2, 65535, 65536, 65537, 200_001} { // around the fake's chunk
		b := w.alloc(n + 2)
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i * 7)
		}
		w.check(w.s.Upload(b.Ptr()+1, src))
		w.check(w.s.Download(dst, b.Ptr()+1))
		if !bytes.Equal(src, dst) {
			t.Errorf("%d bytes: not the same", n)
		}
		edge := make([]byte, 1)
		for _, at := range []cuda.Ptr{b.Ptr(), b.Ptr() + cuda.Ptr(n) + 1} {
			w.check(w.s.Download(edge, at))
			if edge[0] != 0xFF {
				t.Errorf("%d bytes: a neighbour was written", n)
			}
		}
	}
	w.check(w.s.Upload(0, nil))
	w.check(w.s.Download(nil, 0))
}

func TestFill(t *testing.T) {
	w := open(t, cudatest.Options{})
	b := w.alloc(64)
	w.check(w.s.Fill(b.Ptr(), 0, 64))
	w.check(w.s.Fill32(b.Ptr()+4, 0x01020304, 3))
	w.check(w.s.Fill(b.Ptr()+20, 9, 1))
	w.check(w.s.Copy(b.Ptr()+32, b.Ptr(), 32))
	got := make([]byte, 64)
	w.check(w.s.Download(got, b.Ptr()))
	half := append([]byte{0, 0, 0, 0, 4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 0, 0, 0, 0, 9}, make([]byte, 11)...)
	if want := append(half[:32:32], half...); !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, f := range []func() error{
		func() error { return w.s.Fill(b.Ptr(), 0, 0) }, func() error { return w.s.Fill32(b.Ptr(), 0, 0) },
		func() error { return w.s.Copy(b.Ptr(), b.Ptr(), 0) },
	} {
		w.check(f())
	}
	wantErr(t, "Fill", w.s.Fill(b.Ptr(), 0, -1), cuda.ErrInvalid)
	wantErr(t, "Fill32", w.s.Fill32(b.Ptr(), 0, -1), cuda.ErrInvalid)
	wantErr(t, "Copy", w.s.Copy(b.Ptr(), b.Ptr(), -1), cuda.ErrInvalid)
}

func TestHostBuffer(t *testing.T) {
	w := open(t, cudatest.Options{})
	dev, h := w.alloc(32), w.host(32)
	copy(h.Bytes(), "page-locked memory, 32 bytes ...")
	if h.Ptr() == 0 || len(h.Bytes()) != 32 {
		t.Error("no memory")
	}
	w.check(w.s.CopyIn(dev.Ptr(), h, 5, 6))
	// The copy reads the memory when it runs: what is there now counts.
	copy(h.Bytes()[5:], "LOCKED")
	w.check(w.s.CopyOut(h, 20, dev.Ptr(), 6))
	if string(h.Bytes()[20:26]) == "LOCKED" {
		t.Error("the copy ran before anybody waited for it")
	}
	w.check(w.s.Synchronize())
	if got := string(h.Bytes()[20:26]); got != "LOCKED" {
		t.Errorf("got %q", got)
	}
	w.check(w.s.CopyIn(dev.Ptr(), h, 32, 0))
	for _, c := range [][2]int64{{-1, 1}, {0, -1}, {33, 0}, {32, 1}, {1, 32}, {1, math.MaxInt64}, {math.MaxInt64, 1}} {
		wantErr(t, "CopyIn", w.s.CopyIn(dev.Ptr(), h, c[0], c[1]), cuda.ErrInvalid)
		wantErr(t, "CopyOut", w.s.CopyOut(h, c[0], dev.Ptr(), c[1]), cuda.ErrInvalid)
	}
	for _, n := range []int64{0, -1} {
		_, err := w.ctx.AllocHost(n)
		wantErr(t, "AllocHost", err, cuda.ErrInvalid)
		_, err = w.ctx.Alloc(n)
		wantErr(t, "Alloc", err, cuda.ErrInvalid)
	}
}

func TestLaunch(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_axpy", axpyKernel())
	x, y := []float32{1, 2, 3}, []float32{10, 20, 30}
	dx, dy := w.alloc(12), w.alloc(12)
	w.check(w.s.Upload(dx.Ptr(), cuda.AsBytes(x)))
	w.check(w.s.Upload(dy.Ptr(), cuda.AsBytes(y)))
	p := axpy{X: dx.Ptr(), Y: dy.Ptr(), A: 2, N: 3}
	l := must(f.NewLaunch(cuda.Arg(&p)))(t)
	l.Grid, l.Block, l.SharedBytes, l.PDL = cuda.Dim3{X: 4, Y: 2}, cuda.Dim3{X: 128}, 1024, true
	l.Cluster, l.Cooperative = cuda.Dim3{X: 2, Y: 2}, true
	w.check(l.Run(w.s))
	p.A = 100 // of the next launch: arguments are read by Run
	l.Cluster, l.Cooperative, l.PDL, l.SharedBytes = cuda.Dim3{}, false, false, 0
	w.check(l.Run(w.s))
	w.check(w.s.Download(cuda.AsBytes(y), dy.Ptr()))
	if want := [3]float32{112, 224, 336}; [3]float32(y) != want {
		t.Errorf("y = %v, want %v", y, want)
	}
	log := w.fake.Launches()
	if len(log) != 2 {
		t.Fatalf("%d launches", len(log))
	}
	a, b := log[0], log[1]
	if a.Name != "fd_axpy" || a.Grid != (cuda.Dim3{X: 4, Y: 2, Z: 1}) || a.Block != (cuda.Dim3{X: 128, Y: 1, Z: 1}) ||
		a.Cluster != (cuda.Dim3{X: 2, Y: 2, Z: 1}) || !a.Cooperative || !a.PDL || a.SharedBytes != 1024 {
		t.Errorf("first launch: %+v", a)
	}
	if b.Cluster != (cuda.Dim3{}) || b.Cooperative || b.PDL || b.SharedBytes != 0 {
		t.Errorf("second launch keeps attributes of the first: %+v", b)
	}
	if l.Function() != f {
		t.Error("Function")
	}
}

func TestEventsOrderStreams(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_axpy", axpyKernel())
	s2 := must(w.ctx.NewStream(cuda.HighPriority))(t)
	start, mid, end := must(w.ctx.NewEvent(true))(t), must(w.ctx.NewEvent(false))(t), must(w.ctx.NewEvent(true))(t)
	t.Cleanup(func() { w.close(s2, start, mid, end) })
	b := w.alloc(8)
	p := axpy{X: b.Ptr(), Y: b.Ptr() + 4, A: 3, N: 1}
	l := must(f.NewLaunch(cuda.Arg(&p)))(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 32}

	w.check(s2.Wait(mid)) // never recorded: no wait
	w.check(w.s.Record(start))
	w.check(w.s.Fill32(b.Ptr(), math.Float32bits(2), 2))
	w.check(w.s.Record(mid))
	w.check(s2.Wait(mid))
	w.check(l.Run(s2)) // 2 + 3·2
	w.check(s2.Record(end))
	if _, err := end.Since(start); err == nil {
		t.Error("Since before the end")
	}
	if ok, err := end.Done(); ok || err != nil {
		t.Errorf("Done: %v, %v", ok, err)
	}
	w.check(end.Synchronize())
	if ok, err := end.Done(); !ok || err != nil {
		t.Errorf("Done: %v, %v", ok, err)
	}
	if ok, err := s2.Done(); !ok || err != nil {
		t.Errorf("Stream.Done: %v, %v", ok, err)
	}
	if d, err := end.Since(start); err != nil || d.Microseconds() != 4 { // fill, record, launch, record
		t.Errorf("Since: %v, %v", d, err)
	}
	got := make([]float32, 1)
	w.check(s2.Download(cuda.AsBytes(got), b.Ptr()+4))
	if got[0] != 8 {
		t.Errorf("got %v, want 8: the launch didn't wait", got[0])
	}
	w.check(w.s.Fill(b.Ptr(), 0, 1))
	n := 0
	for ok := false; !ok; n++ {
		var err error
		ok, err = w.s.Done()
		w.check(err)
	}
	if n != 2 {
		t.Errorf("Done after %d calls, want 2: one operation was waiting", n)
	}
	if _, err := mid.Since(start); err == nil {
		t.Error("Since of an event without time")
	}
}
