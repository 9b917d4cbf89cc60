package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

func TestOpenFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     cudatest.Options
		kind  error
		words []string
	}{
		{"no device", cudatest.Options{Devices: []cudatest.Spec{}}, cuda.ErrNoDevice, []string{"CUDA_ERROR_NO_DEVICE (100)", "--gpus all"}},
		{"mismatch", cudatest.Options{Init: driver.SystemDriverMismatch}, cuda.ErrNoDriver, []string{"cuInit", "reboot"}},
		{"stub", cudatest.Options{Init: driver.StubLibrary}, cuda.ErrNoDriver, []string{"LD_LIBRARY_PATH"}},
		{"fabric", cudatest.Options{Init: driver.SystemNotReady}, cuda.ErrNoDriver, []string{"fabricmanager"}},
		{"old", cudatest.Options{Version: 11040}, cuda.ErrDriverTooOld, []string{"supports CUDA 11.4", "driver 525 or newer (CUDA 12.0)"}},
		{"old and without", cudatest.Options{Version: 11040, Missing: []string{"cuLaunchKernelEx"}}, cuda.ErrDriverTooOld, []string{"525"}},
		{"symbol", cudatest.Options{Missing: []string{"cuLaunchKernelEx"}}, cuda.ErrSymbol, []string{"no cuLaunchKernelEx, which CUDA 11.6 brought", "supports CUDA 13.0", "525"}},
		{"first symbol", cudatest.Options{Missing: []string{"cuDriverGetVersion"}}, cuda.ErrSymbol, []string{"no cuDriverGetVersion"}},
		{"unknown", cudatest.Options{Init: driver.Unknown}, nil, []string{"nvidia_uvm"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := cuda.New(cudatest.New(c.o))
			if c.kind == nil {
				c.kind = err
			}
			wantErr(t, "New", err, c.kind, c.words...)
		})
	}
	fake := cudatest.New(cudatest.Options{})
	fake.Fail("cuDriverGetVersion", 1, driver.Unknown)
	if _, err := cuda.New(fake); err == nil {
		t.Error("no version, no error")
	}
}

// TestMissingOptional: a driver before CUDA 12.4 can't tell the sizes of parameters; launches work unchecked.
func TestMissingOptional(t *testing.T) {
	w := open(t, cudatest.Options{Version: 12020, Missing: []string{"cuFuncGetParamInfo", "cuFuncLoad"}})
	f := w.kernel("fd_axpy", axpyKernel())
	must(f.NewLaunch())(t)
	wantErr(t, "Require", w.drv.Require(13000, "the kernels are built for CUDA 13.0"), cuda.ErrDriverTooOld,
		"supports CUDA 12.2, the kernels are built for CUDA 13.0", "driver 580")
	w.check(w.drv.Require(12020, ""))
	if v := w.drv.Version(); v != 12020 {
		t.Errorf("version %v", v)
	}
}

func TestDeviceFailures(t *testing.T) {
	for _, call := range []string{"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceTotalMem", "cuDeviceGetAttribute"} {
		drv, fake := cudatest.Open(t, cudatest.Options{})
		fake.Fail(call, 1, driver.DeviceUnavailable)
		_, err := drv.Devices()
		wantErr(t, call, err, cuda.ErrNoDevice, call, "exclusively")
	}
	drv, fake := cudatest.Open(t, cudatest.Options{})
	fake.Fail("cuDevicePrimaryCtxRetain", 1, driver.OutOfMemory)
	_, err := must(drv.Device(0))(t).Open()
	wantErr(t, "Open", err, cuda.ErrOutOfMemory, "device 0")
}

