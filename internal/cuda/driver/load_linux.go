//go:build linux && (amd64 || arm64)

package driver

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is libcuda, loaded.
type library struct {
	addr   [numSymbols]uintptr // 0: missing
	frames sync.Pool           // of *[5]uintptr
}

// Load opens the library at path ("libcuda.so.1" lets the dynamic linker search) and looks its functions up.
// A missing function is no error here: Has tells. The library stays loaded for the life of the process.
func Load(path string) (API, error) {
	runtime.LockOSThread() // dlerror speaks of the calling thread's last failure
	defer runtime.UnlockOSThread()
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	l := &library{frames: sync.Pool{New: func() any { return new([5]uintptr) }}}
	for i, s := range symbols {
		l.addr[i], _ = purego.Dlsym(h, s.Name)
	}
	return l, nil
}

func (l *library) Has(name string) bool {
	for i, s := range symbols {
		if s.Name == name {
			return l.addr[i] != 0
		}
	}
	return false
}

// call5 calls a function of up to five arguments: those it doesn't have are 0 in registers it doesn't read. The
// arguments go through a reused slice, because the variadic one of SyscallN escapes: as it stands a call allocates
// nothing. The pragma keeps what the arguments point to alive and in place; so do those below, for their callers.
//
//go:uintptrescapes
func (l *library) call5(s symbol, a, b, c, d, e uintptr) Result {
	if l.addr[s] == 0 {
		return CallRequiresNewerDriver
	}
	f := l.frames.Get().(*[5]uintptr)
	*f = [5]uintptr{a, b, c, d, e}
	r, _, _ := purego.SyscallN(l.addr[s], f[:]...)
	l.frames.Put(f)
	return Result(int32(r))
}

//go:uintptrescapes
func (l *library) call1(s symbol, a uintptr) Result { return l.call5(s, a, 0, 0, 0, 0) }

//go:uintptrescapes
func (l *library) call2(s symbol, a, b uintptr) Result { return l.call5(s, a, b, 0, 0, 0) }

//go:uintptrescapes
func (l *library) call3(s symbol, a, b, c uintptr) Result { return l.call5(s, a, b, c, 0, 0) }

//go:uintptrescapes
func (l *library) call4(s symbol, a, b, c, d uintptr) Result { return l.call5(s, a, b, c, d, 0) }

// LaunchKernelEx is the hot call: its argument slice is in the launch.
func (l *library) LaunchKernelEx(f Function, a *Launch) Result {
	if l.addr[symLaunchKernelEx] == 0 {
		return CallRequiresNewerDriver
	}
	a.args[0] = uintptr(unsafe.Pointer(&a.Config))
	a.args[1] = uintptr(f)
	a.args[2] = uintptr(unsafe.Pointer(unsafe.SliceData(a.Params)))
	a.args[3] = 0 // extra: the other way to pass parameters
	r, _, _ := purego.SyscallN(l.addr[symLaunchKernelEx], a.args[:]...)
	runtime.KeepAlive(a)
	return Result(int32(r))
}

// cString returns s with the zero that C wants behind it.
func cString(s string) *byte { return &append([]byte(s), 0)[0] }

func (l *library) ModuleLoadDataEx(m *Module, image, errorLog []byte) Result {
	if len(image) == 0 {
		return InvalidImage
	}
	if !bytes.HasPrefix(image, []byte("\x7fELF")) && image[len(image)-1] != 0 {
		image = append(image[:len(image):len(image)], 0) // PTX text ends with a zero
	}
	options := &[2]JITOption{JITErrorLogBuffer, JITErrorLogBufferBytes}
	values := &[2]uintptr{uintptr(unsafe.Pointer(unsafe.SliceData(errorLog))), uintptr(len(errorLog))}
	n := uintptr(len(options))
	if len(errorLog) == 0 {
		n = 0
	}
	r := l.call5(symModuleLoadDataEx, uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(&image[0])), n,
		uintptr(unsafe.Pointer(options)), uintptr(unsafe.Pointer(values)))
	runtime.KeepAlive(errorLog)
	return r
}

func (l *library) ModuleGetFunction(f *Function, m Module, name string) Result {
	return l.call3(symModuleGetFunction, uintptr(unsafe.Pointer(f)), uintptr(m), uintptr(unsafe.Pointer(cString(name))))
}

func (l *library) ModuleGetGlobal(p *Ptr, n *uint64, m Module, name string) Result {
	return l.call4(symModuleGetGlobal, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(n)), uintptr(m),
		uintptr(unsafe.Pointer(cString(name))))
}

func (l *library) DeviceGetName(name []byte, d Device) Result {
	if len(name) == 0 {
		return InvalidValue
	}
	return l.call3(symDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(uint32(d)))
}

func (l *library) OccupancyMaxActiveClusters(n *int32, f Function, a *Launch) Result {
	r := l.call3(symOccupancyMaxActiveClusters, uintptr(unsafe.Pointer(n)), uintptr(f), uintptr(unsafe.Pointer(&a.Config)))
	runtime.KeepAlive(a)
	return r
}

func (l *library) OccupancyMaxPotentialClusterSize(n *int32, f Function, a *Launch) Result {
	r := l.call3(symOccupancyMaxPotentialClusterSize, uintptr(unsafe.Pointer(n)), uintptr(f), uintptr(unsafe.Pointer(&a.Config)))
	runtime.KeepAlive(a)
	return r
}

func (l *library) GraphGetNodes(g Graph, n *uint64) Result {
	return l.call3(symGraphGetNodes, uintptr(g), 0, uintptr(unsafe.Pointer(n)))
}
