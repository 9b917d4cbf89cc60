package cuda

import (
	"fmt"
	"slices"
	"sync"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Granule returns the unit of sizes, offsets and alignment in Reserve, AllocPhysical and Map: 2 MiB on every device
// so far.
func (c *Context) Granule() (int64, error) {
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.leave()
	var n uint64
	prop := c.pinned()
	r := c.api.MemGetAllocationGranularity(&n, &prop, driver.GranularityMinimum)
	return int64(n), c.fail("cuMemGetAllocationGranularity", "", r)
}

func (c *Context) pinned() driver.AllocationProp {
	return driver.AllocationProp{Type: driver.AllocationPinned, Location: driver.Location{Type: driver.LocationDevice, ID: int32(c.dev.raw)}}
}

// Physical is device memory without an address.
type Physical struct {
	handle
	bytes int64
}

// AllocPhysical allocates device memory to be mapped into Ranges; bytes is a multiple of Granule.
func (c *Context) AllocPhysical(bytes int64) (*Physical, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%w: AllocPhysical of %d bytes", ErrInvalid, bytes)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	prop := c.pinned()
	var raw driver.Physical
	if r := c.api.MemCreate(&raw, uint64(bytes), &prop); r != driver.Success {
		return nil, c.failMemory("cuMemCreate", bytes, r)
	}
	p := &Physical{bytes: bytes}
	p.open(c, kindPhysical, uint64(raw))
	return p, nil
}

// Bytes returns the size.
func (p *Physical) Bytes() int64 { return p.bytes }

// Close gives the memory back once it is mapped nowhere any more.
func (p *Physical) Close() error {
	return p.close("cuMemRelease", func(raw uint64) driver.Result { return p.ctx.api.MemRelease(driver.Physical(raw)) })
}

// Range is reserved device addresses. Touching one that nothing is mapped to loses the context. It is safe for
// concurrent use, so that one goroutine can map ahead of another's launches.
type Range struct {
	handle
	bytes int64
	mu    sync.Mutex
	maps  []mapping // by offset
}

type mapping struct{ off, bytes int64 }

// Reserve reserves addresses: no memory, only the right to map it there. Zero align means Granule.
func (c *Context) Reserve(bytes, align int64) (*Range, error) {
	if bytes <= 0 || align < 0 || align&(align-1) != 0 {
		return nil, fmt.Errorf("%w: Reserve of %d bytes aligned to %d", ErrInvalid, bytes, align)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var p Ptr
	if r := c.api.MemAddressReserve(&p, uint64(bytes), uint64(align)); r != driver.Success {
		return nil, c.fail("cuMemAddressReserve", fmt.Sprintf("%d bytes", bytes), r)
	}
	a := &Range{bytes: bytes}
	a.open(c, kindRange, uint64(p))
	return a, nil
}

// Ptr returns the first address, 0 after Close.
func (a *Range) Ptr() Ptr { return Ptr(a.raw.Load()) }

// Bytes returns the size.
func (a *Range) Bytes() int64 { return a.bytes }

// Mapped returns the number of bytes that have memory.
func (a *Range) Mapped() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var n int64
	for _, m := range a.maps {
		n += m.bytes
	}
	return n
}

// Map maps memory, one piece behind the other, from off on: all of it or, on an error, none. The same memory may be
// mapped several times.
func (a *Range) Map(off int64, pieces ...*Physical) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	base, err := a.get()
	if err != nil {
		return err
	}
	at, total, err := a.place(off, pieces)
	if err != nil || total == 0 {
		return err
	}
	c := a.ctx
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	p, next := Ptr(base)+Ptr(off), off
	var added []mapping
	defer func() {
		if err != nil {
			for _, m := range added {
				c.api.MemUnmap(Ptr(base)+Ptr(m.off), uint64(m.bytes))
			}
		}
	}()
	for _, ph := range pieces {
		if r := c.api.MemMap(Ptr(base)+Ptr(next), uint64(ph.bytes), 0, driver.Physical(ph.raw.Load())); r != driver.Success {
			return c.fail("cuMemMap", fmt.Sprintf("%d bytes at %d", ph.bytes, next), r)
		}
		added = append(added, mapping{next, ph.bytes})
		next += ph.bytes
	}
	access := driver.AccessDesc{Location: c.pinned().Location, Flags: driver.AccessReadWrite}
	if r := c.api.MemSetAccess(p, uint64(total), &access); r != driver.Success {
		return c.fail("cuMemSetAccess", fmt.Sprintf("%d bytes at %d", total, off), r)
	}
	a.maps = slices.Insert(a.maps, at, added...)
	return nil
}

// place returns where in a.maps the pieces go, and their size, if there is room for them.
func (a *Range) place(off int64, pieces []*Physical) (at int, total int64, err error) {
	for _, p := range pieces {
		if _, err := p.get(); err != nil {
			return 0, 0, err
		}
		total += p.bytes
	}
	if off < 0 || off > a.bytes || total > a.bytes-off {
		return 0, 0, fmt.Errorf("%w: map %d bytes at %d of a range of %d", ErrInvalid, total, off, a.bytes)
	}
	at, _ = slices.BinarySearchFunc(a.maps, off, func(m mapping, off int64) int { return int(min(max(m.off-off, -1), 1)) })
	if at > 0 && a.maps[at-1].off+a.maps[at-1].bytes > off || at < len(a.maps) && a.maps[at].off < off+total {
		return 0, 0, fmt.Errorf("%w: map %d bytes at %d: something is mapped there", ErrInvalid, total, off)
	}
	return at, total, nil
}

// Unmap takes away what was mapped at [off, off+n), which must be whole pieces. Kernels that use them must have
// ended.
func (a *Range) Unmap(off, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	base, err := a.get()
	if err != nil {
		return err
	}
	from := slices.IndexFunc(a.maps, func(m mapping) bool { return m.off >= off })
	to, end := from, off
	for to >= 0 && to < len(a.maps) && a.maps[to].off == end && end < off+n {
		end += a.maps[to].bytes
		to++
	}
	if n <= 0 || from < 0 || end != off+n {
		return fmt.Errorf("%w: unmap %d bytes at %d: not the whole of what is mapped there", ErrInvalid, n, off)
	}
	c := a.ctx
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	for i := from; i < to; i++ {
		m := a.maps[i]
		if r := c.api.MemUnmap(Ptr(base)+Ptr(m.off), uint64(m.bytes)); r != driver.Success {
			a.maps = slices.Delete(a.maps, from, i)
			return c.fail("cuMemUnmap", fmt.Sprintf("%d bytes at %d", m.bytes, m.off), r)
		}
	}
	a.maps = slices.Delete(a.maps, from, to)
	return nil
}

// Close unmaps everything and gives the addresses back.
func (a *Range) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.close("cuMemAddressFree", func(raw uint64) driver.Result {
		for _, m := range a.maps {
			if r := a.ctx.api.MemUnmap(Ptr(raw)+Ptr(m.off), uint64(m.bytes)); r != driver.Success {
				return r
			}
		}
		a.maps = nil
		return a.ctx.api.MemAddressFree(Ptr(raw), uint64(a.bytes))
	})
}
