package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	_ "embed"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// The tests in this file run on the first real device. Without a driver they skip; FLASHDECODE_GPU=1 makes that a
// failure. On a machine without Go: CGO_ENABLED=0 go test -c ./internal/cuda, then
// ./cuda.test -test.v -test.run TestDevice.

//go:embed testdata/fd_axpy.ptx
var axpyPTX []byte

//go:embed testdata/fd_chain.ptx
var chainPTX []byte

// device opens the real device. A test that hangs ends the process after a minute: it can't be ended otherwise.
func device(t *testing.T) *world {
	t.Helper()
	drv, err := cuda.Open()
	var dev *cuda.Device
	if err == nil {
		dev, err = drv.Device(0)
	}
	if err != nil {
		if os.Getenv("FLASHDECODE_GPU") != "" {
			t.Fatal(err)
		}
		t.Skipf("no device to test on: %v", err)
	}
	watchdog := time.AfterFunc(time.Minute, func() {
		fmt.Fprintf(os.Stderr, "%s: the device hangs\n", t.Name())
		os.Exit(3)
	})
	w := &world{t: t, drv: drv, dev: dev}
	w.ctx = must(dev.Open())(t)
	w.s = must(w.ctx.NewStream(cuda.NormalPriority))(t)
	t.Cleanup(func() {
		w.check(w.s.Synchronize())
		w.close(w.s, w.ctx)
		watchdog.Stop()
	})
	return w
}

// load returns a function of a PTX text.
func (w *world) load(ptx []byte, name string) *cuda.Function {
	w.t.Helper()
	m := must(w.ctx.LoadModule(ptx))(w.t)
	w.t.Cleanup(func() { w.check(w.s.Synchronize()); w.close(m) })
	return must(m.Function(name))(w.t)
}

func (w *world) hopper() {
	w.t.Helper()
	if w.dev.Major < 9 {
		w.t.Skipf("%v is older than Hopper", w.dev)
	}
}

func (w *world) prepare(f *cuda.Function, blocks, threads int, args ...cuda.Param) *cuda.Launch {
	w.t.Helper()
	l := must(f.NewLaunch(args...))(w.t)
	l.Grid, l.Block = cuda.Dim3{X: uint32(blocks)}, cuda.Dim3{X: uint32(threads)}
	return l
}

// TestDeviceAttributes: what the device says is plausible and, where the fake device claims to be the same, equal.
func TestDeviceAttributes(t *testing.T) {
	w := device(t)
	free, total, err := w.ctx.MemInfo()
	w.check(err)
	t.Logf("%v, CUDA %v, %d MiB free, peak %.0f GB/s\n%+v", w.dev, w.drv.Version(), free>>20, w.dev.PeakBytesPerSecond()/1e9, *w.dev)
	d := w.dev
	if d.SMs <= 0 || d.L2Bytes < 1<<20 || d.WarpSize != 32 || d.SharedPerBlockBytes < 48<<10 || d.ClockKHz < 1e5 || d.MemoryBytes < 1<<30 ||
		free <= 0 || free > total || total > d.MemoryBytes {
		t.Errorf("implausible: %+v, free %d, total %d", d, free, total)
	}
	for _, spec := range []cudatest.Spec{cudatest.H200(), cudatest.A100()} {
		if spec.Name != d.Name {
			continue
		}
		drv := must(cuda.New(cudatest.New(cudatest.Options{Devices: []cudatest.Spec{spec}})))(t)
		fake, same := *must(drv.Device(0))(t), *d
		// Clocks, addresses and the last bytes of memory differ from one to the next.
		for _, v := range []*cuda.Device{&fake, &same} {
			*v = cuda.Device{Major: v.Major, Minor: v.Minor, SMs: v.SMs, L2Bytes: v.L2Bytes, MemoryBytes: v.MemoryBytes >> 31,
				MemoryBusBits: v.MemoryBusBits, WarpSize: v.WarpSize, MaxThreadsPerBlock: v.MaxThreadsPerBlock,
				MaxThreadsPerSM: v.MaxThreadsPerSM, MaxBlocksPerSM: v.MaxBlocksPerSM, RegsPerSM: v.RegsPerSM,
				SharedPerBlockBytes: v.SharedPerBlockBytes, SharedPerSMBytes: v.SharedPerSMBytes, SharedReservedBytes: v.SharedReservedBytes,
				Cooperative: v.Cooperative, Clusters: v.Clusters, VirtualMemory: v.VirtualMemory}
		}
		if fake != same {
			t.Errorf("the fake %s is\n%+v, the device\n%+v", spec.Name, fake, same)
		}
	}
}