// TestLost: every result that loses the context says so once and for all, and closing still works.
func TestLost(t *testing.T) {
	for _, r := range []driver.Result{
		driver.ECCUncorrectable, driver.NVLinkUncorrectable, driver.Contained, driver.IllegalAddress, driver.LaunchTimeout,
		driver.ContextIsDestroyed, driver.Assert, driver.HardwareStackError, driver.IllegalInstruction,
		driver.MisalignedAddress, driver.InvalidAddressSpace, driver.InvalidPC, driver.LaunchFailed, driver.TensorMemoryLeak,
		driver.MPSClientTerminated, driver.ExternalDevice,
	} {
		t.Run(r.String(), func(t *testing.T) {
			w := open(t, cudatest.Options{})
			f := w.kernel("fd_axpy", axpyKernel())
			b := w.alloc(8)
			l := must(f.NewLaunch(cuda.Arg(&axpy{X: b.Ptr(), Y: b.Ptr(), N: 1})))(t)
			l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 32}
			w.fake.FailLaunch(2, r)
			w.check(l.Run(w.s))
			w.check(w.s.Synchronize())
			w.check(l.Run(w.s)) // the launch itself succeeds: it fails later
			w.check(l.Run(w.s)) // never runs
			if w.ctx.Lost() != nil {
				t.Error("lost too early")
			}
			err := w.s.Synchronize()
			wantErr(t, "Synchronize", err, cuda.ErrContextLost, "cuStreamSynchronize", r.String(), "start the process anew")
			var e *cuda.Error
			if !errors.As(err, &e) || e.Result != r {
				t.Errorf("errors.As: %+v", e)
			}
			calls := w.fake.Calls("cuMemAlloc")
			_, err = w.ctx.Alloc(1)
			wantErr(t, "Alloc", err, cuda.ErrContextLost, "since an earlier failure: cuda: cuStreamSynchronize", r.String())
			wantErr(t, "Run", l.Run(w.s), cuda.ErrContextLost)
			wantErr(t, "Lost", w.ctx.Lost(), cuda.ErrContextLost)
			if w.fake.Calls("cuMemAlloc") != calls {
				t.Error("a lost context is still asked")
			}
			if n := len(w.fake.Launches()); n != 2 {
				t.Errorf("%d launches ran, want 2", n)
			}
			if errors.Is(err, cuda.ErrOutOfMemory) {
				t.Error("lost and out of memory at once")
			}
		})
	}
}

// TestOutOfMemory: the error has the numbers, and nothing is lost.
func TestOutOfMemory(t *testing.T) {
	spec := cudatest.H200()
	spec.MemoryBytes = 10 << 20
	w := open(t, cudatest.Options{Devices: []cudatest.Spec{spec}})
	a := must(w.ctx.Alloc(6 << 20))(t)
	_, err := w.ctx.Alloc(5 << 20)
	wantErr(t, "Alloc", err, cuda.ErrOutOfMemory, "5242880 bytes, 4194304 of 10485760 free", "smaller KV cache")
	_, err = w.ctx.AllocPhysical(6 << 20)
	wantErr(t, "AllocPhysical", err, cuda.ErrOutOfMemory, "6291456 bytes, 4194304 of 10485760 free")
	w.check(w.ctx.Lost())
	w.close(a)
	w.close(must(w.ctx.Alloc(10 << 20))(t))
	free, total, err := w.ctx.MemInfo()
	if free != 10<<20 || total != 10<<20 || err != nil {
		t.Errorf("MemInfo: %d, %d, %v", free, total, err)
	}
	for n := range 3 { // the nth allocation from now on
		w.fake.FailAlloc(n + 1)
		var got []closer
		var err error
		for err == nil {
			var b *cuda.Buffer
			if b, err = w.ctx.Alloc(1); err == nil {
				got = append(got, b)
			}
		}
		if len(got) != n || !errors.Is(err, cuda.ErrOutOfMemory) {
			t.Errorf("%d allocations, then %v; want %d", len(got), err, n)
		}
		w.close(got...)
	}
	w.fake.FailAlloc(1)
	_, err = w.ctx.AllocHost(1)
	wantErr(t, "AllocHost", err, cuda.ErrOutOfMemory)
}

// TestIllegalAddress: copies and kernels that touch what they may not lose the context.
func TestIllegalAddress(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(w *world) error
		words string
	}{
		{"past the end", func(w *world) error { return w.s.Fill(w.alloc(64).Ptr()+60, 0, 5) }, "0 bytes behind the end of a buffer of 64"},
		{"before", func(w *world) error { return w.s.Fill(w.alloc(64).Ptr()-1, 0, 1) }, "no memory"},
		{"null", func(w *world) error { return w.s.Fill32(0, 0, 1) }, "no memory"},
		{"freed", func(w *world) error {
			b := w.alloc(64)
			p := b.Ptr()
			w.close(b)
			return w.s.Copy(p, p, 1)
		}, "buffer of 64 bytes, freed"},
		{"host freed too early", func(w *world) error {
			h, b := w.host(8), w.alloc(8)
			err := w.s.CopyIn(b.Ptr(), h, 0, 8)
			w.close(h)
			return err
		}, "host buffer of 8 bytes, freed"},
		{"module gone", func(w *world) error {
			w.fake.AddKernel("fd_x", cudatest.Kernel{})
			m := must(w.ctx.LoadModule(cudatest.Image("fd_x")))(w.t)
			l := must(must(m.Function("fd_x"))(w.t).NewLaunch())(w.t)
			l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
			err := l.Run(w.s)
			w.close(m)
			return err
		}, "module was unloaded"},
		{"unmapped", func(w *world) error {
			r := must(w.ctx.Reserve(4<<20, 0))(w.t)
			w.t.Cleanup(func() { w.close(r) })
			return w.s.Fill(r.Ptr()+5, 0, 1)
		}, "at 5 of a reserved range of 4194304 bytes, not mapped"},
		{"kernel", func(w *world) error {
			l := must(w.kernel("fd_axpy", axpyKernel()).NewLaunch(cuda.Arg(&axpy{X: 16, N: 1})))(w.t)
			l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
			return l.Run(w.s)
		}, "fd_axpy: 4 bytes at 0x10: no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, cudatest.Options{})
			w.check(c.do(w))
			wantErr(t, "Synchronize", w.s.Synchronize(), cuda.ErrContextLost, "ILLEGAL_ADDRESS", "compute-sanitizer")
			if f := strings.Join(w.fake.Faults(), "; "); !strings.Contains(f, c.words) {
				t.Errorf("the driver saw %q, want %q", f, c.words)
			}
		})
	}
}

