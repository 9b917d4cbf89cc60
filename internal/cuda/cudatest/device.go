package cudatest

import (
	"fmt"
	"slices"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

var _ driver.API = (*Driver)(nil)

func (d *Driver) Has(symbol string) bool { return !slices.Contains(d.options.Missing, symbol) }

func (d *Driver) Init(uint32) Result {
	return d.call("cuInit", func() Result {
		if len(d.devices) == 0 && d.options.Init == driver.Success {
			return driver.NoDevice
		}
		d.ready = d.options.Init == driver.Success
		return d.options.Init
	})
}

func (d *Driver) DriverGetVersion(v *int32) Result {
	return d.call("cuDriverGetVersion", func() Result { *v = int32(d.options.Version); return driver.Success })
}

func (d *Driver) DeviceGetCount(n *int32) Result {
	return d.call("cuDeviceGetCount", func() Result { *n = int32(len(d.devices)); return driver.Success })
}

// onDevice is call for functions that take a device.
func (d *Driver) onDevice(name string, dev driver.Device, f func(*device) Result) Result {
	return d.call(name, func() Result {
		if dev < 0 || int(dev) >= len(d.devices) {
			return driver.InvalidDevice
		}
		return f(d.devices[dev])
	})
}

func (d *Driver) DeviceGet(dev *driver.Device, ordinal int32) Result {
	return d.onDevice("cuDeviceGet", driver.Device(ordinal), func(*device) Result {
		*dev = driver.Device(ordinal)
		return driver.Success
	})
}

func (d *Driver) DeviceGetName(name []byte, dev driver.Device) Result {
	return d.onDevice("cuDeviceGetName", dev, func(v *device) Result {
		if len(name) == 0 {
			return driver.InvalidValue
		}
		n := copy(name[:len(name)-1], v.spec.Name)
		name[n] = 0
		return driver.Success
	})
}

func (d *Driver) DeviceTotalMem(n *uint64, dev driver.Device) Result {
	return d.onDevice("cuDeviceTotalMem", dev, func(v *device) Result {
		*n = uint64(v.spec.MemoryBytes)
		return driver.Success
	})
}

func (d *Driver) DeviceGetAttribute(val *int32, a driver.DeviceAttr, dev driver.Device) Result {
	return d.onDevice("cuDeviceGetAttribute", dev, func(v *device) Result {
		*val = int32(v.spec.Attributes[a])
		return driver.Success
	})
}

func (d *Driver) DeviceGetUuid(u *[16]byte, dev driver.Device) Result {
	return d.onDevice("cuDeviceGetUuid", dev, func(*device) Result {
		*u = [16]byte{15: byte(dev) + 1}
		return driver.Success
	})
}

func (d *Driver) DevicePrimaryCtxRetain(c *driver.Context, dev driver.Device) Result {
	return d.onDevice("cuDevicePrimaryCtxRetain", dev, func(v *device) Result {
		if v.ctx == nil {
			v.ctx = &context{dev: v, id: driver.Context(d.handle()), ord: int(dev)}
		}
		if v.ctx.lost != driver.Success {
			return v.ctx.lost
		}
		v.ctx.refs++
		*c = v.ctx.id
		return driver.Success
	})
}

// DevicePrimaryCtxRelease destroys the context with the last reference, and all it owns, which is noted as left open.
func (d *Driver) DevicePrimaryCtxRelease(dev driver.Device) Result {
	return d.onDevice("cuDevicePrimaryCtxRelease", dev, func(v *device) Result {
		c := v.ctx
		if c == nil || c.refs == 0 {
			return driver.InvalidContext
		}
		if c.refs--; c.refs > 0 {
			return driver.Success
		}
		if c.lost == driver.Success {
			for _, s := range d.streams { // what is queued still runs
				if s.ctx == c {
					d.finish(s)
				}
			}
			d.leaks = append(d.leaks, d.owned(c)...)
			v.ctx = nil
		}
		d.destroy(c)
		return driver.Success
	})
}

func (d *Driver) CtxSetCurrent(id driver.Context) Result {
	return d.call("cuCtxSetCurrent", func() Result {
		if id == 0 {
			delete(d.current, thread())
			return driver.Success
		}
		for _, v := range d.devices {
			if v.ctx != nil && v.ctx.id == id && v.ctx.refs > 0 {
				d.current[thread()] = v.ctx
				return driver.Success
			}
		}
		return driver.InvalidContext
	})
}

func (d *Driver) CtxGetStreamPriorityRange(least, greatest *int32) Result {
	return d.on("cuCtxGetStreamPriorityRange", func(*context) Result {
		*least, *greatest = 0, -5
		return driver.Success
	})
}

// Leaks lists what is open, and what was when its context went.
func (d *Driver) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.leaks)
	for _, v := range d.devices {
		if v.ctx != nil && v.ctx.refs > 0 {
			all = append(all, fmt.Sprintf("context of device %d, retained %d times", v.ctx.ord, v.ctx.refs))
			all = append(all, d.owned(v.ctx)...)
		}
	}
	return all
}

// owned lists what belongs to c.
func (d *Driver) owned(c *context) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, s := range d.segments {
		if s.ctx == c && s.kind != global {
			add("%v of %d bytes at %#x", s.kind, s.bytes, uint64(s.base))
		}
	}
	for p, r := range d.ranges {
		if r.ctx == c {
			add("reserved range of %d bytes at %#x", r.bytes, uint64(p))
		}
	}
	for _, m := range d.physicals {
		if m.ctx == c {
			add("physical memory of %d bytes", m.bytes)
		}
	}
	count := func(what string, n int) {
		if n > 0 {
			add("%d × %s", n, what)
		}
	}
	count("stream", owns(d.streams, c))
	count("event", owns(d.events, c))
	count("module", owns(d.modules, c))
	count("graph", owns(d.graphs, c))
	count("graph exec", owns(d.execs, c))
	slices.Sort(all)
	return all
}

type ownable interface{ owner() *context }

func owns[K comparable, V ownable](m map[K]V, c *context) (n int) {
	for _, v := range m {
		if v.owner() == c {
			n++
		}
	}
	return n
}

func dropOwned[K comparable, V ownable](m map[K]V, c *context) {
	for k, v := range m {
		if v.owner() == c {
			delete(m, k)
		}
	}
}

// destroy drops everything that belongs to c.
func (d *Driver) destroy(c *context) {
	for _, s := range slices.Clone(d.segments) {
		if s.ctx == c {
			d.unmap(s)
		}
	}
	for p, r := range d.ranges {
		if r.ctx == c {
			delete(d.ranges, p)
		}
	}
	for h, m := range d.physicals {
		if m.ctx == c {
			d.drop(m)
			delete(d.physicals, h)
		}
	}
	dropOwned(d.streams, c)
	dropOwned(d.events, c)
	dropOwned(d.modules, c)
	dropOwned(d.functions, c)
	dropOwned(d.graphs, c)
	dropOwned(d.execs, c)
}
