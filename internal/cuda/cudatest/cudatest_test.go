package cudatest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// The tests here talk to the driver as package cuda does, through driver.API, where that package would refuse before
// the driver is asked.

// raw is a driver with its context current on this thread, and a stream.
func raw(t *testing.T, o Options) (*Driver, driver.Stream) {
	t.Helper()
	d := New(o)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var c driver.Context
	var s driver.Stream
	want(t, d.Init(0), driver.Success)
	want(t, d.DevicePrimaryCtxRetain(&c, 0), driver.Success)
	want(t, d.CtxSetCurrent(c), driver.Success)
	want(t, d.StreamCreateWithPriority(&s, 0, 0), driver.Success)
	return d, s
}

func want(t *testing.T, got, want Result) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCurrent(t *testing.T) {
	d := New(Options{})
	var c driver.Context
	var p driver.Ptr
	want(t, d.DevicePrimaryCtxRetain(&c, 0), driver.NotInitialized)
	want(t, d.Init(0), driver.Success)
	want(t, d.DevicePrimaryCtxRetain(&c, 1), driver.InvalidDevice)
	want(t, d.DevicePrimaryCtxRetain(&c, 0), driver.Success)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	want(t, d.MemAlloc(&p, 1), driver.InvalidContext)
	want(t, d.CtxSetCurrent(c+1), driver.InvalidContext)
	want(t, d.CtxSetCurrent(c), driver.Success)
	want(t, d.MemAlloc(&p, 1), driver.Success)
	if thread() != 0 {
		done := make(chan Result)
		go func() {
			runtime.LockOSThread() // another thread than this one, and not returned to the pool
			var p driver.Ptr
			done <- d.MemAlloc(&p, 1)
		}()
		want(t, <-done, driver.InvalidContext)
	}
	want(t, d.DevicePrimaryCtxRelease(0), driver.Success)
	want(t, d.DevicePrimaryCtxRelease(0), driver.InvalidContext)
	want(t, d.MemAlloc(&p, 1), driver.ContextIsDestroyed)
	if l := d.Leaks(); len(l) != 1 || !strings.Contains(l[0], "buffer of 1 bytes") {
		t.Errorf("leaks: %v", l)
	}
}

// TestLeaks: everything that can be left open is listed, and Open makes the test fail for it.
func TestLeaks(t *testing.T) {
	d, s := raw(t, Options{})
	d.AddKernel("fd_x", Kernel{})
	d.AddGlobal("fd_x", 4)
	var (
		p, g driver.Ptr
		n    uint64
		h    unsafe.Pointer
		e    driver.Event
		m    driver.Module
		gr   driver.Graph
		x    driver.Exec
		ph   driver.Physical
	)
	for _, r := range []Result{
		d.MemAlloc(&p, 64), d.MemHostAlloc(&h, 32, driver.HostAllocDeviceMap), d.EventCreate(&e, 0), d.ModuleLoadDataEx(&m, Image("fd_x"), nil),
		d.ModuleGetGlobal(&g, &n, m, "fd_x"), d.StreamBeginCapture(s, driver.CaptureThreadLocal), d.StreamEndCapture(s, &gr),
		d.GraphInstantiateWithFlags(&x, gr, 0), d.MemAddressReserve(&p, granule, 0),
		d.MemCreate(&ph, granule, &driver.AllocationProp{Type: driver.AllocationPinned, Location: driver.Location{Type: driver.LocationDevice}}),
		d.MemMap(p, granule, 0, ph),
	} {
		want(t, r, driver.Success)
	}
	all := strings.Join(d.Leaks(), "; ")
	for _, w := range []string{"context of device 0", "buffer of 64", "host buffer of 32", "mapped memory of 2097152", "reserved range of 2097152", "physical memory of 2097152",
		"1 × stream", "1 × event", "1 × module", "1 × graph", "1 × graph exec"} {
		if !strings.Contains(all, w) {
			t.Errorf("no %q in %s", w, all)
		}
	}
	before := len(d.Leaks())
	want(t, d.DevicePrimaryCtxRelease(0), driver.Success)
	if after := len(d.Leaks()); after != before-1 {
		t.Errorf("%d leaks after the context went, want %d", after, before-1)
	}
	if d.devices[0].used != 0 || len(d.segments) != 0 || len(d.streams) != 0 {
		t.Error("the context left something behind")
	}

	inner := &recordingTB{TB: t}
	drv, _ := Open(inner, Options{})
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Open(); err != nil {
		t.Fatal(err)
	}
	for _, f := range inner.cleanups {
		f()
	}
	if len(inner.errors) != 1 {
		t.Errorf("a context left open: %d errors", len(inner.errors))
	}
}

