package cudatest

import (
	"bytes"
	"strings"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Kernel is a kernel as the driver sees it. Run does what all its threads together do.
type Kernel struct {
	Params      []int // bytes of each parameter
	Regs        int   // per thread; 0 counts as none
	SharedBytes int   // static
	LocalBytes  int
	MaxThreads  int // per block; 0: 1024
	Run         func(c *Call)
}

// AddKernel registers a kernel. Modules that are loaded have it if their image contains its name.
func (d *Driver) AddKernel(name string, k Kernel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.MaxThreads == 0 {
		k.MaxThreads = 1024
	}
	if k.Run == nil {
		k.Run = func(*Call) {}
	}
	d.kernels[name] = &k
}

// AddGlobal registers a variable of modules whose image contains its name.
func (d *Driver) AddGlobal(name string, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.globals[name] = bytes
}

// Image returns a module with these names in it. Any cubin, fatbin or PTX text will do as well.
func Image(names ...string) []byte {
	return []byte("//\n.version 8.0\n.target sm_80\n// " + strings.Join(names, " ") + "\n")
}

type module struct {
	ctx      *context
	image    []byte
	globals  map[string]driver.Ptr
	unloaded bool
}

type function struct {
	mod     *module
	name    string
	kernel  *Kernel
	dynamic int // allowed shared memory
	large   bool
}

func (m *module) owner() *context   { return m.ctx }
func (f *function) owner() *context { return f.mod.ctx }

func (d *Driver) ModuleLoadDataEx(m *driver.Module, image, errorLog []byte) Result {
	return d.outside("cuModuleLoadDataEx", func(c *context) Result {
		ptx := bytes.Contains(image, []byte(".version"))
		if !ptx && !bytes.HasPrefix(image, []byte("\x7fELF")) && !bytes.HasPrefix(image, []byte{0x50, 0xed, 0x55, 0xba}) {
			return driver.InvalidImage
		}
		if ptx && !bytes.Contains(image, []byte(".target")) {
			if n := copy(errorLog, "ptxas fatal: no .target directive\x00"); n == len(errorLog) && n > 0 {
				errorLog[n-1] = 0
			}
			return driver.InvalidPTX
		}
		*m = driver.Module(d.handle())
		d.modules[*m] = &module{ctx: c, image: bytes.Clone(image), globals: map[string]driver.Ptr{}}
		return driver.Success
	})
}

func (d *Driver) onModule(name string, id driver.Module, f func(*module) Result) Result {
	return d.on(name, func(c *context) Result {
		m := d.modules[id]
		if m == nil || m.ctx != c {
			return driver.InvalidHandle
		}
		return f(m)
	})
}

// ModuleUnload doesn't wait: launches still in a stream find no code.
func (d *Driver) ModuleUnload(id driver.Module) Result {
	return d.outside("cuModuleUnload", func(*context) Result {
		m := d.modules[id]
		if m == nil {
			return driver.InvalidHandle
		}
		m.unloaded = true
		for _, p := range m.globals {
			i, _ := d.find(p)
			d.unmap(d.segments[i])
		}
		for h, f := range d.functions {
			if f.mod == m {
				delete(d.functions, h)
			}
		}
		return remove(d.modules, id)
	})
}

func (d *Driver) ModuleGetFunction(f *driver.Function, id driver.Module, name string) Result {
	return d.onModule("cuModuleGetFunction", id, func(m *module) Result {
		k := d.kernels[name]
		if k == nil || !bytes.Contains(m.image, []byte(name)) {
			return driver.NotFound
		}
		for h, have := range d.functions {
			if have.mod == m && have.name == name {
				*f = h
				return driver.Success
			}
		}
		*f = driver.Function(d.handle())
		d.functions[*f] = &function{mod: m, name: name, kernel: k, dynamic: 48<<10 - k.SharedBytes}
		return driver.Success
	})
}

func (d *Driver) ModuleGetGlobal(p *driver.Ptr, n *uint64, id driver.Module, name string) Result {
	return d.onModule("cuModuleGetGlobal", id, func(m *module) Result {
		size := d.globals[name]
		if size == 0 || !bytes.Contains(m.image, []byte(name)) {
			return driver.NotFound
		}
		if m.globals[name] == 0 {
			mem, r := d.newMemory(m.ctx, uint64(size))
			if r != driver.Success {
				return r
			}
			base := d.address(uint64(size), alignment)
			d.insert(segment{base: base, bytes: uint64(size), mem: mem, ctx: m.ctx, kind: global, readable: true})
			m.globals[name] = base
		}
		*p, *n = m.globals[name], uint64(size)
		return driver.Success
	})
}

func (d *Driver) onFunction(name string, id driver.Function, f func(*function) Result) Result {
	return d.on(name, func(c *context) Result {
		fn := d.functions[id]
		if fn == nil || fn.mod.ctx != c {
			return driver.InvalidHandle
		}
		return f(fn)
	})
}

func (d *Driver) FuncGetAttribute(v *int32, a driver.FuncAttr, id driver.Function) Result {
	return d.onFunction("cuFuncGetAttribute", id, func(f *function) Result {
		at := f.mod.ctx.dev.spec.Attributes
		version := 10*at[driver.DevCapabilityMajor] + at[driver.DevCapabilityMinor]
		values := map[driver.FuncAttr]int{
			driver.FuncMaxThreadsPerBlock: f.kernel.MaxThreads, driver.FuncSharedBytes: f.kernel.SharedBytes, driver.FuncConstBytes: 0,
			driver.FuncLocalBytes: f.kernel.LocalBytes, driver.FuncNumRegs: f.kernel.Regs, driver.FuncPTXVersion: version,
			driver.FuncBinaryVersion: version, driver.FuncMaxDynamicSharedBytes: f.dynamic,
		}
		n, ok := values[a]
		if !ok {
			return driver.InvalidValue
		}
		*v = int32(n)
		return driver.Success
	})
}

func (d *Driver) FuncSetAttribute(id driver.Function, a driver.FuncAttr, v int32) Result {
	return d.onFunction("cuFuncSetAttribute", id, func(f *function) Result {
		switch at := f.mod.ctx.dev.spec.Attributes; {
		case a == driver.FuncMaxDynamicSharedBytes:
			if v < 0 || f.kernel.SharedBytes+int(v) > at[driver.DevSharedPerBlockOptin] {
				return driver.InvalidValue
			}
			f.dynamic = int(v)
		case a == driver.FuncNonPortableClusterSize && at[driver.DevCluster] == 0:
			return driver.NotSupported
		case a == driver.FuncNonPortableClusterSize:
			f.large = v != 0
		default:
			return driver.InvalidValue
		}
		return driver.Success
	})
}

func (d *Driver) FuncGetParamInfo(id driver.Function, index uint64, offset, size *uint64) Result {
	if !d.Has("cuFuncGetParamInfo") {
		return driver.CallRequiresNewerDriver
	}
	return d.onFunction("cuFuncGetParamInfo", id, func(f *function) Result {
		if index >= uint64(len(f.kernel.Params)) {
			return driver.InvalidValue
		}
		*offset = 0
		for i := range index {
			*offset += uint64(f.kernel.Params[i]+7) / 8 * 8
		}
		*size = uint64(f.kernel.Params[index])
		return driver.Success
	})
}

func (d *Driver) FuncLoad(id driver.Function) Result {
	if !d.Has("cuFuncLoad") {
		return driver.CallRequiresNewerDriver
	}
	return d.onFunction("cuFuncLoad", id, func(*function) Result { return driver.Success })
}
