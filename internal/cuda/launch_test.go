package cuda_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

func TestModule(t *testing.T) {
	w := open(t, cudatest.Options{})
	w.fake.AddKernel("fd_x", cudatest.Kernel{Regs: 40, SharedBytes: 100, LocalBytes: 8, MaxThreads: 256})
	w.fake.AddGlobal("fd_table", 24)
	m := must(w.ctx.LoadModule(cudatest.Image("fd_x", "fd_table")))(t)
	defer w.close(m)
	f := must(m.Function("fd_x"))(t)
	if want := (cuda.FunctionInfo{Regs: 40, SharedBytes: 100, LocalBytes: 8, MaxThreads: 256, BinaryVersion: 90, PTXVersion: 90}); f.FunctionInfo != want || f.Name != "fd_x" {
		t.Errorf("%+v", f)
	}
	p, n, err := m.Global("fd_table")
	if w.check(err); n != 24 {
		t.Errorf("the variable has %d bytes", n)
	}
	w.check(w.s.Upload(p, make([]byte, 24)))
	_, _, err = m.Global("fd_none")
	wantErr(t, "Global", err, cuda.ErrNoKernel, "fd_none")
	_, err = m.Function("fd_none")
	wantErr(t, "Function", err, cuda.ErrNoKernel, "fd_none", "NOT_FOUND")
	w.fake.AddKernel("fd_elsewhere", cudatest.Kernel{})
	_, err = m.Function("fd_elsewhere")
	wantErr(t, "a function of another module", err, cuda.ErrNoKernel)

	_, err = w.ctx.LoadModule(nil)
	wantErr(t, "an empty image", err, cuda.ErrInvalid)
	_, err = w.ctx.LoadModule([]byte("hello"))
	wantErr(t, "no image", err, cuda.ErrNoKernel, "neither a cubin")
	_, err = w.ctx.LoadModule([]byte(".version 8.0"))
	wantErr(t, "bad PTX", err, cuda.ErrNoKernel, "ptxas fatal: no .target directive")
	w.fake.Fail("cuModuleLoadDataEx", 1, driver.UnsupportedPTXVersion)
	_, err = w.ctx.LoadModule(cudatest.Image())
	wantErr(t, "PTX from a newer compiler", err, cuda.ErrDriverTooOld, "newer NVIDIA driver")
	w.fake.Fail("cuModuleLoadDataEx", 1, driver.NoBinaryForGPU)
	_, err = w.ctx.LoadModule(cudatest.Image())
	wantErr(t, "another device's binary", err, cuda.ErrNoKernel, "compute capability")
}