// recordingTB is a test whose failure is expected.
type recordingTB struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recordingTB) Helper()                   {}
func (r *recordingTB) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recordingTB) Errorf(f string, _ ...any) { r.errors = append(r.errors, f) }

// TestHandles: what doesn't exist, or no longer, is refused.
func TestHandles(t *testing.T) {
	d, s := raw(t, Options{})
	var n32 int32
	var n uint64
	var p driver.Ptr
	var f driver.Function
	var g driver.Graph
	var x driver.Exec
	var ms float32
	l := driver.NewLaunch(nil)
	l.Config.Stream = s
	bad := driver.Stream(7)
	for name, r := range map[string]Result{
		"StreamDestroy": d.StreamDestroy(bad), "StreamSynchronize": d.StreamSynchronize(bad), "StreamQuery": d.StreamQuery(bad),
		"StreamWaitEvent": d.StreamWaitEvent(s, 7, 0), "EventRecord": d.EventRecord(7, s), "EventDestroy": d.EventDestroy(7),
		"EventSynchronize": d.EventSynchronize(7), "EventQuery": d.EventQuery(7), "EventElapsedTime": d.EventElapsedTime(&ms, 7, 7),
		"StreamBeginCapture": d.StreamBeginCapture(bad, 0), "StreamEndCapture": d.StreamEndCapture(bad, &g), "StreamIsCapturing": d.StreamIsCapturing(bad, &n32),
		"ModuleUnload": d.ModuleUnload(7), "ModuleGetFunction": d.ModuleGetFunction(&f, 7, "x"), "ModuleGetGlobal": d.ModuleGetGlobal(&p, &n, 7, "x"),
		"FuncGetAttribute": d.FuncGetAttribute(&n32, 0, 7), "FuncSetAttribute": d.FuncSetAttribute(7, 8, 0), "FuncGetParamInfo": d.FuncGetParamInfo(7, 0, &n, &n),
		"LaunchKernelEx": d.LaunchKernelEx(7, l), "Occupancy": d.OccupancyMaxActiveBlocksPerMultiprocessor(&n32, 7, 1, 0),
		"MaxActiveClusters": d.OccupancyMaxActiveClusters(&n32, 7, l), "MaxClusterSize": d.OccupancyMaxPotentialClusterSize(&n32, 7, l),
		"GraphInstantiate": d.GraphInstantiateWithFlags(&x, 7, 0), "GraphLaunch": d.GraphLaunch(7, s), "GraphUpload": d.GraphUpload(7, s),
		"GraphExecDestroy": d.GraphExecDestroy(7), "GraphDestroy": d.GraphDestroy(7), "GraphGetNodes": d.GraphGetNodes(7, &n),
		"MemsetD8Async": d.MemsetD8Async(0, 0, 1, bad),
	} {
		if r != driver.InvalidHandle {
			t.Errorf("%s: %v", name, r)
		}
	}
	var h unsafe.Pointer
	for name, r := range map[string]Result{
		"MemAlloc": d.MemAlloc(&p, 0), "MemFree": d.MemFree(7), "MemFreeHost": d.MemFreeHost(unsafe.Pointer(&n)), "MemHostAlloc": d.MemHostAlloc(&h, 0, 0),
		"MemHostGetDevicePointer": d.MemHostGetDevicePointer(&p, unsafe.Pointer(&n)), "MemAddressFree": d.MemAddressFree(granule, granule),
		"MemRelease": d.MemRelease(7), "MemMap": d.MemMap(granule, granule, 0, 7), "MemUnmap": d.MemUnmap(granule, granule),
		"MemSetAccess": d.MemSetAccess(granule, granule, &driver.AccessDesc{}), "MemCreate": d.MemCreate(new(driver.Physical), granule, &driver.AllocationProp{}),
		"Granularity": d.MemGetAllocationGranularity(&n, &driver.AllocationProp{}, 0), "MemsetD32Async": d.MemsetD32Async(2, 0, 1, s),
		"DeviceGetName": d.DeviceGetName(nil, 0),
	} {
		if r != driver.InvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	want(t, d.StreamEndCapture(s, &g), driver.IllegalState)
}

// TestCaptureRules are those that package cuda makes hard to break.
func TestCaptureRules(t *testing.T) {
	d, s := raw(t, Options{})
	var s2 driver.Stream
	var e driver.Event
	var g driver.Graph
	var status int32
	var p driver.Ptr
	want(t, d.StreamCreateWithPriority(&s2, 0, 0), driver.Success)
	want(t, d.EventCreate(&e, 0), driver.Success)
	want(t, d.MemAlloc(&p, 8), driver.Success)
	begin := func(s driver.Stream) {
		t.Helper()
		want(t, d.StreamBeginCapture(s, driver.CaptureThreadLocal), driver.Success)
	}
	isStatus := func(w int32) {
		t.Helper()
		if want(t, d.StreamIsCapturing(s, &status), driver.Success); status != w {
			t.Errorf("status %d, want %d", status, w)
		}
	}
	isStatus(0)
	begin(s)
	isStatus(1)
	want(t, d.StreamBeginCapture(s, 0), driver.IllegalState)
	want(t, d.StreamSynchronize(s), driver.StreamCaptureUnsupported)
	isStatus(2)
	want(t, d.MemsetD8Async(p, 0, 1, s), driver.StreamCaptureInvalidated)
	want(t, d.StreamEndCapture(s, &g), driver.StreamCaptureInvalidated)
	isStatus(0)

	begin(s) // two captures can't be joined
	begin(s2)
	want(t, d.EventRecord(e, s), driver.Success)
	want(t, d.StreamWaitEvent(s2, e, 0), driver.StreamCaptureMerge)
	want(t, d.StreamEndCapture(s2, &g), driver.StreamCaptureInvalidated)
	want(t, d.EventQuery(e), driver.CapturedEvent)
	want(t, d.StreamEndCapture(s, &g), driver.StreamCaptureInvalidated)
	want(t, d.StreamWaitEvent(s2, e, 0), driver.CapturedEvent)

	begin(s) // only the stream where it began ends it
	want(t, d.EventRecord(e, s), driver.Success)
	want(t, d.StreamWaitEvent(s2, e, 0), driver.Success)
	want(t, d.StreamEndCapture(s2, &g), driver.StreamCaptureUnmatched)
	want(t, d.StreamEndCapture(s, &g), driver.StreamCaptureInvalidated)

	begin(s) // pageable memory would be gone by the time of the replay
	b := make([]byte, 8)
	want(t, d.MemcpyHtoDAsync(p, unsafe.Pointer(&b[0]), 8, s), driver.StreamCaptureUnsupported)
	want(t, d.StreamEndCapture(s, &g), driver.StreamCaptureInvalidated)
	begin(s)
	want(t, d.MemcpyDtoHAsync(unsafe.Pointer(&b[0]), p, 8, s), driver.StreamCaptureUnsupported)
	want(t, d.StreamEndCapture(s, &g), driver.StreamCaptureInvalidated)

	begin(s)
	if thread() != 0 {
		done := make(chan Result)
		go func() { // this thread can't end it, but may allocate
			runtime.LockOSThread()
			d.mu.Lock()
			d.current[thread()] = d.devices[0].ctx
			d.mu.Unlock()
			var g driver.Graph
			var p driver.Ptr
			done <- d.StreamEndCapture(s, &g)
			done <- d.MemAlloc(&p, 8)
		}()
		want(t, <-done, driver.StreamCaptureWrongThread)
		want(t, <-done, driver.Success)
	}
	want(t, d.StreamDestroy(s), driver.Success)
}

func TestLaunchChecks(t *testing.T) {
	d, s := raw(t, Options{})
	d.AddKernel("fd_x", Kernel{Params: []int{4}, Regs: 255, MaxThreads: 1024})
	var m driver.Module
	var f driver.Function
	want(t, d.ModuleLoadDataEx(&m, Image("fd_x"), nil), driver.Success)
	want(t, d.ModuleGetFunction(&f, m, "fd_x"), driver.Success)
	var v int32
	l := driver.NewLaunch([]unsafe.Pointer{unsafe.Pointer(&v)})
	for _, c := range []struct {
		grid, block driver.Dim3
		attr        driver.LaunchAttribute
		want        Result
	}{
		{driver.Dim3{X: 1, Y: 1, Z: 1}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrProgrammatic, Value: [16]uint32{1}}, driver.Success},
		{driver.Dim3{X: 1, Y: 1, Z: 1}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: 99}, driver.InvalidValue},
		{driver.Dim3{X: 1, Y: 1, Z: 0}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrCooperative}, driver.InvalidValue},
		{driver.Dim3{X: 1, Y: 65536, Z: 1}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrCooperative}, driver.InvalidValue},
		{driver.Dim3{X: 1, Y: 1, Z: 1}, driver.Dim3{X: 1, Y: 1, Z: 65}, driver.LaunchAttribute{ID: driver.AttrCooperative}, driver.InvalidValue},
		// 255 registers a thread: 8 warps fill an SM
		{driver.Dim3{X: 1, Y: 1, Z: 1}, driver.Dim3{X: 257, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrCooperative}, driver.LaunchOutOfResources},
		{driver.Dim3{X: 4, Y: 1, Z: 1}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrCluster, Value: [16]uint32{3, 1, 1}}, driver.InvalidClusterSize},
		{driver.Dim3{X: 4, Y: 1, Z: 1}, driver.Dim3{X: 32, Y: 1, Z: 1}, driver.LaunchAttribute{ID: driver.AttrCluster, Value: [16]uint32{2, 0, 1}}, driver.InvalidClusterSize},
	} {
		l.Config = driver.LaunchConfig{Grid: c.grid, Block: c.block, Stream: s, Attrs: l.Config.Attrs, NumAttrs: 1}
		l.Attrs[0] = c.attr
		if r := d.LaunchKernelEx(f, l); r != c.want {
			t.Errorf("%+v: %v", c, r)
		}
	}
	l.Params = nil
	l.Config.Grid, l.Config.NumAttrs = driver.Dim3{X: 1, Y: 1, Z: 1}, 0
	want(t, d.LaunchKernelEx(f, l), driver.InvalidValue)
	want(t, d.StreamSynchronize(s), driver.Success)
	if n := len(d.Launches()); n != 1 {
		t.Errorf("%d launches ran, want 1", n)
	}
}

