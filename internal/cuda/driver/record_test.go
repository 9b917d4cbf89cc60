//go:build linux && (amd64 || arm64)

package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

var (
	buildDir string
	built    = map[string]string{} // flags to path: tests share what one compiled
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "libcuda")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles the recording library, with a toolkit's cuda.h if there is one.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the C side of the calls isn't checked")
	}
	key := strings.Join(flags, " ")
	if path := built[key]; path != "" {
		return path
	}
	if h, _ := filepath.Glob("../../../.cuda/nvidia/*/include/cuda.h"); len(h) > 0 {
		flags = append(flags, "-DCUDA_H", "-I"+filepath.Dir(h[0]))
	} else {
		t.Log("no toolkit in .cuda: signatures are compared with testdata/libcuda.c, not with cuda.h")
	}
	path := filepath.Join(buildDir, fmt.Sprintf("libcuda%d.so", len(built)))
	flags = append(flags, "-std=gnu11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", path, "testdata/libcuda.c")
	if out, err := exec.Command(cc, flags...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	built[key] = path
	return path
}

// recorder is the library and what it was last called with.
type recorder struct {
	*library
	last func(name *byte, args *uint64) int32
}

func record(t testing.TB, flags ...string) *recorder {
	t.Helper()
	path := build(t, flags...)
	api, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{library: api.(*library)}
	purego.RegisterLibFunc(&r.last, h, "fd_last")
	return r
}

func (r *recorder) call() (string, []uint64) {
	name, args := make([]byte, 64), make([]uint64, 32)
	n := r.last(&name[0], &args[0])
	name, _, _ = bytes.Cut(name, []byte{0})
	return string(name), args[:n]
}

func neg(v int64) uint64 { return uint64(v) }

// outputs collects what calls wrote.
type outputs struct {
	i32      [2]int32
	u64      [2]uint64
	ptr      Ptr
	dev      Device
	ctx      Context
	stream   Stream
	event    Event
	module   Module
	function Function
	graph    Graph
	exec     Exec
	physical Physical
	ms       float32
	uuid     [16]byte
	name     [32]byte
	log      [32]byte
	host     unsafe.Pointer
	byte     [1]byte
}

const big = 0x1_2345_6789 // doesn't fit 32 bits

// callCase is a call, the arguments the library should see, and whether its outputs arrived.
type callCase struct {
	name string
	call func() Result
	args []uint64
	out  func() bool
}

