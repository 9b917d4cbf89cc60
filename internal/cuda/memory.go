package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Buffer is device memory, aligned to 256 bytes at least. Its contents are whatever was there before.
type Buffer struct {
	handle
	bytes int64
}

// Alloc allocates device memory.
func (c *Context) Alloc(bytes int64) (*Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%w: Alloc of %d bytes", ErrInvalid, bytes)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var p Ptr
	if r := c.api.MemAlloc(&p, uint64(bytes)); r != driver.Success {
		return nil, c.failMemory("cuMemAlloc", bytes, r)
	}
	b := &Buffer{bytes: bytes}
	b.open(c, kindBuffer, uint64(p))
	return b, nil
}

// failMemory says how much was asked for and how much there is.
func (c *Context) failMemory(call string, bytes int64, r driver.Result) error {
	what := fmt.Sprintf("%d bytes", bytes)
	var free, total uint64
	if r == driver.OutOfMemory && c.api.MemGetInfo(&free, &total) == driver.Success {
		what += fmt.Sprintf(", %d of %d free", free, total)
	}
	return c.fail(call, what, r)
}

// Ptr returns the address, 0 after Close.
func (b *Buffer) Ptr() Ptr { return Ptr(b.raw.Load()) }

// Bytes returns the size.
func (b *Buffer) Bytes() int64 { return b.bytes }

// Close waits for the device and frees the memory.
func (b *Buffer) Close() error {
	return b.close("cuMemFree", func(raw uint64) driver.Result { return b.ctx.api.MemFree(Ptr(raw)) })
}

// HostBuffer is page-locked host memory, which the device reaches directly.
type HostBuffer struct {
	handle // the device's address of it
	mem    []byte
}

// AllocHost allocates page-locked host memory.
func (c *Context) AllocHost(bytes int64) (*HostBuffer, error) {
	if bytes <= 0 || int64(int(bytes)) != bytes {
		return nil, fmt.Errorf("%w: AllocHost of %d bytes", ErrInvalid, bytes)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var p unsafe.Pointer
	if r := c.api.MemHostAlloc(&p, uint64(bytes), driver.HostAllocPortable|driver.HostAllocDeviceMap); r != driver.Success {
		return nil, c.fail("cuMemHostAlloc", fmt.Sprintf("%d bytes", bytes), r)
	}
	var dev Ptr
	if r := c.api.MemHostGetDevicePointer(&dev, p); r != driver.Success {
		c.api.MemFreeHost(p)
		return nil, c.fail("cuMemHostGetDevicePointer", "", r)
	}
	h := &HostBuffer{mem: unsafe.Slice((*byte)(p), int(bytes))}
	h.open(c, kindHostBuffer, uint64(dev))
	return h, nil
}

// Bytes returns the memory, nil after Close of the buffer or the context. A slice of it must not be used after that:
// it isn't Go's memory.
func (h *HostBuffer) Bytes() []byte {
	if h.raw.Load() == 0 || h.ctx.closed.Load() {
		return nil
	}
	return h.mem
}

// Ptr returns the address at which kernels reach the memory, 0 after Close.
func (h *HostBuffer) Ptr() Ptr { return Ptr(h.raw.Load()) }

// Close frees the memory. Copies from or to it must have ended.
func (h *HostBuffer) Close() error {
	return h.close("cuMemFreeHost", func(uint64) driver.Result {
		return h.ctx.api.MemFreeHost(unsafe.Pointer(unsafe.SliceData(h.mem)))
	})
}

// slice returns the address of n bytes at off.
func (h *HostBuffer) slice(off, n int64) (unsafe.Pointer, error) {
	if _, err := h.get(); err != nil {
		return nil, err
	}
	if size := int64(len(h.mem)); off < 0 || n < 0 || off > size || n > size-off {
		return nil, fmt.Errorf("%w: %d bytes at %d of a host buffer of %d", ErrInvalid, n, off, size)
	}
	return unsafe.Pointer(unsafe.SliceData(h.mem[off:])), nil
}

// CopyIn copies n bytes at off of src to the device, in the stream's order: src must stay as it is until then.
func (s *Stream) CopyIn(dst Ptr, src *HostBuffer, off, n int64) error {
	p, err := src.slice(off, n)
	if err != nil || n == 0 {
		return err
	}
	return s.queue("cuMemcpyHtoDAsync", n, func(raw driver.Stream) driver.Result {
		return s.ctx.api.MemcpyHtoDAsync(dst, p, uint64(n), raw)
	})
}

// CopyOut copies n bytes from the device to off of dst, in the stream's order: they are there after Synchronize.
func (s *Stream) CopyOut(dst *HostBuffer, off int64, src Ptr, n int64) error {
	p, err := dst.slice(off, n)
	if err != nil || n == 0 {
		return err
	}
	return s.queue("cuMemcpyDtoHAsync", n, func(raw driver.Stream) driver.Result {
		return s.ctx.api.MemcpyDtoHAsync(p, src, uint64(n), raw)
	})
}

// Copy copies n bytes on the device, in the stream's order.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	if n <= 0 {
		return checkCount("Copy", n)
	}
	return s.queue("cuMemcpyDtoDAsync", n, func(raw driver.Stream) driver.Result {
		return s.ctx.api.MemcpyDtoDAsync(dst, src, uint64(n), raw)
	})
}