// TestArgs: sizes and number are compared with the kernel's, and the bytes arrive as they are.
func TestArgs(t *testing.T) {
	w := open(t, cudatest.Options{})
	type odd struct {
		A [3]uint8
		B float32
		C [2]uint16
		D int8
	}
	f := w.kernel("fd_args", cudatest.Kernel{Params: []int{1, 8, int(unsafe.Sizeof(odd{}))}})
	a, b, c := uint8(200), cuda.Ptr(0x123456789abcdef0), odd{[3]uint8{1, 2, 3}, 1.5, [2]uint16{4, 5}, -6}
	l := must(f.NewLaunch(cuda.Arg(&a), cuda.Arg(&b), cuda.Arg(&c)))(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
	w.check(l.Run(w.s))
	a, b, c = 0, 0, odd{}
	w.check(w.s.Synchronize())
	call := w.fake.Launches()[0]
	want := []byte{1, 2, 3, 0, 0, 0, 0xc0, 0x3f, 4, 0, 5, 0, 0xfa}
	if call.Args[0][0] != 200 || !bytes.Equal(call.Args[1], []byte{0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12}) || !bytes.Equal(call.Args[2][:13], want) {
		t.Errorf("arguments % x", call.Args)
	}
	_, err := f.NewLaunch(cuda.Arg(&a), cuda.Arg(&b))
	wantErr(t, "too few", err, cuda.ErrInvalid, "fd_args takes more than 2")
	_, err = f.NewLaunch(cuda.Arg(&a), cuda.Arg(&b), cuda.Arg(&c), cuda.Arg(&a))
	wantErr(t, "too many", err, cuda.ErrInvalid, "fd_args takes 3 arguments, not 4")
	_, err = f.NewLaunch(cuda.Arg(&a), cuda.Arg(&a), cuda.Arg(&c))
	wantErr(t, "wrong size", err, cuda.ErrInvalid, "argument 1 has 1 bytes, the kernel takes 8")
}

// TestPlain: what holds Go pointers, or has no fixed width, can't be handed to a device.
func TestPlain(t *testing.T) {
	for name, f := range map[string]func(){
		"pointer": func() { cuda.Arg(new(*int32)) }, "int": func() { cuda.Arg(new(int)) }, "uintptr": func() { cuda.Arg(new(uintptr)) },
		"string": func() { cuda.Arg(new(string)) }, "slice": func() { cuda.Arg(new([]int32)) }, "bool": func() { cuda.Arg(new(bool)) },
		"field": func() { cuda.Arg(new(struct{ A, B [2]struct{ P *int8 } })) }, "map": func() { cuda.AsBytes([]map[int8]int8{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			f()
		}()
	}
	cuda.Arg(new(struct {
		P cuda.Ptr
		A [2]struct{ F float64 }
	}))
	if b := cuda.AsBytes([]uint16{0x0201, 0x0403}); !bytes.Equal(b, []byte{1, 2, 3, 4}) {
		t.Errorf("AsBytes: %v", b)
	}
	if b := cuda.AsBytes([]float64{}); b != nil {
		t.Errorf("AsBytes of nothing: %v", b)
	}
}

// TestLaunchLimits: what the device can't do is refused at the launch, as what it is, and named.
func TestLaunchLimits(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_x", cudatest.Kernel{Regs: 64, SharedBytes: 1024, MaxThreads: 512})
	l := must(f.NewLaunch())(t)
	set := func(grid, block, cluster, shared int, coop bool) {
		l.Grid, l.Block = cuda.Dim3{X: uint32(grid)}, cuda.Dim3{X: uint32(block)}
		l.Cluster, l.SharedBytes, l.Cooperative = cuda.Dim3{X: uint32(cluster)}, shared, coop
	}
	for _, c := range []struct {
		grid, block, cluster, shared int
		coop                         bool
		kind                         error
		words                        string
	}{
		{0, 1, 0, 0, false, cuda.ErrInvalid, "fd_x: grid 0×1×1"}, {1, 0, 0, 0, false, cuda.ErrInvalid, "block 0×1×1"},
		{1, 1, 0, -1, false, cuda.ErrInvalid, "-1 bytes shared"}, {1, 513, 0, 0, false, cuda.ErrInvalid, "block 513×1×1"},
		{1, 1, 0, 47<<10 + 1, false, cuda.ErrInvalid, "48129 bytes shared"}, {3, 1, 2, 0, false, cuda.ErrInvalid, "doesn't divide"},
		{16, 1, 16, 0, false, cuda.ErrTooLarge, "AllowLargeClusters"},
		// 64 registers and 512 threads: 2 blocks an SM, on 132 SMs
		{265, 512, 0, 0, true, cuda.ErrTooLarge, "cooperative grid"},
	} {
		set(c.grid, c.block, c.cluster, c.shared, c.coop)
		wantErr(t, c.words, l.Run(w.s), c.kind, c.words)
	}
	set(264, 512, 0, 0, true)
	w.check(l.Run(w.s))
	w.check(f.SetDynamicShared(200 << 10))
	set(132, 512, 0, 200<<10, true)
	w.check(l.Run(w.s))
	wantErr(t, "SetDynamicShared", f.SetDynamicShared(232_448-1024+1), cuda.ErrInvalid, "fd_x")
	wantErr(t, "SetDynamicShared", f.SetDynamicShared(-1), cuda.ErrInvalid)
	if n := must(f.MaxBlocksPerSM(512, 100<<10))(t); n != 2 {
		t.Errorf("%d blocks an SM, want 2", n)
	}
	if n := must(f.MaxBlocksPerSM(512, 200<<10))(t); n != 1 {
		t.Errorf("%d blocks an SM, want 1", n)
	}
	for _, c := range [][2]int{{0, 0}, {-1, 0}, {1 << 40, 0}, {513, 0}, {1, -1}} {
		_, err := f.MaxBlocksPerSM(c[0], c[1])
		wantErr(t, "MaxBlocksPerSM", err, cuda.ErrInvalid)
	}
	set(16, 512, 16, 200<<10, false)
	w.check(f.AllowLargeClusters())
	w.check(l.Run(w.s))
	// One block an SM and clusters of 16: one of them on each of the 8 GPCs.
	if n, size := must(l.MaxClusters())(t), must(l.MaxClusterSize())(t); n != 8 || size != 16 {
		t.Errorf("%d clusters of at most %d, want 8 of 16", n, size)
	}
	w.check(w.s.Synchronize())
	if n := len(w.fake.Launches()); n != 3 {
		t.Errorf("%d launches ran, want 3", n)
	}
}

// TestAmpere: clusters and programmatic launches are refused by an older device.
func TestAmpere(t *testing.T) {
	w := open(t, cudatest.Options{Devices: []cudatest.Spec{cudatest.A100()}})
	f := w.kernel("fd_x", cudatest.Kernel{})
	l := must(f.NewLaunch())(t)
	l.Grid, l.Block, l.PDL = cuda.Dim3{X: 4}, cuda.Dim3{X: 32}, true
	wantErr(t, "PDL", l.Run(w.s), cuda.ErrUnsupported, "dependent")
	l.PDL, l.Cluster = false, cuda.Dim3{X: 2}
	wantErr(t, "cluster", l.Run(w.s), cuda.ErrUnsupported, "cluster 2×1×1")
	wantErr(t, "AllowLargeClusters", f.AllowLargeClusters(), cuda.ErrUnsupported)
	l.Cluster = cuda.Dim3{}
	w.check(l.Run(w.s))
	w.check(w.s.Synchronize())
}

// TestOtherContext: a stream of one device doesn't take another's work.
func TestOtherContext(t *testing.T) {
	w := open(t, cudatest.Options{Devices: []cudatest.Spec{cudatest.H200(), cudatest.H200()}})
	c2 := must(must(w.drv.Device(1))(t).Open())(t)
	s2 := must(c2.NewStream(cuda.NormalPriority))(t)
	b2 := must(c2.Alloc(8))(t)
	defer func() { w.close(b2, s2, c2) }()
	l := must(w.kernel("fd_x", cudatest.Kernel{}).NewLaunch())(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
	wantErr(t, "Run", l.Run(s2), cuda.ErrInvalid, "stream of another context")
	e := must(w.ctx.NewEvent(false))(t)
	defer w.close(e)
	if err := s2.Record(e); err == nil {
		t.Error("an event of another context was recorded")
	}
	if s2.Context() != c2 || c2.Device().Index != 1 {
		t.Error("Context, Device")
	}
	// Interleaved use on one thread: each call finds its own context current.
	for range 3 {
		b := w.alloc(8)
		w.check(w.s.Fill(b.Ptr(), 1, 8))
		w.check(s2.Fill(b2.Ptr(), 2, 8))
		w.check(w.s.Synchronize())
		w.check(s2.Synchronize())
	}
	w.check(w.s.Fill(b2.Ptr(), 0, 1))
	wantErr(t, "Synchronize", w.s.Synchronize(), cuda.ErrContextLost)
	w.check(s2.Synchronize()) // the other context lives on
}

// spy notes the priority of the last stream.
type spy struct {
	*cudatest.Driver
	priority int32
}

func (s *spy) StreamCreateWithPriority(st *driver.Stream, flags uint32, priority int32) driver.Result {
	s.priority = priority
	return s.Driver.StreamCreateWithPriority(st, flags, priority)
}

func TestPriority(t *testing.T) {
	s := &spy{Driver: cudatest.New(cudatest.Options{})}
	ctx := must(must(must(cuda.New(s))(t).Device(0))(t).Open())(t)
	for p, want := range map[cuda.Priority]int32{cuda.NormalPriority: 0, cuda.HighPriority: -5} {
		st := must(ctx.NewStream(p))(t)
		if s.priority != want {
			t.Errorf("%v: %d, want %d", p, s.priority, want)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// quiet does nothing in the calls of a decode step once it is on, so that only this package's own allocations count.
type quiet struct {
	*cudatest.Driver
	on bool
}

func (q *quiet) CtxSetCurrent(c driver.Context) driver.Result {
	if q.on {
		return 0
	}
	return q.Driver.CtxSetCurrent(c)
}
func (q *quiet) LaunchKernelEx(driver.Function, *driver.Launch) driver.Result         { return 0 }
func (q *quiet) GraphLaunch(driver.Exec, driver.Stream) driver.Result                 { return 0 }
func (q *quiet) EventRecord(driver.Event, driver.Stream) driver.Result                { return 0 }
func (q *quiet) EventQuery(driver.Event) driver.Result                                { return 0 }
func (q *quiet) StreamWaitEvent(driver.Stream, driver.Event, uint32) driver.Result    { return 0 }
func (q *quiet) StreamIsCapturing(_ driver.Stream, s *int32) driver.Result            { *s = 0; return 0 }
func (q *quiet) StreamSynchronize(driver.Stream) driver.Result                        { return 0 }
func (q *quiet) MemsetD8Async(driver.Ptr, uint8, uint64, driver.Stream) driver.Result { return 0 }
func (q *quiet) MemcpyHtoDAsync(driver.Ptr, unsafe.Pointer, uint64, driver.Stream) driver.Result {
	return 0
}
func (q *quiet) MemcpyDtoHAsync(unsafe.Pointer, driver.Ptr, uint64, driver.Stream) driver.Result {
	return 0
}
func (q *quiet) MemcpyDtoDAsync(driver.Ptr, driver.Ptr, uint64, driver.Stream) driver.Result {
	return 0
}

// TestNoAllocs: what a decode step calls allocates nothing.
func TestNoAllocs(t *testing.T) {
	q := &quiet{Driver: cudatest.New(cudatest.Options{})}
	w := &world{t: t, fake: q.Driver, drv: must(cuda.New(q))(t)}
	w.ctx = must(must(w.drv.Device(0))(t).Open())(t)
	w.s = must(w.ctx.NewStream(cuda.NormalPriority))(t)
	e, h, f := must(w.ctx.NewEvent(false))(t), must(w.ctx.AllocHost(8))(t), w.kernel("fd_axpy", axpyKernel())
	x := must(must(w.s.Capture(func() error { return nil }))(t).Instantiate())(t)
	l := must(f.NewLaunch(cuda.Arg(&axpy{})))(t)
	l.Grid, l.Block, l.Cluster, l.PDL, l.Cooperative = cuda.Dim3{X: 2}, cuda.Dim3{X: 32}, cuda.Dim3{X: 2}, true, true
	q.on = true
	defer func() { q.on = false }()
	buf := make([]byte, 8)
	for name, step := range map[string]func() error{
		"Run": func() error { return l.Run(w.s) }, "Launch": func() error { return x.Launch(w.s) },
		"Record": func() error { return w.s.Record(e) }, "Wait": func() error { return w.s.Wait(e) },
		"Done": func() error { _, err := e.Done(); return err }, "Synchronize": w.s.Synchronize,
		"CopyIn": func() error { return w.s.CopyIn(1, h, 0, 8) }, "CopyOut": func() error { return w.s.CopyOut(h, 0, 1, 8) },
		"Copy": func() error { return w.s.Copy(1, 2, 8) }, "Fill": func() error { return w.s.Fill(1, 0, 8) },
		"Upload": func() error { return w.s.Upload(1, buf) }, "Download": func() error { return w.s.Download(buf, 1) },
	} {
		if n := testing.AllocsPerRun(200, func() {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