// TestDeviceLaunch: arguments arrive, results come back, sizes are checked, occupancy is told.
func TestDeviceLaunch(t *testing.T) {
	w := device(t)
	f := w.load(axpyPTX, "fd_axpy")
	if f.Regs <= 0 || f.MaxThreads < 256 || f.LocalBytes != 0 {
		t.Errorf("%+v", f)
	}
	const n = 100_003
	x, y, want := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i), float32(-3*i)
		want[i] = float32(2*i - 3*i)
	}
	dx, dy := w.alloc(4*n), w.alloc(4*n)
	w.check(w.s.Upload(dx.Ptr(), cuda.AsBytes(x)))
	w.check(w.s.Upload(dy.Ptr(), cuda.AsBytes(y)))
	p := axpy{X: dx.Ptr(), Y: dy.Ptr(), A: 2, N: n}
	l := w.prepare(f, (n+255)/256, 256, cuda.Arg(&p))
	w.check(l.Run(w.s))
	w.check(w.s.Download(cuda.AsBytes(y), dy.Ptr()))
	for i := range y {
		if y[i] != want[i] {
			t.Fatalf("y[%d] = %v, want %v", i, y[i], want[i])
		}
	}
	if w.drv.Version() >= 12040 {
		_, err := f.NewLaunch(cuda.Arg(new(int32)))
		wantErr(t, "argument of a wrong size", err, cuda.ErrInvalid, "4 bytes, the kernel takes 24")
		_, err = f.NewLaunch()
		wantErr(t, "no argument", err, cuda.ErrInvalid)
		_, err = f.NewLaunch(cuda.Arg(&p), cuda.Arg(&p))
		wantErr(t, "two arguments", err, cuda.ErrInvalid)
	}
	l.Block.X = 4096
	wantErr(t, "too many threads", l.Run(w.s), cuda.ErrInvalid, "block 4096")
	w.check(f.SetDynamicShared(w.dev.SharedPerBlockBytes))
	if b := must(f.MaxBlocksPerSM(256, w.dev.SharedPerBlockBytes))(t); b != 1 {
		t.Errorf("%d blocks an SM with all of its shared memory", b)
	}
	// A cooperative grid of exactly what is resident, and one block more.
	perSM := must(f.MaxBlocksPerSM(256, 0))(t)
	l = w.prepare(f, perSM*w.dev.SMs, 256, cuda.Arg(&p))
	l.Cooperative = true
	w.check(l.Run(w.s))
	l.Grid.X++
	wantErr(t, "cooperative", l.Run(w.s), cuda.ErrTooLarge)
	w.check(w.s.Synchronize())
	_, err := w.ctx.LoadModule([]byte(".version 7.0\n.target sm_80\nnonsense"))
	wantErr(t, "bad PTX", err, cuda.ErrNoKernel, "ptxas")
}