// Fill sets n bytes, in the stream's order.
func (s *Stream) Fill(dst Ptr, v byte, n int64) error {
	if n <= 0 {
		return checkCount("Fill", n)
	}
	return s.queue("cuMemsetD8Async", n, func(raw driver.Stream) driver.Result {
		return s.ctx.api.MemsetD8Async(dst, v, uint64(n), raw)
	})
}

// Fill32 sets n words of 32 bits, in the stream's order.
func (s *Stream) Fill32(dst Ptr, v uint32, n int64) error {
	if n <= 0 {
		return checkCount("Fill32", n)
	}
	return s.queue("cuMemsetD32Async", 4*n, func(raw driver.Stream) driver.Result {
		return s.ctx.api.MemsetD32Async(dst, v, uint64(n), raw)
	})
}

// Upload copies src to the device and waits until it is there.
func (s *Stream) Upload(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	raw, err := s.enterIdle("Stream.Upload")
	if err != nil {
		return err
	}
	defer s.leave()
	r := s.ctx.api.MemcpyHtoDAsync(dst, unsafe.Pointer(&src[0]), uint64(len(src)), raw)
	if r == driver.Success {
		r = s.ctx.api.StreamSynchronize(raw)
	}
	runtime.KeepAlive(src)
	return s.failCopy("cuMemcpyHtoDAsync", int64(len(src)), r)
}

// Download copies from the device to dst, after all that was put into the stream, and waits until it is there.
func (s *Stream) Download(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	raw, err := s.enterIdle("Stream.Download")
	if err != nil {
		return err
	}
	defer s.leave()
	r := s.ctx.api.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), src, uint64(len(dst)), raw)
	if r == driver.Success {
		r = s.ctx.api.StreamSynchronize(raw)
	}
	runtime.KeepAlive(dst)
	return s.failCopy("cuMemcpyDtoHAsync", int64(len(dst)), r)
}

// queue puts what f calls, a copy or a fill of n bytes, into the stream.
func (s *Stream) queue(call string, n int64, f func(driver.Stream) driver.Result) error {
	raw, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.failCopy(call, n, f(raw))
}

func (s *Stream) failCopy(call string, n int64, r driver.Result) error {
	if r == driver.Success {
		return nil // before the text is made, which allocates
	}
	return s.ctx.fail(call, fmt.Sprintf("%d bytes", n), r)
}

func checkCount(what string, n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %s of %d", ErrInvalid, what, n)
	}
	return nil
}

// AsBytes returns the memory of s, for Upload and Download. T must hold no pointers.
func AsBytes[T any](s []T) []byte {
	mustPlain[T]()
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
