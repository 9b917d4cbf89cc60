package cuda

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Param is where an argument of a kernel lies in Go memory.
type Param struct {
	ptr  unsafe.Pointer
	size uintptr
}

// Arg names *p as an argument of a kernel: its bytes are passed as they are when the launch runs. T must have the
// size of the kernel's parameter and hold no Go pointers (a device address is a Ptr).
func Arg[T any](p *T) Param {
	mustPlain[T]()
	return Param{unsafe.Pointer(p), unsafe.Sizeof(*p)}
}

// mustPlain panics if a T can't be handed to a device: it holds pointers, or its size depends on the machine.
func mustPlain[T any]() {
	if t := reflect.TypeFor[T](); !plain(t) {
		panic(fmt.Sprintf("cuda: %v can't be handed to a device: it needs fields of fixed width without pointers", t))
	}
}

func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Int8, reflect.Uint8, reflect.Int16, reflect.Uint16, reflect.Int32, reflect.Uint32,
		reflect.Int64, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// Launch is a prepared execution of a kernel: set the fields, change the arguments in place, Run. It keeps one
// block of arguments for the driver and allocates nothing when it runs. Not safe for concurrent use.
type Launch struct {
	Grid, Block Dim3 // zero Y and Z count as 1
	Cluster     Dim3 // in blocks, divides Grid; zero: none
	SharedBytes int  // dynamic, per block
	Cooperative bool // all blocks resident at once, so that they may wait for each other

	// PDL (programmatic dependent launch) lets the kernel begin before the one in front of it in the stream has
	// ended: it has to wait (griddepcontrol.wait) before it reads what that one writes.
	PDL bool

	fn    *Function
	block *driver.Launch
}

// NewLaunch prepares a launch with these arguments. Their number and sizes are compared with the kernel's, where
// the driver can tell (CUDA 12.4).
func (f *Function) NewLaunch(params ...Param) (*Launch, error) {
	if err := f.checkParams(params); err != nil {
		return nil, err
	}
	ptrs := make([]unsafe.Pointer, len(params))
	for i, p := range params {
		ptrs[i] = p.ptr
	}
	return &Launch{fn: f, block: driver.NewLaunch(ptrs)}, nil
}

func (f *Function) checkParams(params []Param) error {
	c, err := f.enter()
	if err != nil {
		return err
	}
	defer c.leave()
	for i := range len(params) + 1 {
		var off, size uint64
		switch r := c.api.FuncGetParamInfo(f.raw, uint64(i), &off, &size); {
		case r == driver.CallRequiresNewerDriver:
			return nil
		case r == driver.InvalidValue && i == len(params): // as it should be: there is no such parameter
			return nil
		case r == driver.InvalidValue:
			return fmt.Errorf("%w: kernel %s takes %d arguments, not %d", ErrInvalid, f.Name, i, len(params))
		case r != driver.Success:
			return c.fail("cuFuncGetParamInfo", f.Name, r)
		case i == len(params):
			return fmt.Errorf("%w: kernel %s takes more than %d arguments", ErrInvalid, f.Name, i)
		case uint64(params[i].size) != size:
			return fmt.Errorf("%w: kernel %s: argument %d has %d bytes, the kernel takes %d", ErrInvalid, f.Name, i, params[i].size, size)
		}
	}
	return nil
}

// Function returns the kernel.
func (l *Launch) Function() *Function { return l.fn }

// Run puts the launch into a stream.
func (l *Launch) Run(s *Stream) error {
	raw, err := s.get()
	if err != nil {
		return err
	}
	if s.ctx != l.fn.mod.ctx {
		return fmt.Errorf("%w: kernel %s: stream of another context", ErrInvalid, l.fn.Name)
	}
	if err := l.pack(driver.Stream(raw)); err != nil {
		return err
	}
	c, err := l.fn.enter()
	if err != nil {
		return err
	}
	r := c.api.LaunchKernelEx(l.fn.raw, l.block)
	c.leave()
	if r != driver.Success {
		return c.fail("cuLaunchKernelEx", l.describe(), r)
	}
	return nil
}

// pack fills the driver's block.
func (l *Launch) pack(s driver.Stream) error {
	cfg := &l.block.Config
	if l.Grid.X == 0 || l.Block.X == 0 || l.SharedBytes < 0 {
		return fmt.Errorf("%w: %s", ErrInvalid, l.describe())
	}
	cfg.Grid, cfg.Block, cfg.SharedBytes, cfg.Stream = ones(l.Grid), ones(l.Block), uint32(l.SharedBytes), s
	n := 0
	if l.Cluster.X != 0 {
		cl := ones(l.Cluster)
		if cfg.Grid.X%cl.X != 0 || cfg.Grid.Y%cl.Y != 0 || cfg.Grid.Z%cl.Z != 0 {
			return fmt.Errorf("%w: the cluster doesn't divide the grid: %s", ErrInvalid, l.describe())
		}
		l.attr(&n, driver.AttrCluster, cl.X, cl.Y, cl.Z)
	}
	if l.Cooperative {
		l.attr(&n, driver.AttrCooperative, 1, 0, 0)
	}
	if l.PDL {
		l.attr(&n, driver.AttrProgrammatic, 1, 0, 0)
	}
	cfg.NumAttrs = uint32(n)
	return nil
}

func (l *Launch) attr(n *int, id driver.LaunchAttr, x, y, z uint32) {
	a := &l.block.Attrs[*n]
	a.ID = id
	a.Value[0], a.Value[1], a.Value[2] = x, y, z
	*n++
}

func ones(d Dim3) Dim3 { return Dim3{X: d.X, Y: max(d.Y, 1), Z: max(d.Z, 1)} }

func (l *Launch) describe() string {
	g, b := ones(l.Grid), ones(l.Block)
	s := fmt.Sprintf("%s: grid %d×%d×%d, block %d×%d×%d, %d bytes shared", l.fn.Name, g.X, g.Y, g.Z, b.X, b.Y, b.Z, l.SharedBytes)
	if l.Cluster.X != 0 {
		c := ones(l.Cluster)
		s += fmt.Sprintf(", cluster %d×%d×%d", c.X, c.Y, c.Z)
	}
	if l.Cooperative {
		s += ", cooperative"
	}
	if l.PDL {
		s += ", dependent"
	}
	return s
}

// MaxClusters returns how many clusters of this launch the device holds at once.
func (l *Launch) MaxClusters() (int, error) {
	return l.ask("cuOccupancyMaxActiveClusters", driver.API.OccupancyMaxActiveClusters)
}

// MaxClusterSize returns the most blocks that a cluster of this launch may have.
func (l *Launch) MaxClusterSize() (int, error) {
	return l.ask("cuOccupancyMaxPotentialClusterSize", driver.API.OccupancyMaxPotentialClusterSize)
}

func (l *Launch) ask(call string, f func(driver.API, *int32, driver.Function, *driver.Launch) driver.Result) (int, error) {
	if err := l.pack(0); err != nil {
		return 0, err
	}
	c, err := l.fn.enter()
	if err != nil {
		return 0, err
	}
	defer c.leave()
	var n int32
	r := f(c.api, &n, l.fn.raw, l.block)
	if r != driver.Success {
		return 0, c.fail(call, l.describe(), r)
	}
	return int(n), nil
}