// TestDeviceOutOfMemory: the context survives.
func TestDeviceOutOfMemory(t *testing.T) {
	w := device(t)
	_, err := w.ctx.Alloc(w.dev.MemoryBytes + 1<<30)
	wantErr(t, "Alloc", err, cuda.ErrOutOfMemory, "free")
	b := w.alloc(16)
	w.check(w.s.Fill32(b.Ptr(), 0x01020304, 4))
	got := make([]uint32, 4)
	w.check(w.s.Download(cuda.AsBytes(got), b.Ptr()))
	if got[3] != 0x01020304 {
		t.Errorf("%#x", got)
	}
}

// TestDeviceHostMemory: asynchronous copies through page-locked memory, ordered across streams by an event.
func TestDeviceHostMemory(t *testing.T) {
	w := device(t)
	const n = 1 << 20
	h, b := w.host(2*n), w.alloc(n)
	for i := range n {
		h.Bytes()[i] = byte(i * 31 >> 3)
	}
	s2 := must(w.ctx.NewStream(cuda.HighPriority))(t)
	start, copied, end := must(w.ctx.NewEvent(true))(t), must(w.ctx.NewEvent(false))(t), must(w.ctx.NewEvent(true))(t)
	t.Cleanup(func() { w.close(s2, start, copied, end) })
	w.check(w.s.Record(start))
	w.check(w.s.CopyIn(b.Ptr(), h, 0, n))
	w.check(w.s.Record(copied))
	w.check(s2.Wait(copied))
	w.check(s2.CopyOut(h, n, b.Ptr(), n))
	w.check(s2.Record(end))
	w.check(end.Synchronize())
	for i := range n {
		if h.Bytes()[i] != h.Bytes()[n+i] {
			t.Fatalf("byte %d: %d, want %d", i, h.Bytes()[n+i], h.Bytes()[i])
		}
	}
	if d, err := end.Since(start); err != nil || d <= 0 || d > time.Second {
		t.Errorf("there and back: %v, %v", d, err)
	}
	for name, f := range map[string]func() (bool, error){"stream": s2.Done, "event": end.Done} {
		if ok, err := f(); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	// A kernel reaches the memory directly.
	f := w.load(axpyPTX, "fd_axpy")
	copy(h.Bytes(), cuda.AsBytes([]float32{1, 2}))
	p := axpy{X: h.Ptr(), Y: h.Ptr() + 4, A: 10, N: 1}
	w.check(w.prepare(f, 1, 32, cuda.Arg(&p)).Run(w.s))
	w.check(w.s.Synchronize())
	if got := math.Float32frombits(uint32(h.Bytes()[4]) | uint32(h.Bytes()[5])<<8 | uint32(h.Bytes()[6])<<16 | uint32(h.Bytes()[7])<<24); got != 12 {
		t.Errorf("a kernel wrote %v to host memory, want 12", got)
	}
}

// TestDeviceGraph: a captured chain of dependent launches replays in order, whatever overlaps.
func TestDeviceGraph(t *testing.T) {
	w := device(t)
	w.hopper()
	f := w.load(chainPTX, "fd_link")
	b := w.alloc(4)
	addr, k := b.Ptr(), uint32(0)
	l := w.prepare(f, 1, 1, cuda.Arg(&addr), cuda.Arg(&k))
	l.PDL = true
	const links = 20
	want := uint32(0)
	g := must(w.s.Capture(func() error {
		for i := range links {
			k = uint32(i)
			if err := l.Run(w.s); err != nil {
				return err
			}
		}
		return nil
	}))(t)
	if n := must(g.Nodes())(t); n != links {
		t.Errorf("%d nodes, want %d", n, links)
	}
	x := must(g.Instantiate())(t)
	w.close(g)
	defer w.close(x)
	w.check(w.s.Fill32(addr, 0, 1))
	w.check(x.Upload(w.s))
	for range 50 {
		w.check(x.Launch(w.s))
		for i := range uint32(links) {
			want = 2*want + i
		}
	}
	got := make([]uint32, 1)
	w.check(w.s.Download(cuda.AsBytes(got), addr))
	if got[0] != want {
		t.Errorf("the chain ended at %d, want %d", got[0], want)
	}
}

// TestDeviceCapture: what spoils a capture says so, and the stream goes on.
func TestDeviceCapture(t *testing.T) {
	w := device(t)
	b := w.alloc(8)
	for name, f := range map[string]func() error{
		"Alloc": func() error { return second3(w.ctx.Alloc(8)) }, "Synchronize": w.s.Synchronize,
		"not joined": fork(w, b.Ptr(), false),
	} {
		_, err := w.s.Capture(f)
		wantErr(t, name, err, cuda.ErrCapture)
		w.check(w.s.Synchronize())
	}
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
}

func TestDeviceClusters(t *testing.T) {
	w := device(t)
	w.hopper()
	f := w.load(chainPTX, "fd_cluster")
	const blocks = 64
	b := w.alloc(4 * blocks)
	addr := b.Ptr()
	l := w.prepare(f, blocks, 1, cuda.Arg(&addr))
	l.Cluster.X = 16
	wantErr(t, "16 blocks", l.Run(w.s), cuda.ErrTooLarge)
	w.check(f.AllowLargeClusters())
	if n := must(l.MaxClusterSize())(t); n < 8 || n > 16 {
		t.Errorf("clusters of at most %d blocks", n)
	}
	for _, size := range []uint32{2, 8, 16} {
		l.Cluster.X = size
		n, err := l.MaxClusters()
		w.check(err)
		t.Logf("clusters of %d: %d at once", size, n)
		if n <= 0 || n*int(size) > w.dev.SMs*w.dev.MaxBlocksPerSM {
			t.Errorf("%d clusters of %d", n, size)
		}
		w.check(l.Run(w.s))
		got := make([]uint32, blocks)
		w.check(w.s.Download(cuda.AsBytes(got), addr))
		for i, v := range got {
			if want := 1000*size + uint32(i)/size; v != want {
				t.Fatalf("clusters of %d: block %d says %d, want %d", size, i, v, want)
			}
		}
	}
}

// TestDeviceMapping: memory at two addresses, mapping ahead from another goroutine, exact release.
func TestDeviceMapping(t *testing.T) {
	w := device(t)
	if !w.dev.VirtualMemory {
		t.Skip("no virtual memory management")
	}
	gr := must(w.ctx.Granule())(t)
	t.Logf("granule %d bytes", gr)
	before, _, err := w.ctx.MemInfo()
	w.check(err)
	const n = 8
	a, b := must(w.ctx.Reserve(n*gr, 0))(t), must(w.ctx.Reserve(n*gr, 0))(t)
	shared := must(w.ctx.AllocPhysical(gr))(t)
	w.check(a.Map(0, shared))
	w.check(b.Map(gr, shared))
	mapped := make(chan error, 1)
	go func() { // as a cache grows while others decode
		var err error
		for i := int64(1); i < n && err == nil; i++ {
			var p *cuda.Physical
			if p, err = w.ctx.AllocPhysical(gr); err == nil {
				err = errors.Join(a.Map(i*gr, p), p.Close())
			}
		}
		mapped <- err
	}()
	w.check(w.s.Fill(a.Ptr(), 5, gr))
	w.check(<-mapped)
	if a.Mapped() != n*gr {
		t.Errorf("mapped %d of %d", a.Mapped(), n*gr)
	}
	w.check(w.s.Fill(a.Ptr()+cuda.Ptr(gr)-2, 9, 4)) // across a seam
	got := make([]byte, 4)
	w.check(w.s.Download(got, a.Ptr()+cuda.Ptr(gr)-2))
	if string(got) != "\t\t\t\t" {
		t.Errorf("across a seam: %v", got)
	}
	w.check(w.s.Download(got, b.Ptr()+cuda.Ptr(2*gr)-4))
	if string(got) != "\x05\x05\t\t" {
		t.Errorf("through the other address: %v", got)
	}
	w.check(a.Unmap(0, gr))
	w.close(shared)
	w.check(w.s.Download(got, b.Ptr()+cuda.Ptr(2*gr)-4))
	w.close(a, b)
	after, _, err := w.ctx.MemInfo()
	w.check(err)
	if before-after > n/2*gr { // page tables stay; others may use the device, but hardly give back what we took
		t.Errorf("%d bytes are still in use", before-after)
	}
}

// TestDeviceCost measures calls on the host, and checks that a launch allocates nothing.
func TestDeviceCost(t *testing.T) {
	w := device(t)
	f := w.load(axpyPTX, "fd_axpy")
	l := w.prepare(f, 1, 32, cuda.Arg(&axpy{}))
	run := func() {
		if err := l.Run(w.s); err != nil {
			t.Fatal(err)
		}
	}
	e := must(w.ctx.NewEvent(false))(t)
	defer w.close(e)
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"Run", func() error { return l.Run(w.s) }}, {"Record", func() error { return w.s.Record(e) }},
		{"Wait", func() error { return w.s.Wait(e) }}, {"Done", second(w.s.Done)}, {"MaxBlocksPerSM", func() error { return second3(f.MaxBlocksPerSM(32, 0)) }},
	} {
		best := time.Hour
		for range 20 { // batches that no queue is too short for
			w.check(w.s.Synchronize())
			const n = 50
			start := time.Now()
			for range n {
				w.check(c.f())
			}
			best = min(best, time.Since(start)/n)
		}
		t.Logf("%s costs the host %v", c.name, best)
	}
	if a := testing.AllocsPerRun(100, run); a != 0 {
		t.Errorf("a launch allocates %v times", a)
	}
}