// TestMisaligned: other fatal results of kernels arrive as what they are.
func TestMisaligned(t *testing.T) {
	w := open(t, cudatest.Options{})
	f := w.kernel("fd_axpy", axpyKernel())
	b := w.alloc(8)
	l := must(f.NewLaunch(cuda.Arg(&axpy{X: b.Ptr() + 1, Y: b.Ptr(), N: 1})))(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
	w.check(l.Run(w.s))
	wantErr(t, "Synchronize", w.s.Synchronize(), cuda.ErrContextLost, "MISALIGNED_ADDRESS")
}

// TestClosed: what is closed answers ErrClosed, and closing twice is harmless.
func TestClosed(t *testing.T) {
	w := open(t, cudatest.Options{})
	w.fake.AddKernel("fd_x", cudatest.Kernel{Params: []int{4}})
	c, s := w.ctx, must(w.ctx.NewStream(cuda.NormalPriority))(t)
	e, b, h := must(c.NewEvent(true))(t), must(c.Alloc(8))(t), must(c.AllocHost(8))(t)
	e2 := must(c.NewEvent(false))(t)
	m := must(c.LoadModule(cudatest.Image("fd_x")))(t)
	f := must(m.Function("fd_x"))(t)
	l := must(f.NewLaunch(cuda.Arg(new(int32))))(t)
	l.Grid, l.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 1}
	g := must(s.Capture(func() error { return l.Run(s) }))(t)
	x := must(g.Instantiate())(t)
	r, p := must(c.Reserve(4<<20, 0))(t), must(c.AllocPhysical(2<<20))(t)

	wantText(t, "Close of the context", c.Close(), "2 streams, 2 events, 1 module, 1 graph, 1 graph exec, 1 buffer, 1 host buffer, 1 address range, 1 physical allocation")
	for range 2 {
		w.close(x, g, m, e, b, h, p, r, s)
	}
	if b.Ptr() != 0 || h.Ptr() != 0 || h.Bytes() != nil || r.Ptr() != 0 {
		t.Error("an address after Close")
	}
	for name, use := range map[string]func() error{
		"Synchronize": s.Synchronize, "Done": second(s.Done), "Wait": func() error { return w.s.Wait(e) },
		"Record": func() error { return w.s.Record(e) }, "Record, stream": func() error { return s.Record(e2) },
		"Run": func() error { return l.Run(s) }, "Run, module": func() error { return l.Run(w.s) },
		"Event.Done": second(e.Done), "Event.Synchronize": e.Synchronize, "Since": func() error { _, err := e.Since(e); return err },
		"CopyIn": func() error { return w.s.CopyIn(1, h, 0, 1) }, "CopyOut": func() error { return w.s.CopyOut(h, 0, 1, 1) },
		"Fill": func() error { return s.Fill(1, 0, 1) }, "Upload": func() error { return s.Upload(1, []byte{1}) },
		"Download": func() error { return s.Download([]byte{1}, 1) }, "Copy": func() error { return s.Copy(1, 1, 1) },
		"Fill32": func() error { return s.Fill32(1, 0, 1) }, "Capture": func() error { _, err := s.Capture(nil); return err },
		"Function": func() error { _, err := m.Function("fd_x"); return err }, "Global": func() error { _, _, err := m.Global("x"); return err },
		"NewLaunch": func() error { _, err := f.NewLaunch(); return err }, "SetDynamicShared": func() error { return f.SetDynamicShared(1) },
		"MaxBlocksPerSM": func() error { _, err := f.MaxBlocksPerSM(32, 0); return err }, "MaxClusters": second2(l.MaxClusters),
		"Nodes": second2(g.Nodes), "Instantiate": func() error { _, err := g.Instantiate(); return err },
		"Launch": func() error { return x.Launch(w.s) }, "Upload, exec": func() error { return x.Upload(w.s) },
		"Map": func() error { return r.Map(0, p) }, "Unmap": func() error { return r.Unmap(0, 2<<20) },
	} {
		wantErr(t, name, use(), cuda.ErrClosed)
	}
	r2 := must(c.Reserve(2<<20, 0))(t)
	wantErr(t, "Map of a closed allocation", r2.Map(0, p), cuda.ErrClosed, "physical allocation")
	w.close(r2, e2, w.s, w.ctx, w.ctx)
	for name, err := range map[string]error{
		"Alloc": second3(c.Alloc(1)), "AllocHost": second3(c.AllocHost(1)), "NewEvent": second3(c.NewEvent(false)),
		"NewStream": second3(c.NewStream(0)), "LoadModule": second3(c.LoadModule([]byte{1})), "Reserve": second3(c.Reserve(1, 0)),
		"AllocPhysical": second3(c.AllocPhysical(1)), "Granule": second3(c.Granule()),
	} {
		wantErr(t, name, err, cuda.ErrClosed, "context of device 0")
	}
}

