package cudatest

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

const (
	chunkBytes = 64 << 10
	poison     = 0xFF // NaN as float, -1 as integer
	alignment  = 512
	gap        = 1 << 20 // between allocations, so that running over the end hits nothing
	granule    = 2 << 20
)

// memory is storage: chunks by number, or for page-locked memory one piece.
type memory struct {
	ctx    *context
	bytes  uint64
	chunks map[uint64][]byte
	host   []byte
	refs   int // handles and mappings
}

// each calls f with the pieces of [off, off+n), in order.
func (m *memory) each(off, n uint64, f func([]byte)) {
	if m.host != nil {
		f(m.host[off : off+n])
		return
	}
	for n > 0 {
		i, at := off/chunkBytes, off%chunkBytes
		c := m.chunks[i]
		if c == nil {
			c = bytes.Repeat([]byte{poison}, int(min(chunkBytes, m.bytes-i*chunkBytes)))
			m.chunks[i] = c
		}
		piece := c[at:min(at+n, uint64(len(c)))]
		f(piece)
		off += uint64(len(piece))
		n -= uint64(len(piece))
	}
}

type segmentKind int

const (
	buffer segmentKind = iota
	hostBuffer
	mapped
	global
)

func (k segmentKind) String() string {
	return [...]string{"buffer", "host buffer", "mapped memory", "module variable"}[k]
}

// segment is a run of addresses with memory behind it.
type segment struct {
	base     driver.Ptr
	bytes    uint64
	mem      *memory
	ctx      *context
	kind     segmentKind
	readable bool // after MemSetAccess, for mapped memory
}

type reservation struct {
	bytes uint64
	ctx   *context
}

// address returns n bytes of addresses that were never given out.
func (d *Driver) address(n, align uint64) driver.Ptr {
	align = max(align, alignment)
	p := (uint64(d.next) + gap + align - 1) / align * align
	d.next = driver.Ptr(p + n)
	return driver.Ptr(p)
}

// find returns the index of the segment that holds p, or of the one behind it.
func (d *Driver) find(p driver.Ptr) (int, bool) {
	i := sort.Search(len(d.segments), func(i int) bool { return d.segments[i].base+driver.Ptr(d.segments[i].bytes) > p })
	return i, i < len(d.segments) && d.segments[i].base <= p
}

func (d *Driver) insert(s segment) {
	i, _ := d.find(s.base)
	d.segments = slices.Insert(d.segments, i, s)
}

// unmap takes a segment away, and its memory if nothing else has it.
func (d *Driver) unmap(s segment) {
	i, ok := d.find(s.base)
	if !ok {
		return
	}
	d.segments = slices.Delete(d.segments, i, i+1)
	d.freed = append(d.freed, s)
	d.drop(s.mem)
}

func (d *Driver) drop(m *memory) {
	if m.refs--; m.refs == 0 {
		if m.host == nil {
			m.ctx.dev.used -= int64(m.bytes)
		}
		m.chunks, m.host = nil, nil
	}
}

// newMemory takes n bytes of the device.
func (d *Driver) newMemory(c *context, n uint64) (*memory, Result) {
	if n == 0 {
		return nil, driver.InvalidValue
	}
	if r := d.injected(anyAlloc); r != driver.Success {
		return nil, r
	}
	if n > uint64(c.dev.spec.MemoryBytes-c.dev.used) {
		return nil, driver.OutOfMemory
	}
	c.dev.used += int64(n)
	return &memory{ctx: c, bytes: n, chunks: map[uint64][]byte{}, refs: 1}, driver.Success
}

// fault is an access that a GPU would answer by losing the context.
type fault struct {
	result Result
	why    string
}

// access calls f with the pieces of device memory [p, p+n), in order, or says why it can't.
func (d *Driver) access(c *context, p driver.Ptr, n uint64, f func([]byte)) *fault {
	for n > 0 {
		i, ok := d.find(p)
		if !ok {
			return &fault{driver.IllegalAddress, fmt.Sprintf("%d bytes at %#x: %s", n, uint64(p), d.whatWas(p))}
		}
		s := d.segments[i]
		switch {
		case s.kind != hostBuffer && s.ctx != c:
			return &fault{driver.IllegalAddress, fmt.Sprintf("%d bytes at %#x: memory of device %d", n, uint64(p), s.ctx.ord)}
		case s.kind == mapped && !s.readable:
			return &fault{driver.IllegalAddress, fmt.Sprintf("%d bytes at %#x: mapped without access", n, uint64(p))}
		}
		off := uint64(p - s.base)
		part := min(n, s.bytes-off)
		s.mem.each(off, part, f) // libcuda maps from the start of the memory only
		p += driver.Ptr(part)
		n -= part
	}
	return nil
}