// callCases has every function: numbers that don't fit 32 bits or are negative show a wrong width, the order shows a
// swap.
func callCases(r *recorder, o *outputs) []callCase {
	l := NewLaunch([]unsafe.Pointer{unsafe.Pointer(&[1]uint64{1 << 40}), unsafe.Pointer(&[1]uint32{7})})
	l.Config = LaunchConfig{Grid: Dim3{1, 2, 3}, Block: Dim3{4, 5, 6}, SharedBytes: 7, Stream: big, Attrs: l.Config.Attrs, NumAttrs: 3}
	l.Attrs[0] = LaunchAttribute{ID: AttrCluster, Value: [16]uint32{8, 9, 10}}
	l.Attrs[1] = LaunchAttribute{ID: AttrCooperative, Value: [16]uint32{11}}
	l.Attrs[2] = LaunchAttribute{ID: AttrProgrammatic, Value: [16]uint32{12}}
	launch := func(last uint64) []uint64 {
		return []uint64{big, 1, 2, 3, 4, 5, 6, 7, big, 3, 4, 8, 9, 10, 2, 11, 6, 12, last}
	}
	prop := &AllocationProp{Type: AllocationPinned, Location: Location{LocationDevice, 3}}
	propArgs := func(x, y uint64) []uint64 { return []uint64{x, y, 1, 0, 1, 3, 0, 0, 0, 0, 32} }
	src := []byte{9}
	hostMem := func() unsafe.Pointer { return o.host }
	return []callCase{
		{"cuInit", func() Result { return r.Init(5) }, []uint64{5}, nil},
		{"cuDriverGetVersion", func() Result { return r.DriverGetVersion(&o.i32[0]) }, []uint64{0}, func() bool { return o.i32[0] == 13000 }},
		{"cuDeviceGetCount", func() Result { return r.DeviceGetCount(&o.i32[0]) }, []uint64{0}, func() bool { return o.i32[0] == 1 }},
		{"cuDeviceGet", func() Result { return r.DeviceGet(&o.dev, -2) }, []uint64{neg(-2)}, func() bool { return o.dev == 3 }},
		{"cuDeviceGetName", func() Result { return r.DeviceGetName(o.name[:], 3) }, []uint64{32, 3}, func() bool { return string(o.name[:9]) == "recorder\x00" }},
		{"cuDeviceTotalMem_v2", func() Result { return r.DeviceTotalMem(&o.u64[0], 3) }, []uint64{3}, func() bool { return o.u64[0] == 0x123456789a }},
		{"cuDeviceGetAttribute", func() Result { return r.DeviceGetAttribute(&o.i32[0], DevSMs, 3) }, []uint64{16, 3}, func() bool { return o.i32[0] == 1016 }},
		{"cuDeviceGetUuid_v2", func() Result { return r.DeviceGetUuid(&o.uuid, 3) }, []uint64{3}, func() bool { return string(o.uuid[:]) == "0123456789abcdef" }},
		{"cuDevicePrimaryCtxRetain", func() Result { return r.DevicePrimaryCtxRetain(&o.ctx, 3) }, []uint64{3}, func() bool { return o.ctx == 0xc0ffee00c0 }},
		{"cuDevicePrimaryCtxRelease_v2", func() Result { return r.DevicePrimaryCtxRelease(-3) }, []uint64{neg(-3)}, nil},
		{"cuCtxSetCurrent", func() Result { return r.CtxSetCurrent(big) }, []uint64{big}, nil},
		{"cuCtxGetStreamPriorityRange", func() Result { return r.CtxGetStreamPriorityRange(&o.i32[0], &o.i32[1]) }, []uint64{0}, func() bool { return o.i32 == [2]int32{0, -5} }},

		{"cuStreamCreateWithPriority", func() Result { return r.StreamCreateWithPriority(&o.stream, StreamNonBlocking, -5) }, []uint64{1, neg(-5)}, func() bool { return o.stream == 0x5100000001 }},
		{"cuStreamDestroy_v2", func() Result { return r.StreamDestroy(big) }, []uint64{big}, nil},
		{"cuStreamSynchronize", func() Result { return r.StreamSynchronize(big) }, []uint64{big}, nil},
		{"cuStreamQuery", func() Result { return r.StreamQuery(big) }, []uint64{big}, nil},
		{"cuStreamWaitEvent", func() Result { return r.StreamWaitEvent(big, big+1, 2) }, []uint64{big, big + 1, 2}, nil},
		{"cuStreamBeginCapture_v2", func() Result { return r.StreamBeginCapture(big, CaptureThreadLocal) }, []uint64{big, 1}, nil},
		{"cuStreamEndCapture", func() Result { return r.StreamEndCapture(big, &o.graph) }, []uint64{big}, func() bool { return o.graph == 0x6100000001 }},
		{"cuStreamIsCapturing", func() Result { return r.StreamIsCapturing(big, &o.i32[0]) }, []uint64{big}, func() bool { return o.i32[0] == 2 }},
		{"cuEventCreate", func() Result { return r.EventCreate(&o.event, EventDisableTiming) }, []uint64{2}, func() bool { return o.event == 0x7100000001 }},
		{"cuEventDestroy_v2", func() Result { return r.EventDestroy(big) }, []uint64{big}, nil},
		{"cuEventRecord", func() Result { return r.EventRecord(big, big+1) }, []uint64{big, big + 1}, nil},
		{"cuEventSynchronize", func() Result { return r.EventSynchronize(big) }, []uint64{big}, nil},
		{"cuEventQuery", func() Result { return r.EventQuery(big) }, []uint64{big}, nil},
		{"cuEventElapsedTime", func() Result { return r.EventElapsedTime(&o.ms, big, big+1) }, []uint64{big, big + 1}, func() bool { return o.ms == 1.5 }},

		{"cuModuleLoadDataEx", func() Result { return r.ModuleLoadDataEx(&o.module, []byte("PTX"), o.log[:]) }, []uint64{3, 2, 5, 6, 32},
			func() bool { return o.module == 0x8100000001 && strings.HasPrefix(string(o.log[:]), "a complaint\x00") }},
		{"cuModuleLoadDataEx", func() Result { return r.ModuleLoadDataEx(&o.module, []byte("PTX\x00"), nil) }, []uint64{3, 0, 0, 0, 0}, nil},
		{"cuModuleUnload", func() Result { return r.ModuleUnload(big) }, []uint64{big}, nil},
		{"cuModuleGetFunction", func() Result { return r.ModuleGetFunction(&o.function, big, "xyz") }, []uint64{big, 3, 'x'}, func() bool { return o.function == 0x9100000001 }},
		{"cuModuleGetGlobal_v2", func() Result { return r.ModuleGetGlobal(&o.ptr, &o.u64[0], big, "y") }, []uint64{big, 1, 'y'}, func() bool { return o.ptr == 0xa100000001 && o.u64[0] == 0xb100000001 }},
		{"cuFuncGetAttribute", func() Result { return r.FuncGetAttribute(&o.i32[0], FuncNumRegs, big) }, []uint64{4, big}, func() bool { return o.i32[0] == 2004 }},
		{"cuFuncSetAttribute", func() Result { return r.FuncSetAttribute(big, FuncMaxDynamicSharedBytes, -7) }, []uint64{big, 8, neg(-7)}, nil},
		{"cuFuncGetParamInfo", func() Result { return r.FuncGetParamInfo(big, 0, &o.u64[0], &o.u64[1]) }, []uint64{big, 0}, func() bool { return o.u64 == [2]uint64{0xc100000001, 40} }},
		{"cuFuncLoad", func() Result { return r.FuncLoad(big) }, []uint64{big}, nil},
		{"cuOccupancyMaxActiveBlocksPerMultiprocessor", func() Result { return r.OccupancyMaxActiveBlocksPerMultiprocessor(&o.i32[0], big, 128, big+1) }, []uint64{big, 128, big + 1}, func() bool { return o.i32[0] == 3 }},
		{"cuOccupancyMaxActiveClusters", func() Result { return r.OccupancyMaxActiveClusters(&o.i32[0], big, l) }, launch(0), func() bool { return o.i32[0] == 4 }},
		{"cuOccupancyMaxPotentialClusterSize", func() Result { return r.OccupancyMaxPotentialClusterSize(&o.i32[0], big, l) }, launch(0), func() bool { return o.i32[0] == 16 }},
		{"cuLaunchKernelEx", func() Result { return r.LaunchKernelEx(big, l) }, launch(1<<40 + 7), nil},

		{"cuGraphInstantiateWithFlags", func() Result { return r.GraphInstantiateWithFlags(&o.exec, big, big+1) }, []uint64{big, big + 1}, func() bool { return o.exec == 0xd100000001 }},
		{"cuGraphUpload", func() Result { return r.GraphUpload(big, big+1) }, []uint64{big, big + 1}, nil},
		{"cuGraphLaunch", func() Result { return r.GraphLaunch(big, big+1) }, []uint64{big, big + 1}, nil},
		{"cuGraphExecDestroy", func() Result { return r.GraphExecDestroy(big) }, []uint64{big}, nil},
		{"cuGraphDestroy", func() Result { return r.GraphDestroy(big) }, []uint64{big}, nil},
		{"cuGraphGetNodes", func() Result { return r.GraphGetNodes(big, &o.u64[0]) }, []uint64{big, 0}, func() bool { return o.u64[0] == 0xe100000001 }},

		{"cuMemAlloc_v2", func() Result { return r.MemAlloc(&o.ptr, big) }, []uint64{big}, func() bool { return o.ptr == 0xf100000001 }},
		{"cuMemFree_v2", func() Result { return r.MemFree(big) }, []uint64{big}, nil},
		{"cuMemGetInfo_v2", func() Result { return r.MemGetInfo(&o.u64[0], &o.u64[1]) }, []uint64{0}, func() bool { return o.u64 == [2]uint64{0x1200000001, 0x1300000001} }},
		{"cuMemcpyHtoDAsync_v2", func() Result { return r.MemcpyHtoDAsync(big, unsafe.Pointer(&src[0]), 1, big+1) }, []uint64{big, 9, 1, big + 1}, nil},
		{"cuMemcpyDtoHAsync_v2", func() Result { return r.MemcpyDtoHAsync(unsafe.Pointer(&o.byte), big, 1, big+1) }, []uint64{big, 1, big + 1}, func() bool { return o.byte[0] == 42 }},
		{"cuMemcpyDtoDAsync_v2", func() Result { return r.MemcpyDtoDAsync(big, big+1, big+2, big+3) }, []uint64{big, big + 1, big + 2, big + 3}, nil},
		{"cuMemsetD8Async", func() Result { return r.MemsetD8Async(big, 200, big+1, big+2) }, []uint64{big, 200, big + 1, big + 2}, nil},
		{"cuMemsetD32Async", func() Result { return r.MemsetD32Async(big, 1<<31, big+1, big+2) }, []uint64{big, 1 << 31, big + 1, big + 2}, nil},
		{"cuMemHostAlloc", func() Result { return r.MemHostAlloc(&o.host, big, 3) }, []uint64{big, 3}, func() bool { return *(*byte)(o.host) == 77 }},
		{"cuMemHostGetDevicePointer_v2", func() Result { return r.MemHostGetDevicePointer(&o.ptr, hostMem()) }, []uint64{1, 0}, func() bool { return o.ptr == 0x1400000001 }},
		{"cuMemFreeHost", func() Result { return r.MemFreeHost(hostMem()) }, []uint64{1}, nil},

		{"cuMemAddressReserve", func() Result { return r.MemAddressReserve(&o.ptr, big, 1<<35) }, []uint64{big, 1 << 35, 0, 0}, func() bool { return o.ptr == 0x1500000001 }},
		{"cuMemAddressFree", func() Result { return r.MemAddressFree(big, big+1) }, []uint64{big, big + 1}, nil},
		{"cuMemCreate", func() Result { return r.MemCreate(&o.physical, big, prop) }, propArgs(big, 0), func() bool { return o.physical == 0x1600000001 }},
		{"cuMemRelease", func() Result { return r.MemRelease(big) }, []uint64{big}, nil},
		{"cuMemMap", func() Result { return r.MemMap(big, big+1, big+2, big+3) }, []uint64{big, big + 1, big + 2, big + 3, 0}, nil},
		{"cuMemUnmap", func() Result { return r.MemUnmap(big, big+1) }, []uint64{big, big + 1}, nil},
		{"cuMemSetAccess", func() Result {
			return r.MemSetAccess(big, big+1, &AccessDesc{Location{LocationDevice, 3}, AccessReadWrite})
		}, []uint64{big, big + 1, 1, 3, 3, 1, 12}, nil},
		{"cuMemGetAllocationGranularity", func() Result { return r.MemGetAllocationGranularity(&o.u64[0], prop, GranularityRecommended) }, propArgs(1, 0), func() bool { return o.u64[0] == 0x1700000001 }},
	}
}