// TestDeviceLost breaks the context, in a process of its own.
func TestDeviceLost(t *testing.T) {
	if what := os.Getenv("FLASHDECODE_BREAK"); what != "" {
		breakContext(t, what)
		return
	}
	device(t)
	for _, what := range []string{"address", "unmapped", "trap"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceLost$", "-test.v", "-test.timeout=50s")
		cmd.Env = append(os.Environ(), "FLASHDECODE_BREAK="+what)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "lost as it should be") {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}

func breakContext(t *testing.T, what string) {
	drv := must(cuda.Open())(t)
	ctx := must(must(drv.Device(0))(t).Open())(t)
	s := must(ctx.NewStream(cuda.NormalPriority))(t)
	b := must(ctx.Alloc(64))(t)
	m := must(ctx.LoadModule(axpyPTX))(t)
	r := must(ctx.Reserve(must(ctx.Granule())(t), 0))(t)
	f := must(m.Function("fd_axpy"))(t)
	p := axpy{X: b.Ptr(), Y: b.Ptr(), N: 1}
	args := []cuda.Param{cuda.Arg(&p)}
	want := driver.IllegalAddress
	switch what {
	case "address":
		p.X = 16
	case "unmapped":
		p.Y = r.Ptr()
	case "trap":
		f, args, want = must(m.Function("fd_trap"))(t), nil, driver.LaunchFailed
	}
	l := must(f.NewLaunch(args...))(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
	if err := l.Run(s); err != nil {
		t.Fatal(err)
	}
	err := s.Synchronize()
	wantErr(t, "Synchronize", err, cuda.ErrContextLost)
	var e *cuda.Error
	if !errors.As(err, &e) || e.Result != want && e.Result != driver.IllegalInstruction {
		t.Errorf("the device says %v, want %v", err, want)
	}
	_, err = ctx.Alloc(1)
	wantErr(t, "Alloc", err, cuda.ErrContextLost)
	for _, c := range []closer{r, m, b, s, ctx} {
		if err := c.Close(); err != nil {
			t.Errorf("Close of %T: %v", c, err)
		}
	}
	if !t.Failed() {
		t.Logf("lost as it should be: %v", e)
	}
}