func second(f func() (bool, error)) func() error { return func() error { _, err := f(); return err } }
func second2(f func() (int, error)) func() error { return func() error { _, err := f(); return err } }
func second3[T any](_ T, err error) error        { return err }

func wantText(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}

// TestEveryCallFails: a refusal of any call reaches the caller, named, and leaves nothing open.
func TestEveryCallFails(t *testing.T) {
	calls := []string{
		"cuCtxSetCurrent", "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority", "cuStreamDestroy", "cuStreamSynchronize",
		"cuStreamQuery", "cuStreamIsCapturing", "cuStreamWaitEvent", "cuStreamBeginCapture", "cuStreamEndCapture", "cuEventCreate", "cuEventDestroy",
		"cuEventRecord", "cuEventSynchronize", "cuEventQuery", "cuEventElapsedTime", "cuModuleLoadDataEx", "cuModuleUnload",
		"cuModuleGetFunction", "cuModuleGetGlobal", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncGetParamInfo", "cuFuncLoad",
		"cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize",
		"cuLaunchKernelEx", "cuGraphInstantiateWithFlags", "cuGraphUpload", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
		"cuGraphGetNodes", "cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
		"cuMemsetD8Async", "cuMemsetD32Async", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostGetDevicePointer", "cuMemAddressReserve",
		"cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemGetAllocationGranularity",
	}
	for _, call := range calls {
		fake := cudatest.New(cudatest.Options{})
		drv, err := cuda.New(fake)
		if err != nil {
			t.Fatal(err)
		}
		if err := useEverything(drv, fake); err != nil || fake.Calls(call) == 0 || fake.Leaks() != nil {
			t.Fatalf("without a failure: %v, %d × %s, left open %v", err, fake.Calls(call), call, fake.Leaks())
		}
		fake.Fail(call, 1, driver.OperatingSystem)
		err = useEverything(drv, fake)
		wantText(t, call, err, "cuda: "+call)
		wantText(t, call, err, "OPERATING_SYSTEM (304)")
		for _, l := range fake.Leaks() {
			// What a Close that failed left is the driver's loss, and so is a capture that doesn't end.
			if !strings.Contains(call, "Destroy") && !strings.Contains(call, "Unload") && !strings.Contains(call, "Free") &&
				call != "cuMemRelease" && call != "cuMemUnmap" && call != "cuCtxSetCurrent" && call != "cuStreamEndCapture" {
				t.Errorf("%s fails: left open: %s", call, l)
			}
		}
	}
}

// useEverything calls all of the package, joins the errors, and closes whatever it got.
func useEverything(drv *cuda.Driver, fake *cudatest.Driver) (err error) {
	join := func(e error) { err = errors.Join(err, e) }
	dev, e := drv.Device(0)
	join(e)
	ctx, e := dev.Open()
	join(e)
	fake.AddKernel("fd_x", cudatest.Kernel{Params: []int{4}})
	fake.AddGlobal("fd_x", 8)
	u := &user{ctx: ctx, join: join}
	u.everything()
	for i := len(u.opened) - 1; i >= 0; i-- {
		join(u.opened[i].Close())
	}
	join(ctx.Close())
	return err
}

