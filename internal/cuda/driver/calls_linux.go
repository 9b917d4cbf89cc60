//go:build linux && (amd64 || arm64)

package driver

import "unsafe"

// The calls that only pass their arguments on. Integers narrower than a register are zero-extended, as both
// calling conventions allow.

func (l *library) Init(flags uint32) Result {
	return l.call(symInit, uintptr(flags))
}

func (l *library) DriverGetVersion(v *int32) Result {
	return l.call(symDriverGetVersion, uintptr(unsafe.Pointer(v)))
}

func (l *library) DeviceGetCount(n *int32) Result {
	return l.call(symDeviceGetCount, uintptr(unsafe.Pointer(n)))
}

func (l *library) DeviceGet(d *Device, ordinal int32) Result {
	return l.call(symDeviceGet, uintptr(unsafe.Pointer(d)), uintptr(uint32(ordinal)))
}

func (l *library) DeviceTotalMem(n *uint64, d Device) Result {
	return l.call(symDeviceTotalMem, uintptr(unsafe.Pointer(n)), uintptr(uint32(d)))
}

func (l *library) DeviceGetAttribute(v *int32, a DeviceAttr, d Device) Result {
	return l.call(symDeviceGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(uint32(a)), uintptr(uint32(d)))
}

func (l *library) DeviceGetUuid(u *[16]byte, d Device) Result {
	return l.call(symDeviceGetUuid, uintptr(unsafe.Pointer(u)), uintptr(uint32(d)))
}

func (l *library) DevicePrimaryCtxRetain(c *Context, d Device) Result {
	return l.call(symDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(c)), uintptr(uint32(d)))
}

func (l *library) DevicePrimaryCtxRelease(d Device) Result {
	return l.call(symDevicePrimaryCtxRelease, uintptr(uint32(d)))
}

func (l *library) CtxSetCurrent(c Context) Result {
	return l.call(symCtxSetCurrent, uintptr(c))
}

func (l *library) CtxGetStreamPriorityRange(least, greatest *int32) Result {
	return l.call(symCtxGetStreamPriorityRange, uintptr(unsafe.Pointer(least)), uintptr(unsafe.Pointer(greatest)))
}

func (l *library) StreamCreateWithPriority(s *Stream, flags uint32, priority int32) Result {
	return l.call(symStreamCreateWithPriority, uintptr(unsafe.Pointer(s)), uintptr(flags), uintptr(uint32(priority)))
}

func (l *library) StreamDestroy(s Stream) Result {
	return l.call(symStreamDestroy, uintptr(s))
}

func (l *library) StreamSynchronize(s Stream) Result {
	return l.call(symStreamSynchronize, uintptr(s))
}

func (l *library) StreamQuery(s Stream) Result {
	return l.call(symStreamQuery, uintptr(s))
}

func (l *library) StreamWaitEvent(s Stream, e Event, flags uint32) Result {
	return l.call(symStreamWaitEvent, uintptr(s), uintptr(e), uintptr(flags))
}

func (l *library) StreamBeginCapture(s Stream, mode int32) Result {
	return l.call(symStreamBeginCapture, uintptr(s), uintptr(uint32(mode)))
}

func (l *library) StreamEndCapture(s Stream, g *Graph) Result {
	return l.call(symStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(g)))
}

func (l *library) StreamIsCapturing(s Stream, status *int32) Result {
	return l.call(symStreamIsCapturing, uintptr(s), uintptr(unsafe.Pointer(status)))
}

func (l *library) EventCreate(e *Event, flags uint32) Result {
	return l.call(symEventCreate, uintptr(unsafe.Pointer(e)), uintptr(flags))
}

func (l *library) EventDestroy(e Event) Result {
	return l.call(symEventDestroy, uintptr(e))
}

func (l *library) EventRecord(e Event, s Stream) Result {
	return l.call(symEventRecord, uintptr(e), uintptr(s))
}

func (l *library) EventSynchronize(e Event) Result {
	return l.call(symEventSynchronize, uintptr(e))
}

func (l *library) EventQuery(e Event) Result {
	return l.call(symEventQuery, uintptr(e))
}

func (l *library) EventElapsedTime(ms *float32, start, end Event) Result {
	return l.call(symEventElapsedTime, uintptr(unsafe.Pointer(ms)), uintptr(start), uintptr(end))
}

func (l *library) ModuleUnload(m Module) Result {
	return l.call(symModuleUnload, uintptr(m))
}

func (l *library) FuncGetAttribute(v *int32, a FuncAttr, f Function) Result {
	return l.call(symFuncGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(uint32(a)), uintptr(f))
}

func (l *library) FuncSetAttribute(f Function, a FuncAttr, v int32) Result {
	return l.call(symFuncSetAttribute, uintptr(f), uintptr(uint32(a)), uintptr(uint32(v)))
}

