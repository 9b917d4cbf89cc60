package cudatest

import "github.com/flashdecode/flashdecode/internal/cuda/driver"

func (d *Driver) MemGetAllocationGranularity(n *uint64, prop *driver.AllocationProp, _ int32) Result {
	return d.on("cuMemGetAllocationGranularity", func(c *context) Result {
		if !c.offers(prop) {
			return driver.InvalidValue
		}
		*n = granule
		return driver.Success
	})
}

func (c *context) offers(p *driver.AllocationProp) bool {
	return p.Type == driver.AllocationPinned && p.Location.Type == driver.LocationDevice && int(p.Location.ID) == c.ord &&
		c.dev.spec.Attributes[driver.DevVirtualMemory] != 0
}

func (d *Driver) MemAddressReserve(p *driver.Ptr, n, align uint64) Result {
	return d.on("cuMemAddressReserve", func(c *context) Result {
		if n == 0 || n%granule != 0 || align&(align-1) != 0 {
			return driver.InvalidValue
		}
		if n > 1<<46 {
			return driver.OutOfMemory
		}
		*p = d.address(n, max(align, granule))
		d.ranges[*p] = reservation{n, c}
		return driver.Success
	})
}

// MemAddressFree wants the range as it was reserved, with nothing mapped.
func (d *Driver) MemAddressFree(p driver.Ptr, n uint64) Result {
	return d.on("cuMemAddressFree", func(*context) Result {
		i, inside := d.find(p)
		if r, ok := d.ranges[p]; !ok || r.bytes != n || inside || i < len(d.segments) && d.segments[i].base < p+driver.Ptr(n) {
			return driver.InvalidValue
		}
		delete(d.ranges, p)
		return driver.Success
	})
}

func (d *Driver) MemCreate(h *driver.Physical, n uint64, prop *driver.AllocationProp) Result {
	return d.on("cuMemCreate", func(c *context) Result {
		if n%granule != 0 || !c.offers(prop) {
			return driver.InvalidValue
		}
		m, r := d.newMemory(c, n)
		if r != driver.Success {
			return r
		}
		*h = driver.Physical(d.handle())
		d.physicals[*h] = m
		return driver.Success
	})
}

// MemRelease gives up the handle; mappings keep the memory.
func (d *Driver) MemRelease(h driver.Physical) Result {
	return d.on("cuMemRelease", func(*context) Result {
		m := d.physicals[h]
		if m == nil {
			return driver.InvalidValue
		}
		delete(d.physicals, h)
		d.drop(m)
		return driver.Success
	})
}

// MemMap maps without access: MemSetAccess gives it.
func (d *Driver) MemMap(p driver.Ptr, n, offset uint64, h driver.Physical) Result {
	return d.on("cuMemMap", func(c *context) Result {
		m := d.physicals[h]
		if m == nil || offset != 0 || n == 0 || n%granule != 0 || n > m.bytes || uint64(p)%granule != 0 || !d.reserved(p, n) {
			return driver.InvalidValue
		}
		i, inside := d.find(p)
		if inside || i < len(d.segments) && d.segments[i].base < p+driver.Ptr(n) {
			return driver.InvalidValue
		}
		m.refs++
		d.insert(segment{base: p, bytes: n, mem: m, ctx: c, kind: mapped})
		return driver.Success
	})
}

func (d *Driver) reserved(p driver.Ptr, n uint64) bool {
	for base, r := range d.ranges {
		if p >= base && uint64(p-base)+n <= r.bytes {
			return true
		}
	}
	return false
}

// mappings returns the indices of the mappings that make up exactly [p, p+n).
func (d *Driver) mappings(p driver.Ptr, n uint64) (from, to int, ok bool) {
	from, ok = d.find(p)
	if !ok || d.segments[from].base != p {
		return 0, 0, false
	}
	end := p
	for to = from; to < len(d.segments) && end < p+driver.Ptr(n) && d.segments[to].base == end && d.segments[to].kind == mapped; to++ {
		end += driver.Ptr(d.segments[to].bytes)
	}
	return from, to, end == p+driver.Ptr(n)
}

// MemUnmap doesn't wait: work still in a stream finds nothing mapped.
func (d *Driver) MemUnmap(p driver.Ptr, n uint64) Result {
	return d.on("cuMemUnmap", func(*context) Result {
		from, to, ok := d.mappings(p, n)
		if !ok {
			return driver.InvalidValue
		}
		for range to - from {
			d.unmap(d.segments[from])
		}
		return driver.Success
	})
}

func (d *Driver) MemSetAccess(p driver.Ptr, n uint64, desc *driver.AccessDesc) Result {
	return d.on("cuMemSetAccess", func(c *context) Result {
		from, to, ok := d.mappings(p, n)
		if !ok || desc.Location.Type != driver.LocationDevice || int(desc.Location.ID) != c.ord {
			return driver.InvalidValue
		}
		for i := from; i < to; i++ {
			d.segments[i].readable = desc.Flags&driver.AccessReadWrite == driver.AccessReadWrite
		}
		return driver.Success
	})
}