// whatWas describes an address with nothing behind it.
func (d *Driver) whatWas(p driver.Ptr) string {
	for _, s := range slices.Backward(d.freed) {
		if p >= s.base && p < s.base+driver.Ptr(s.bytes) {
			return fmt.Sprintf("%v of %d bytes, freed", s.kind, s.bytes)
		}
	}
	for base, r := range d.ranges {
		if p >= base && p < base+driver.Ptr(r.bytes) {
			return fmt.Sprintf("at %d of a reserved range of %d bytes, not mapped", p-base, r.bytes)
		}
	}
	for _, s := range d.segments {
		if end := s.base + driver.Ptr(s.bytes); p >= end && p-end < gap {
			return fmt.Sprintf("%d bytes behind the end of a %v of %d", p-end, s.kind, s.bytes)
		}
	}
	return "no memory"
}

func (d *Driver) MemAlloc(p *driver.Ptr, n uint64) Result {
	return d.outside("cuMemAlloc", func(c *context) Result {
		m, r := d.newMemory(c, n)
		if r != driver.Success {
			return r
		}
		*p = d.address(n, alignment)
		d.insert(segment{base: *p, bytes: n, mem: m, ctx: c, kind: buffer, readable: true})
		return driver.Success
	})
}

// MemFree waits for the device first, as libcuda does.
func (d *Driver) MemFree(p driver.Ptr) Result {
	return d.outside("cuMemFree", func(c *context) Result {
		i, ok := d.find(p)
		if !ok || d.segments[i].base != p || d.segments[i].kind != buffer {
			return driver.InvalidValue
		}
		for _, s := range d.streams {
			if s.ctx == c {
				d.finish(s)
			}
		}
		if c.lost != driver.Success {
			return c.lost
		}
		i, _ = d.find(p)
		d.unmap(d.segments[i])
		return driver.Success
	})
}

func (d *Driver) MemGetInfo(free, total *uint64) Result {
	return d.on("cuMemGetInfo", func(c *context) Result {
		*free, *total = uint64(c.dev.spec.MemoryBytes-c.dev.used), uint64(c.dev.spec.MemoryBytes)
		return driver.Success
	})
}

// MemHostAlloc gives memory whose address is the same for the host and the device, as unified addressing has it.
func (d *Driver) MemHostAlloc(p *unsafe.Pointer, n uint64, flags uint32) Result {
	return d.outside("cuMemHostAlloc", func(c *context) Result {
		if n == 0 || n > 1<<40 {
			return driver.InvalidValue
		}
		if r := d.injected(anyAlloc); r != driver.Success {
			return r
		}
		words := make([]uint64, (n+7)/8+1) // aligned, and never of a size that Go places beside another value
		host := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
		for i := range host {
			host[i] = poison
		}
		*p = unsafe.Pointer(&host[0])
		m := &memory{ctx: c, bytes: n, host: host, refs: 1}
		d.insert(segment{base: hostPtr(*p), bytes: n, mem: m, ctx: c, kind: hostBuffer, readable: flags&driver.HostAllocDeviceMap != 0})
		return driver.Success
	})
}

func hostPtr(p unsafe.Pointer) driver.Ptr { return driver.Ptr(uintptr(p)) }

func (d *Driver) MemFreeHost(p unsafe.Pointer) Result {
	return d.outside("cuMemFreeHost", func(*context) Result {
		i, ok := d.find(hostPtr(p))
		if !ok || d.segments[i].base != hostPtr(p) || d.segments[i].kind != hostBuffer {
			return driver.InvalidValue
		}
		d.unmap(d.segments[i])
		return driver.Success
	})
}

func (d *Driver) MemHostGetDevicePointer(p *driver.Ptr, host unsafe.Pointer) Result {
	return d.on("cuMemHostGetDevicePointer", func(*context) Result {
		i, ok := d.find(hostPtr(host))
		if !ok || d.segments[i].kind != hostBuffer || !d.segments[i].readable {
			return driver.InvalidValue
		}
		*p = hostPtr(host)
		return driver.Success
	})
}