// TestCalls compares both sides of every call.
func TestCalls(t *testing.T) {
	r := record(t)
	o := new(outputs)
	untested := map[string]bool{}
	for _, s := range symbols {
		untested[s.Name] = true
	}
	for _, c := range callCases(r, o) {
		if res := c.call(); res != Success {
			t.Errorf("%s: %v", c.name, res)
		}
		name, args := r.call()
		if want := strings.TrimSuffix(c.name, "_v2"); strings.TrimSuffix(name, "_v2") != want || !slices.Equal(args, c.args) {
			t.Errorf("%s: the library saw %s %#x, want %#x", c.name, name, args, c.args)
		}
		if c.out != nil && !c.out() {
			t.Errorf("%s: output not received: %+v", c.name, o)
		}
		*o = outputs{host: o.host}
		delete(untested, c.name)
	}
	for name := range untested {
		t.Errorf("%s isn't tested", name)
	}
}

func TestLayout(t *testing.T) {
	var c LaunchConfig
	var a LaunchAttribute
	for _, x := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUlaunchConfig", unsafe.Sizeof(c), 56}, {"hStream", unsafe.Offsetof(c.Stream), 32}, {"attrs", unsafe.Offsetof(c.Attrs), 40},
		{"numAttrs", unsafe.Offsetof(c.NumAttrs), 48}, {"CUlaunchAttribute", unsafe.Sizeof(a), 72}, {"value", unsafe.Offsetof(a.Value), 8},
		{"CUmemAllocationProp", unsafe.Sizeof(AllocationProp{}), 32}, {"CUmemAccessDesc", unsafe.Sizeof(AccessDesc{}), 12},
	} {
		if x.got != x.want {
			t.Errorf("%s: %d, C has %d", x.name, x.got, x.want)
		}
	}
}