func (l *library) FuncGetParamInfo(f Function, index uint64, offset, size *uint64) Result {
	return l.call(symFuncGetParamInfo, uintptr(f), uintptr(index), uintptr(unsafe.Pointer(offset)),
		uintptr(unsafe.Pointer(size)))
}

func (l *library) OccupancyMaxActiveBlocksPerMultiprocessor(n *int32, f Function, blockSize int32, shared uint64) Result {
	return l.call(symOccupancyMaxActiveBlocks, uintptr(unsafe.Pointer(n)), uintptr(f), uintptr(uint32(blockSize)),
		uintptr(shared))
}

func (l *library) GraphInstantiateWithFlags(e *Exec, g Graph, flags uint64) Result {
	return l.call(symGraphInstantiateWithFlags, uintptr(unsafe.Pointer(e)), uintptr(g), uintptr(flags))
}

func (l *library) GraphUpload(e Exec, s Stream) Result {
	return l.call(symGraphUpload, uintptr(e), uintptr(s))
}

func (l *library) GraphLaunch(e Exec, s Stream) Result {
	return l.call(symGraphLaunch, uintptr(e), uintptr(s))
}

func (l *library) GraphExecDestroy(e Exec) Result {
	return l.call(symGraphExecDestroy, uintptr(e))
}

func (l *library) GraphDestroy(g Graph) Result {
	return l.call(symGraphDestroy, uintptr(g))
}

func (l *library) MemAlloc(p *Ptr, n uint64) Result {
	return l.call(symMemAlloc, uintptr(unsafe.Pointer(p)), uintptr(n))
}

func (l *library) MemFree(p Ptr) Result {
	return l.call(symMemFree, uintptr(p))
}

func (l *library) MemGetInfo(free, total *uint64) Result {
	return l.call(symMemGetInfo, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total)))
}

func (l *library) MemcpyHtoDAsync(dst Ptr, src unsafe.Pointer, n uint64, s Stream) Result {
	return l.call(symMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemcpyDtoHAsync(dst unsafe.Pointer, src Ptr, n uint64, s Stream) Result {
	return l.call(symMemcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemcpyDtoDAsync(dst, src Ptr, n uint64, s Stream) Result {
	return l.call(symMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemsetD8Async(dst Ptr, v uint8, n uint64, s Stream) Result {
	return l.call(symMemsetD8Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

func (l *library) MemsetD32Async(dst Ptr, v uint32, words uint64, s Stream) Result {
	return l.call(symMemsetD32Async, uintptr(dst), uintptr(v), uintptr(words), uintptr(s))
}

func (l *library) MemHostAlloc(p *unsafe.Pointer, n uint64, flags uint32) Result {
	return l.call(symMemHostAlloc, uintptr(unsafe.Pointer(p)), uintptr(n), uintptr(flags))
}

func (l *library) MemFreeHost(p unsafe.Pointer) Result {
	return l.call(symMemFreeHost, uintptr(p))
}

func (l *library) MemHostGetDevicePointer(p *Ptr, host unsafe.Pointer) Result {
	return l.call(symMemHostGetDevicePointer, uintptr(unsafe.Pointer(p)), uintptr(host), 0)
}

func (l *library) MemAddressReserve(p *Ptr, n, align uint64) Result {
	return l.call(symMemAddressReserve, uintptr(unsafe.Pointer(p)), uintptr(n), uintptr(align), 0, 0)
}

func (l *library) MemAddressFree(p Ptr, n uint64) Result {
	return l.call(symMemAddressFree, uintptr(p), uintptr(n))
}

func (l *library) MemCreate(h *Physical, n uint64, prop *AllocationProp) Result {
	return l.call(symMemCreate, uintptr(unsafe.Pointer(h)), uintptr(n), uintptr(unsafe.Pointer(prop)), 0)
}

func (l *library) MemRelease(h Physical) Result {
	return l.call(symMemRelease, uintptr(h))
}

func (l *library) MemMap(p Ptr, n, offset uint64, h Physical) Result {
	return l.call(symMemMap, uintptr(p), uintptr(n), uintptr(offset), uintptr(h), 0)
}

func (l *library) MemUnmap(p Ptr, n uint64) Result {
	return l.call(symMemUnmap, uintptr(p), uintptr(n))
}

func (l *library) MemSetAccess(p Ptr, n uint64, desc *AccessDesc) Result {
	return l.call(symMemSetAccess, uintptr(p), uintptr(n), uintptr(unsafe.Pointer(desc)), 1)
}

func (l *library) MemGetAllocationGranularity(n *uint64, prop *AllocationProp, option int32) Result {
	return l.call(symMemGetAllocationGranularity, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(prop)),
		uintptr(uint32(option)))
}
