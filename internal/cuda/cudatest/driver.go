package cudatest

import (
	"slices"
	"sync"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Result is what a call returns.
type Result = driver.Result

// Options of a driver. The zero value is a current driver with one H200.
type Options struct {
	Devices []Spec         // nil: one H200
	Version driver.Version // 0: 13.0
	Missing []string       // symbols the library lacks: "cuLaunchKernelEx"
	Init    Result         // what cuInit answers: driver.NoDevice
	Eager   bool           // run work when it is put into a stream, as a debugger would like it
}

// Driver is a driver in Go. It is safe for concurrent use; kernels run one at a time.
type Driver struct {
	options Options

	mu      sync.Mutex
	ready   bool // cuInit was called
	devices []*device
	current map[int]*context // by thread
	kernels map[string]*Kernel
	globals map[string]int
	calls   map[string]int
	rules   []rule
	log     []Call
	faults  []string
	leaks   []string
	clock   int64 // ns: every operation takes a µs
	last    uint64

	segments []segment // by address
	freed    []segment
	ranges   map[driver.Ptr]reservation
	next     driver.Ptr

	streams   map[driver.Stream]*stream
	events    map[driver.Event]*event
	modules   map[driver.Module]*module
	functions map[driver.Function]*function
	graphs    map[driver.Graph]*graph
	execs     map[driver.Exec]*graph
	physicals map[driver.Physical]*memory
}

type device struct {
	spec Spec
	used int64 // bytes
	ctx  *context
}

type context struct {
	dev  *device
	id   driver.Context
	ord  int
	refs int
	lost Result
}

// rule is an injected failure: of the nth call of a function from now on.
type rule struct {
	call   string
	n      int
	result Result
}

// New returns a driver to hand to cuda.New.
func New(o Options) *Driver {
	if o.Devices == nil {
		o.Devices = []Spec{H200()}
	}
	if o.Version == 0 {
		o.Version = 13000
	}
	d := &Driver{
		options: o, next: 0x7f00_0000_0000, current: map[int]*context{}, kernels: map[string]*Kernel{},
		globals: map[string]int{}, calls: map[string]int{}, ranges: map[driver.Ptr]reservation{},
		streams: map[driver.Stream]*stream{}, events: map[driver.Event]*event{}, modules: map[driver.Module]*module{},
		functions: map[driver.Function]*function{}, graphs: map[driver.Graph]*graph{}, execs: map[driver.Exec]*graph{},
		physicals: map[driver.Physical]*memory{},
	}
	for _, s := range o.Devices {
		d.devices = append(d.devices, &device{spec: s})
	}
	return d
}

// Open returns a driver as the code under test sees it, and itself. At the end of the test nothing may be open.
func Open(t testing.TB, o Options) (*cuda.Driver, *Driver) {
	t.Helper()
	d := New(o)
	c, err := cuda.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range d.Leaks() {
			t.Errorf("left open: %s", l)
		}
	})
	return c, d
}

// Fail makes the nth call from now on of a function of libcuda ("cuMemAlloc", without _v2) answer r instead of doing
// anything. A result that loses a context loses it.
func (d *Driver) Fail(call string, n int, r Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = append(d.rules, rule{call, n, r})
}

// The names under which rules count allocations and launches.
const (
	anyAlloc  = "allocation"
	anyLaunch = "launch"
)

// FailAlloc makes the nth allocation from now on, of device, physical or host memory, run out of memory.
func (d *Driver) FailAlloc(n int) { d.Fail(anyAlloc, n, driver.OutOfMemory) }

// FailLaunch makes the nth kernel to run from now on end with r, which the next synchronisation returns.
func (d *Driver) FailLaunch(n int, r Result) { d.Fail(anyLaunch, n, r) }

// injected counts a call and returns the failure meant for it.
func (d *Driver) injected(call string) Result {
	for i := range d.rules {
		if r := &d.rules[i]; r.call == call {
			if r.n--; r.n == 0 {
				result := r.result
				d.rules = slices.Delete(d.rules, i, i+1)
				return result
			}
		}
	}
	return driver.Success
}

// Calls returns how often a function of libcuda was called.
func (d *Driver) Calls(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[call]
}

// Launches returns the kernels that have run, oldest first, with copies of their arguments.
func (d *Driver) Launches() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// Faults describes the accesses and failures that lost a context.
func (d *Driver) Faults() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults)
}

// call does what every function does first, then f.
func (d *Driver) call(name string, f func() Result) Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[name]++
	if r := d.injected(name); r != driver.Success {
		if c := d.current[thread()]; c != nil && fatal(r) {
			d.lose(c, r, name+": injected")
		}
		return r
	}
	if !d.ready && name != "cuInit" && name != "cuDriverGetVersion" {
		return driver.NotInitialized
	}
	return f()
}

// on is call for functions that want a current context, which isn't lost.
func (d *Driver) on(name string, f func(c *context) Result) Result {
	return d.call(name, func() Result {
		c := d.current[thread()]
		switch {
		case c == nil:
			return driver.InvalidContext
		case c.refs == 0:
			return driver.ContextIsDestroyed
		case c.lost != driver.Success:
			return c.lost
		}
		return f(c)
	})
}

// fatal reports whether a result takes the context with it: cuda.h says of these that only a new process helps, and
// of an uncorrectable error in memory or on a link nothing else is left.
func fatal(r Result) bool {
	switch r {
	case driver.ECCUncorrectable, driver.NVLinkUncorrectable, driver.Contained, driver.IllegalAddress, driver.LaunchTimeout,
		driver.ContextIsDestroyed, driver.Assert, driver.HardwareStackError, driver.IllegalInstruction, driver.MisalignedAddress,
		driver.InvalidAddressSpace, driver.InvalidPC, driver.LaunchFailed, driver.TensorMemoryLeak, driver.MPSClientTerminated,
		driver.ExternalDevice:
		return true
	}
	return false
}

// lose makes every later call on c answer r. What is queued never runs.
func (d *Driver) lose(c *context, r Result, why string) {
	if c.lost == driver.Success {
		c.lost = r
		d.faults = append(d.faults, why)
	}
	for _, s := range d.streams {
		if s.ctx == c {
			s.queue = nil
		}
	}
}

// handle returns a new number, which no other thing of this driver has.
func (d *Driver) handle() uint64 {
	d.last += 0x10
	return 0x5500_0000_0000 + d.last
}