func TestMissing(t *testing.T) {
	r := record(t, "-DWITHOUT")
	for _, s := range Symbols() {
		if want := s.Name != "cuLaunchKernelEx" && !s.Optional; r.Has(s.Name) != want {
			t.Errorf("Has(%s) = %v", s.Name, !want)
		}
	}
	if r.Has("cuNothing") {
		t.Error("Has(cuNothing)")
	}
	var n uint64
	if res := r.FuncGetParamInfo(1, 0, &n, &n); res != CallRequiresNewerDriver {
		t.Errorf("a missing function answers %v", res)
	}
	if res := r.LaunchKernelEx(1, NewLaunch(nil)); res != CallRequiresNewerDriver {
		t.Errorf("a missing launch answers %v", res)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "libcuda.so.1")); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("Load of nothing: %v", err)
	}
}

func BenchmarkLaunch(b *testing.B) {
	api := record(b)
	l := NewLaunch([]unsafe.Pointer{unsafe.Pointer(new(uint64)), unsafe.Pointer(new(uint64))})
	for b.Loop() {
		api.LaunchKernelEx(1, l)
	}
}

func BenchmarkCall(b *testing.B) {
	api := record(b)
	for b.Loop() {
		api.CtxSetCurrent(1)
	}
}

func TestModuleImage(t *testing.T) {
	r := record(t)
	var m Module
	if res := r.ModuleLoadDataEx(&m, nil, nil); res != InvalidImage {
		t.Errorf("an empty image: %v", res)
	}
	if res := r.DeviceGetName(nil, 0); res != InvalidValue {
		t.Errorf("no room for a name: %v", res)
	}
	text := binary.LittleEndian.AppendUint32([]byte("PTX"), 0x41414141)[:3] // what lies behind must stay
	r.ModuleLoadDataEx(&m, text, nil)
	if _, args := r.call(); args[0] != 3 || text[:4][3] != 0x41 {
		t.Errorf("the library saw %d characters; behind them: %#x", args[0], text[:4][3])
	}
}