type user struct {
	ctx    *cuda.Context
	join   func(error)
	opened []closer
}

// keep notes what has to be closed; it returns false where there is nothing.
func keep[T closer](u *user, v T, err error) (T, bool) {
	u.join(err)
	if err == nil {
		u.opened = append(u.opened, v)
	}
	return v, err == nil
}

func (u *user) everything() {
	c := u.ctx
	s, ok := keep2(u, c.NewStream, cuda.HighPriority)
	if s2, ok2 := keep2(u, c.NewStream, cuda.NormalPriority); ok2 && !ok {
		s, ok = s2, true
	}
	if !ok {
		return
	}
	a, okA := keep2(u, c.NewEvent, true)
	b, okB := keep2(u, c.NewEvent, true)
	if okA && okB {
		u.join(s.Record(a))
		u.join(s.Record(b))
		u.join(s.Wait(a))
		u.join(b.Synchronize())
		_, err := b.Done()
		u.join(err)
		_, err = b.Since(a)
		u.join(err)
	}
	u.memory(s)
	u.kernels(s)
	_, err := s.Done()
	u.join(err)
	u.join(s.Synchronize())
}

func keep2[T closer, A any](u *user, f func(A) (T, error), a A) (T, bool) {
	v, err := f(a)
	return keep(u, v, err)
}

func (u *user) memory(s *cuda.Stream) {
	c := u.ctx
	d, ok := keep2(u, c.Alloc, 64)
	h, okH := keep2(u, c.AllocHost, 64)
	_, _, err := c.MemInfo()
	u.join(err)
	if ok && okH {
		u.join(s.CopyIn(d.Ptr(), h, 0, 8))
		u.join(s.CopyOut(h, 0, d.Ptr(), 8))
		u.join(s.Synchronize())
	}
	if ok {
		u.join(s.Copy(d.Ptr(), d.Ptr()+8, 8))
		u.join(s.Fill(d.Ptr(), 1, 8))
		u.join(s.Fill32(d.Ptr(), 1, 2))
		u.join(s.Upload(d.Ptr(), make([]byte, 8)))
		u.join(s.Download(make([]byte, 8), d.Ptr()))
	}
	_, err = c.Granule()
	u.join(err)
	p, okP := keep2(u, c.AllocPhysical, 2<<20)
	r, err := c.Reserve(8<<20, 0)
	r, okR := keep(u, r, err)
	if okP && okR {
		u.join(r.Map(0, p, p))
		if r.Mapped() != 0 {
			u.join(r.Unmap(0, 4<<20))
		}
	}
}

func (u *user) kernels(s *cuda.Stream) {
	m, ok := keep2(u, u.ctx.LoadModule, cudatest.Image("fd_x"))
	if !ok {
		return
	}
	_, _, err := m.Global("fd_x")
	u.join(err)
	f, err := m.Function("fd_x")
	if u.join(err); err != nil {
		return
	}
	u.join(f.SetDynamicShared(100 << 10))
	u.join(f.AllowLargeClusters())
	_, err = f.MaxBlocksPerSM(128, 0)
	u.join(err)
	l, err := f.NewLaunch(cuda.Arg(new(int32)))
	if u.join(err); err != nil {
		return
	}
	l.Grid, l.Block, l.Cluster = cuda.Dim3{X: 4}, cuda.Dim3{X: 32}, cuda.Dim3{X: 2}
	_, err = l.MaxClusters()
	u.join(err)
	_, err = l.MaxClusterSize()
	u.join(err)
	u.join(l.Run(s))
	g, err := s.Capture(func() error { return l.Run(s) })
	if g, ok = keep(u, g, err); !ok {
		return
	}
	_, err = g.Nodes()
	u.join(err)
	x, err := g.Instantiate()
	if x, ok = keep(u, x, err); ok {
		u.join(x.Upload(s))
		u.join(x.Launch(s))
	}
	u.join(s.Synchronize())
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&cuda.Error{Call: "cuX", Result: 12345}, "cuda: cuX: CUresult 12345"},
		{&cuda.Error{Call: "cuX", What: "y", Result: driver.InvalidValue}, "cuda: cuX (y): CUDA_ERROR_INVALID_VALUE (1)"},
		{fmt.Errorf("z: %w", &cuda.VersionError{Driver: 12020, Need: 13010, For: "the kernels need 13.1"}),
			"z: cuda: the installed driver supports CUDA 12.2, the kernels need 13.1: install an NVIDIA driver that supports CUDA 13.1"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	if errors.Is(&cuda.Error{Result: driver.Unknown}, nil) {
		t.Error("an error without a kind is nil")
	}
}
