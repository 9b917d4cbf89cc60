package cudatest

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Call is one launch of a kernel, as its function sees it. Its methods are for that function only.
type Call struct {
	Name                 string
	Grid, Block, Cluster driver.Dim3 // Cluster 0: none
	SharedBytes          int
	Cooperative, PDL     bool
	Args                 [][]byte // the bytes of each argument at the time of the launch

	d   *Driver
	ctx *context
	fn  *function
}

// Read returns a copy of device memory. A bad address ends the kernel and loses the context.
func (c *Call) Read(p driver.Ptr, bytes int) []byte {
	b := make([]byte, bytes)
	if f := c.d.read(c.ctx, p, b); f != nil {
		panic(f)
	}
	return b
}

// Write writes device memory.
func (c *Call) Write(p driver.Ptr, b []byte) {
	if f := c.d.write(c.ctx, p, b); f != nil {
		panic(f)
	}
}

// Fail ends the kernel as a failed assertion (driver.Assert), a misaligned address or another fatal result would.
func (c *Call) Fail(r Result, why string) { panic(&fault{r, why}) }

// Takes adds to the time the kernel takes by the driver's clock.
func (c *Call) Takes(t time.Duration) { c.d.clock += t.Nanoseconds() }

// Arg returns argument i as a T, whose size must be that of the parameter.
func Arg[T any](c *Call, i int) T {
	var v T
	b := unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))
	if len(b) != len(c.Args[i]) {
		panic(fmt.Sprintf("cudatest: argument %d of %s has %d bytes, %T has %d", i, c.Name, len(c.Args[i]), v, len(b)))
	}
	copy(b, c.Args[i])
	return v
}

// Load returns n values at a device address, which must be aligned for them.
func Load[T any](c *Call, p driver.Ptr, n int) []T {
	vals := make([]T, n)
	if n == 0 {
		return vals
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&vals[0])), n*int(unsafe.Sizeof(vals[0])))
	c.aligned(p, unsafe.Alignof(vals[0]))
	copy(b, c.Read(p, len(b)))
	return vals
}

// Store writes values to a device address, which must be aligned for them.
func Store[T any](c *Call, p driver.Ptr, vals []T) {
	if len(vals) == 0 {
		return
	}
	c.aligned(p, unsafe.Alignof(vals[0]))
	c.Write(p, unsafe.Slice((*byte)(unsafe.Pointer(&vals[0])), len(vals)*int(unsafe.Sizeof(vals[0]))))
}

func (c *Call) aligned(p driver.Ptr, to uintptr) {
	if uint64(p)%uint64(to) != 0 {
		c.Fail(driver.MisalignedAddress, fmt.Sprintf("%#x isn't a multiple of %d", uint64(p), to))
	}
}

// run runs the kernel; a panic that isn't a fault is the test's own.
func (c *Call) run() (f *fault) {
	if c.fn.mod.unloaded {
		return &fault{driver.IllegalAddress, c.Name + ": its module was unloaded"}
	}
	if r := c.d.injected(anyLaunch); r != driver.Success {
		return &fault{r, c.Name + ": injected"}
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *fault:
			f = &fault{p.result, c.Name + ": " + p.why}
		default:
			panic(p)
		}
	}()
	c.fn.kernel.Run(c)
	return nil
}

func (d *Driver) LaunchKernelEx(id driver.Function, l *driver.Launch) Result {
	return d.enqueue("cuLaunchKernelEx", l.Config.Stream, func(s *stream) (operation, Result) {
		f := d.functions[id]
		if f == nil || f.mod.ctx != s.ctx {
			return nil, driver.InvalidHandle
		}
		c, r := d.prepare(f, l)
		if r != driver.Success {
			return nil, r
		}
		if len(l.Params) != len(f.kernel.Params) { // the real one would read what lies behind
			return nil, driver.InvalidValue
		}
		for i, p := range l.Params {
			c.Args = append(c.Args, append([]byte(nil), unsafe.Slice((*byte)(p), f.kernel.Params[i])...))
		}
		return func(*context) *fault {
			run := *c
			f := run.run()
			d.log = append(d.log, run)
			return f
		}, driver.Success
	})
}