// TestOccupancy compares with figures of NVIDIA's occupancy calculator for compute capability 9.0.
func TestOccupancy(t *testing.T) {
	h := H200()
	for _, c := range []struct{ regs, threads, static, dynamic, want int }{
		{32, 1024, 0, 0, 2}, {32, 32, 0, 0, 32}, {64, 256, 0, 0, 4}, {168, 384, 0, 0, 1}, {128, 128, 0, 112 << 10, 2},
		{128, 128, 0, 227 << 10, 1}, {128, 128, 1, 227 << 10, 0}, {32, 1025, 0, 0, 0}, {0, 128, 0, 0, 16}, {96, 33, 0, 0, 10},
	} {
		if n := h.blocksPerSM(&Kernel{Regs: c.regs, SharedBytes: c.static}, c.threads, c.dynamic); n != c.want {
			t.Errorf("%+v: %d", c, n)
		}
	}
	sms := 0
	for _, g := range h.GPCs {
		sms += g
	}
	if sms != h.Attributes[driver.DevSMs] {
		t.Errorf("%d SMs on GPCs of %d", h.Attributes[driver.DevSMs], sms)
	}
}

// TestPageable: memory that isn't page-locked is read by the call, page-locked memory when the copy runs.
func TestPageable(t *testing.T) {
	d, s := raw(t, Options{})
	var p driver.Ptr
	var h unsafe.Pointer
	want(t, d.MemAlloc(&p, 2), driver.Success)
	want(t, d.MemHostAlloc(&h, 1, 0), driver.Success)
	pageable, pinned, got := []byte{1}, unsafe.Slice((*byte)(h), 1), make([]byte, 2)
	pinned[0] = 1
	want(t, d.MemcpyHtoDAsync(p, unsafe.Pointer(&pageable[0]), 1, s), driver.Success)
	want(t, d.MemcpyHtoDAsync(p+1, h, 1, s), driver.Success)
	pageable[0], pinned[0] = 2, 2
	want(t, d.MemcpyDtoHAsync(unsafe.Pointer(&got[0]), p, 2, s), driver.Success)
	if got[0] != 1 || got[1] != 2 {
		t.Errorf("copied %v, want [1 2]", got)
	}
}

