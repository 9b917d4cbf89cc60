package cuda

import (
	"bytes"
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Module is machine code on the device.
type Module struct{ handle }

// LoadModule loads a cubin, a fatbin, or PTX text, which the driver compiles.
func (c *Context) LoadModule(image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, fmt.Errorf("%w: an empty module", ErrInvalid)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	log := make([]byte, 4096)
	var raw driver.Module
	if r := c.api.ModuleLoadDataEx(&raw, image, log); r != driver.Success {
		text, _, _ := bytes.Cut(log, []byte{0})
		what := fmt.Sprintf("%d bytes", len(image))
		if text = bytes.TrimSpace(text); len(text) > 0 {
			what += ": " + string(text)
		}
		return nil, c.fail("cuModuleLoadDataEx", what, r)
	}
	m := &Module{}
	m.open(c, kindModule, uint64(raw))
	return m, nil
}

// Close unloads the module. Its functions and graphs that launch them must not run any more.
func (m *Module) Close() error {
	return m.close("cuModuleUnload", func(raw uint64) driver.Result { return m.ctx.api.ModuleUnload(driver.Module(raw)) })
}

// Global returns the address and size of a variable of the module.
func (m *Module) Global(name string) (Ptr, int64, error) {
	raw, err := m.get()
	if err != nil {
		return 0, 0, err
	}
	if err := m.ctx.enter(); err != nil {
		return 0, 0, err
	}
	defer m.ctx.leave()
	var p Ptr
	var n uint64
	r := m.ctx.api.ModuleGetGlobal(&p, &n, driver.Module(raw), name)
	return p, int64(n), m.ctx.fail("cuModuleGetGlobal", name, r)
}

// Function is a kernel. It lives as long as its module.
type Function struct {
	Name string
	FunctionInfo
	mod *Module
	raw driver.Function
}

// FunctionInfo is what the compiler says about a kernel.
type FunctionInfo struct {
	Regs          int // per thread
	SharedBytes   int // static, per block
	LocalBytes    int // per thread: more than 0 means spills or arrays in memory
	ConstBytes    int
	MaxThreads    int // per block
	BinaryVersion int // 90 is sm_90
	PTXVersion    int
}

// Function returns the kernel of this name, loaded.
func (m *Module) Function(name string) (*Function, error) {
	raw, err := m.get()
	if err != nil {
		return nil, err
	}
	c := m.ctx
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	f := &Function{Name: name, mod: m}
	if r := c.api.ModuleGetFunction(&f.raw, driver.Module(raw), name); r != driver.Success {
		return nil, c.fail("cuModuleGetFunction", name, r)
	}
	// The driver loads code lazily, by default at the first launch. That may wait for running kernels, which
	// never end if they wait for this one, and may fall into a capture: it has to happen here.
	if r := c.api.FuncLoad(f.raw); r != driver.Success && r != driver.CallRequiresNewerDriver {
		return nil, c.fail("cuFuncLoad", name, r)
	}
	for _, a := range []struct {
		attr driver.FuncAttr
		to   *int
	}{
		{driver.FuncNumRegs, &f.Regs}, {driver.FuncSharedBytes, &f.SharedBytes}, {driver.FuncLocalBytes, &f.LocalBytes},
		{driver.FuncConstBytes, &f.ConstBytes}, {driver.FuncMaxThreadsPerBlock, &f.MaxThreads},
		{driver.FuncBinaryVersion, &f.BinaryVersion}, {driver.FuncPTXVersion, &f.PTXVersion},
	} {
		var v int32
		if r := c.api.FuncGetAttribute(&v, a.attr, f.raw); r != driver.Success {
			return nil, c.fail("cuFuncGetAttribute", name, r)
		}
		*a.to = int(v)
	}
	return f, nil
}

// enter makes the context current, if the module is open.
func (f *Function) enter() (*Context, error) {
	if _, err := f.mod.get(); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", f.Name, err)
	}
	return f.mod.ctx, f.mod.ctx.enter()
}

// SetDynamicShared allows launches with up to this much dynamic shared memory; without it the limit is 48 KiB less
// SharedBytes.
func (f *Function) SetDynamicShared(bytes int) error {
	return f.set(driver.FuncMaxDynamicSharedBytes, bytes)
}

// AllowLargeClusters allows clusters of more than 8 blocks, where the device can (H100: 16).
func (f *Function) AllowLargeClusters() error { return f.set(driver.FuncNonPortableClusterSize, 1) }

func (f *Function) set(a driver.FuncAttr, v int) error {
	if v < 0 || int(int32(v)) != v {
		return fmt.Errorf("%w: kernel %s: attribute %d = %d", ErrInvalid, f.Name, a, v)
	}
	c, err := f.enter()
	if err != nil {
		return err
	}
	defer c.leave()
	return c.fail("cuFuncSetAttribute", fmt.Sprintf("%s: attribute %d = %d", f.Name, a, v), c.api.FuncSetAttribute(f.raw, a, int32(v)))
}

// MaxBlocksPerSM returns how many blocks of so many threads and so much dynamic shared memory an SM holds at once.
func (f *Function) MaxBlocksPerSM(threads, dynamicSharedBytes int) (int, error) {
	if threads <= 0 || int(int32(threads)) != threads || dynamicSharedBytes < 0 {
		return 0, fmt.Errorf("%w: kernel %s: %d threads, %d bytes", ErrInvalid, f.Name, threads, dynamicSharedBytes)
	}
	c, err := f.enter()
	if err != nil {
		return 0, err
	}
	defer c.leave()
	var n int32
	r := c.api.OccupancyMaxActiveBlocksPerMultiprocessor(&n, f.raw, int32(threads), uint64(dynamicSharedBytes))
	return int(n), c.fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", f.Name, r)
}