// prepare reads the configuration and checks it against the device.
func (d *Driver) prepare(f *function, l *driver.Launch) (*Call, Result) {
	cfg := &l.Config
	c := &Call{Name: f.name, Grid: cfg.Grid, Block: cfg.Block, SharedBytes: int(cfg.SharedBytes), d: d, ctx: f.mod.ctx, fn: f}
	for _, a := range unsafe.Slice(cfg.Attrs, cfg.NumAttrs) {
		switch a.ID {
		case driver.AttrCluster:
			c.Cluster = driver.Dim3{X: a.Value[0], Y: a.Value[1], Z: a.Value[2]}
		case driver.AttrCooperative:
			c.Cooperative = a.Value[0] != 0
		case driver.AttrProgrammatic:
			c.PDL = a.Value[0] != 0
		default:
			return nil, driver.InvalidValue
		}
	}
	return c, c.check()
}

func size(d driver.Dim3) int { return int(d.X) * int(d.Y) * int(d.Z) }

// check refuses what the device can't do.
func (c *Call) check() Result {
	spec := &c.ctx.dev.spec
	at := spec.Attributes
	threads, blocks, cluster := size(c.Block), size(c.Grid), size(c.Cluster)
	perSM := spec.blocksPerSM(c.fn.kernel, threads, c.SharedBytes)
	hopper := at[driver.DevCapabilityMajor] >= 9
	switch {
	case blocks <= 0 || threads <= 0 || threads > c.fn.kernel.MaxThreads,
		c.Block.Z > 64, c.SharedBytes > c.fn.dynamic,
		int(c.Grid.X) > at[driver.DevMaxGridX], int(c.Grid.Y) > at[driver.DevMaxGridY], int(c.Grid.Z) > at[driver.DevMaxGridZ]:
		return driver.InvalidValue
	case perSM == 0:
		return driver.LaunchOutOfResources
	case c.PDL && !hopper, c.Cluster.X != 0 && at[driver.DevCluster] == 0:
		return driver.NotSupported
	case c.Cluster.X != 0 && (cluster == 0 || cluster > 16 || cluster > 8 && !c.fn.large),
		cluster > 0 && (c.Grid.X%c.Cluster.X != 0 || c.Grid.Y%c.Cluster.Y != 0 || c.Grid.Z%c.Cluster.Z != 0),
		cluster > 0 && spec.clusters(perSM, cluster) == 0:
		return driver.InvalidClusterSize
	case c.Cooperative && c.resident(perSM) < blocks:
		return driver.CooperativeLaunchTooLarge
	}
	return driver.Success
}

// resident is how many blocks of this launch run at once.
func (c *Call) resident(perSM int) int {
	if n := size(c.Cluster); n > 0 {
		return c.ctx.dev.spec.clusters(perSM, n) * n
	}
	return c.ctx.dev.spec.Attributes[driver.DevSMs] * perSM
}

func (d *Driver) OccupancyMaxActiveBlocksPerMultiprocessor(n *int32, id driver.Function, blockSize int32, shared uint64) Result {
	return d.onFunction("cuOccupancyMaxActiveBlocksPerMultiprocessor", id, func(f *function) Result {
		if blockSize <= 0 || int(blockSize) > f.kernel.MaxThreads {
			return driver.InvalidValue
		}
		*n = int32(f.mod.ctx.dev.spec.blocksPerSM(f.kernel, int(blockSize), int(shared)))
		return driver.Success
	})
}

func (d *Driver) OccupancyMaxActiveClusters(n *int32, id driver.Function, l *driver.Launch) Result {
	return d.onFunction("cuOccupancyMaxActiveClusters", id, func(f *function) Result {
		c, r := d.prepare(f, l)
		if r == driver.Success && c.Cluster.X == 0 {
			r = driver.InvalidValue
		}
		if r == driver.Success {
			spec := &c.ctx.dev.spec
			*n = int32(spec.clusters(spec.blocksPerSM(f.kernel, size(c.Block), c.SharedBytes), size(c.Cluster)))
		}
		return r
	})
}

func (d *Driver) OccupancyMaxPotentialClusterSize(n *int32, id driver.Function, l *driver.Launch) Result {
	return d.onFunction("cuOccupancyMaxPotentialClusterSize", id, func(f *function) Result {
		c, r := d.prepare(f, l)
		if r != driver.Success && r != driver.InvalidClusterSize {
			return r
		}
		if c.ctx.dev.spec.Attributes[driver.DevCluster] == 0 {
			return driver.NotSupported
		}
		*n = 8
		if f.large {
			*n = 16
		}
		return driver.Success
	})
}
