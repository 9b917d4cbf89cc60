package cudatest

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// hostBytes returns a copy's host side: page-locked memory, looked up again when the copy runs because it may have
// been freed by then, or pageable memory, which must not outlive the call.
func (d *Driver) hostBytes(p unsafe.Pointer, n uint64) (get func() ([]byte, *fault), pinned bool) {
	if i, ok := d.find(hostPtr(p)); ok && d.segments[i].kind == hostBuffer {
		return func() ([]byte, *fault) {
			i, ok := d.find(hostPtr(p))
			if !ok || d.segments[i].kind != hostBuffer || uint64(hostPtr(p)-d.segments[i].base)+n > d.segments[i].bytes {
				return nil, &fault{driver.IllegalAddress, fmt.Sprintf("a copy's host memory at %#x: %s", uintptr(p), d.whatWas(hostPtr(p)))}
			}
			off := uint64(hostPtr(p) - d.segments[i].base)
			return d.segments[i].mem.host[off : off+n], nil
		}, true
	}
	return func() ([]byte, *fault) { return unsafe.Slice((*byte)(p), n), nil }, false
}

// MemcpyHtoDAsync reads page-locked memory when the copy runs, other memory at once.
func (d *Driver) MemcpyHtoDAsync(dst driver.Ptr, src unsafe.Pointer, n uint64, s driver.Stream) Result {
	return d.enqueue("cuMemcpyHtoDAsync", s, func(st *stream) (operation, Result) {
		get, pinned := d.hostBytes(src, n)
		if !pinned {
			if st.capture != nil {
				return nil, driver.StreamCaptureUnsupported
			}
			b, _ := get()
			staged := append([]byte(nil), b...)
			get = func() ([]byte, *fault) { return staged, nil }
		}
		return func(c *context) *fault {
			b, f := get()
			if f != nil {
				return f
			}
			return d.write(c, dst, b)
		}, driver.Success
	})
}

// MemcpyDtoHAsync to memory that isn't page-locked runs before it returns.
func (d *Driver) MemcpyDtoHAsync(dst unsafe.Pointer, src driver.Ptr, n uint64, s driver.Stream) Result {
	pageable := false
	r := d.enqueue("cuMemcpyDtoHAsync", s, func(st *stream) (operation, Result) {
		get, pinned := d.hostBytes(dst, n)
		pageable = !pinned
		if pageable && st.capture != nil {
			return nil, driver.StreamCaptureUnsupported
		}
		return func(c *context) *fault {
			b, f := get()
			if f != nil {
				return f
			}
			return d.read(c, src, b)
		}, driver.Success
	})
	if r == driver.Success && pageable {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.finish(d.streams[s])
	}
	return r
}

func (d *Driver) MemcpyDtoDAsync(dst, src driver.Ptr, n uint64, s driver.Stream) Result {
	return d.enqueue("cuMemcpyDtoDAsync", s, func(*stream) (operation, Result) {
		return func(c *context) *fault {
			b := make([]byte, n)
			if f := d.read(c, src, b); f != nil {
				return f
			}
			return d.write(c, dst, b)
		}, driver.Success
	})
}

func (d *Driver) MemsetD8Async(dst driver.Ptr, v uint8, n uint64, s driver.Stream) Result {
	return d.enqueue("cuMemsetD8Async", s, func(*stream) (operation, Result) { return d.fill(dst, []byte{v}, n), driver.Success })
}

func (d *Driver) MemsetD32Async(dst driver.Ptr, v uint32, words uint64, s driver.Stream) Result {
	return d.enqueue("cuMemsetD32Async", s, func(*stream) (operation, Result) {
		if dst%4 != 0 {
			return nil, driver.InvalidValue
		}
		return d.fill(dst, binary.LittleEndian.AppendUint32(nil, v), 4*words), driver.Success
	})
}

// fill repeats the pattern over n bytes.
func (d *Driver) fill(dst driver.Ptr, pattern []byte, n uint64) operation {
	return func(c *context) *fault {
		i := 0
		return d.access(c, dst, n, func(b []byte) {
			for j := range b {
				b[j] = pattern[i%len(pattern)]
				i++
			}
		})
	}
}

func (d *Driver) read(c *context, p driver.Ptr, b []byte) *fault {
	return d.access(c, p, uint64(len(b)), func(piece []byte) { b = b[copy(b, piece):] })
}

func (d *Driver) write(c *context, p driver.Ptr, b []byte) *fault {
	return d.access(c, p, uint64(len(b)), func(piece []byte) { b = b[copy(piece, b):] })
}