// TestCall: a kernel's view of the device.
func TestCall(t *testing.T) {
	for _, eager := range []bool{false, true} {
		drv, fake := Open(t, Options{Eager: eager})
		dev, err := drv.Device(0)
		ok(t, err)
		ctx, err := dev.Open()
		ok(t, err)
		s, err := ctx.NewStream(cuda.NormalPriority)
		ok(t, err)
		b, err := ctx.Alloc(64)
		ok(t, err)
		start, err := ctx.NewEvent(true)
		ok(t, err)
		end, err := ctx.NewEvent(true)
		ok(t, err)
		ran := 0
		fake.AddKernel("fd_x", Kernel{Params: []int{8}, Run: func(c *Call) {
			ran++
			p := Arg[driver.Ptr](c, 0)
			if got := c.Read(p, 2); !slices.Equal(got, []byte{0xFF, 0xFF}) {
				t.Errorf("fresh memory holds %v", got)
			}
			if len(Load[uint64](c, p+1, 0)) != 0 {
				t.Error("Load of nothing")
			}
			Store[uint64](c, p+1, nil)
			Store(c, p+8, []uint16{1, 2})
			if got := Load[uint32](c, p+8, 1); got[0] != 0x20001 {
				t.Errorf("%#x", got)
			}
			c.Takes(3 * time.Millisecond)
		}})
		m, err := ctx.LoadModule(Image("fd_x"))
		ok(t, err)
		f, err := m.Function("fd_x")
		ok(t, err)
		p := b.Ptr()
		l, err := f.NewLaunch(cuda.Arg(&p))
		ok(t, err)
		l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
		ok(t, s.Record(start))
		ok(t, l.Run(s))
		ok(t, s.Record(end))
		if (ran == 1) != eager {
			t.Errorf("eager %v: ran %d times at the launch", eager, ran)
		}
		ok(t, s.Synchronize())
		if d, err := end.Since(start); err != nil || d.Round(time.Microsecond) != 3002*time.Microsecond {
			t.Errorf("%v, %v", d, err)
		}
		if fake.Calls("cuLaunchKernelEx") != 1 || fake.Calls("cuEventRecord") != 2 {
			t.Error("Calls")
		}
		for _, c := range []interface{ Close() error }{m, b, start, end, s, ctx} {
			ok(t, c.Close())
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernelFails: a kernel's own failure is a result, its panic the test's.
func TestKernelFails(t *testing.T) {
	d, s := raw(t, Options{})
	d.AddKernel("fd_assert", Kernel{Run: func(c *Call) { c.Fail(driver.Assert, "n > 0") }})
	d.AddKernel("fd_panic", Kernel{Params: []int{4}, Run: func(c *Call) { Arg[uint64](c, 0) }})
	var m driver.Module
	var f driver.Function
	want(t, d.ModuleLoadDataEx(&m, Image("fd_assert", "fd_panic"), nil), driver.Success)
	launch := func(name string) {
		want(t, d.ModuleGetFunction(&f, m, name), driver.Success)
		l := driver.NewLaunch([]unsafe.Pointer{unsafe.Pointer(new(int32))}[:len(d.kernels[name].Params)])
		l.Config = driver.LaunchConfig{Grid: driver.Dim3{X: 1, Y: 1, Z: 1}, Block: driver.Dim3{X: 1, Y: 1, Z: 1}, Stream: s, Attrs: l.Config.Attrs}
		want(t, d.LaunchKernelEx(f, l), driver.Success)
	}
	launch("fd_panic")
	func() {
		defer func() {
			if p, _ := recover().(string); !strings.Contains(p, "argument 0 of fd_panic has 4 bytes, uint64 has 8") {
				t.Errorf("panic %q", p)
			}
		}()
		d.StreamSynchronize(s)
	}()
	launch("fd_assert")
	want(t, d.StreamSynchronize(s), driver.Assert)
	if f := d.Faults(); len(f) != 1 || f[0] != "fd_assert: n > 0" {
		t.Errorf("faults %q", f)
	}
	want(t, d.DevicePrimaryCtxRelease(0), driver.Success)
	var c driver.Context
	want(t, d.DevicePrimaryCtxRetain(&c, 0), driver.Assert) // only a new process helps
}

func TestFatal(t *testing.T) {
	for r := Result(0); r < 1000; r++ {
		if lost := (&cuda.Error{Result: r}).Is(cuda.ErrContextLost); lost != fatal(r) {
			t.Errorf("%v: package cuda says lost = %v, the driver %v", r, lost, fatal(r))
		}
	}
}
