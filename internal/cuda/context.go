package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Context is this process's state on a device. It is safe for concurrent use.
type Context struct {
	dev    *Device
	api    driver.API
	raw    driver.Context
	closed atomic.Bool
	lost   atomic.Pointer[lostError]
	live   [numKinds]atomic.Int64 // open handles
	ints   sync.Pool              // of *int32, for the driver to write to where a call may not allocate
}

// Open retains the device's primary context; Close gives it back.
func (dev *Device) Open() (*Context, error) {
	c := &Context{dev: dev, api: dev.driver.api, ints: sync.Pool{New: func() any { return new(int32) }}}
	if r := c.api.DevicePrimaryCtxRetain(&c.raw, dev.raw); r != driver.Success {
		return nil, &Error{Call: "cuDevicePrimaryCtxRetain", What: fmt.Sprintf("device %d", dev.Index), Result: r}
	}
	return c, nil
}

// Device returns the device the context is on.
func (c *Context) Device() *Device { return c.dev }

// Lost returns why the context can't be used any more, or nil.
func (c *Context) Lost() error {
	if l := c.lost.Load(); l != nil {
		return l
	}
	return nil
}

// Close gives the context back. While something it owns is open it does nothing but name it, unless the context is
// lost, when all of it is gone anyway.
func (c *Context) Close() error {
	if c.closed.Load() {
		return nil
	}
	if c.lost.Load() == nil {
		if open := c.open(); open != "" {
			return fmt.Errorf("cuda: context closed while these are open: %s: close them first", open)
		}
	}
	if c.closed.Swap(true) {
		return nil
	}
	r := c.api.DevicePrimaryCtxRelease(c.dev.raw)
	if r != driver.Success && c.lost.Load() == nil {
		return &Error{Call: "cuDevicePrimaryCtxRelease", Result: r}
	}
	return nil
}

// open lists what the context owns: "2 buffers, 1 stream".
func (c *Context) open() string {
	var list []string
	for k := range c.live {
		switch n := c.live[k].Load(); {
		case n == 1:
			list = append(list, "1 "+kindNames[k])
		case n > 1:
			list = append(list, fmt.Sprintf("%d %ss", n, kindNames[k]))
		}
	}
	return strings.Join(list, ", ")
}

// enter makes the context current on this thread and keeps the goroutine there until leave: libcuda's current
// context belongs to the thread, and the scheduler could move the goroutine between the two calls.
func (c *Context) enter() error {
	if c.closed.Load() {
		return fmt.Errorf("%w: context of device %d", ErrClosed, c.dev.Index)
	}
	if l := c.lost.Load(); l != nil {
		return l
	}
	runtime.LockOSThread()
	if r := c.api.CtxSetCurrent(c.raw); r != driver.Success {
		runtime.UnlockOSThread()
		return c.fail("cuCtxSetCurrent", "", r)
	}
	return nil
}

func (c *Context) leave() { runtime.UnlockOSThread() }

// fail makes the error of a call, and remembers it if the context went with it. Success is nil.
func (c *Context) fail(call, what string, r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	e := &Error{Call: call, What: what, Result: r}
	if lost(r) {
		c.lost.CompareAndSwap(nil, &lostError{e})
	}
	return e
}

// MemInfo returns the free and total memory of the device, all processes considered.
func (c *Context) MemInfo() (free, total int64, err error) {
	if err := c.enter(); err != nil {
		return 0, 0, err
	}
	defer c.leave()
	var f, t uint64
	if r := c.api.MemGetInfo(&f, &t); r != driver.Success {
		return 0, 0, c.fail("cuMemGetInfo", "", r)
	}
	return int64(f), int64(t), nil
}

// A kind is what a handle is of.
type kind int

const (
	kindStream kind = iota
	kindEvent
	kindModule
	kindGraph
	kindExec
	kindBuffer
	kindHostBuffer
	kindRange
	kindPhysical
	numKinds
)

var kindNames = [numKinds]string{"stream", "event", "module", "graph", "graph exec", "buffer", "host buffer", "address range", "physical allocation"}

// handle is the part that all handles share: a number of the driver's until it is closed.
type handle struct {
	ctx  *Context
	kind kind
	raw  atomic.Uint64 // 0: closed
}

func (h *handle) open(c *Context, k kind, raw uint64) {
	h.ctx, h.kind = c, k
	h.raw.Store(raw)
	c.live[k].Add(1)
}

// get returns the driver's number.
func (h *handle) get() (uint64, error) {
	if v := h.raw.Load(); v != 0 {
		return v, nil
	}
	return 0, fmt.Errorf("%w: %s", ErrClosed, kindNames[h.kind])
}

// close calls free once, with the context current. A lost context has freed everything already.
func (h *handle) close(call string, free func(raw uint64) driver.Result) error {
	raw := h.raw.Swap(0)
	if raw == 0 {
		return nil
	}
	h.ctx.live[h.kind].Add(-1)
	if h.ctx.lost.Load() != nil {
		return nil
	}
	if err := h.ctx.enter(); err != nil {
		return err
	}
	defer h.ctx.leave()
	return h.ctx.fail(call, "", free(raw))
}
