//go:build linux && (amd64 || arm64)

package driver

import "unsafe"

// The calls that only pass their arguments on. Integers narrower than a register are zero-extended, as both
// calling conventions allow.

func (l *library) Init(flags uint32) Result {
	return l.call1(symInit, uintptr(flags))
}

func (l *library) DriverGetVersion(v *int32) Result {
	return l.call1(symDriverGetVersion, uintptr(unsafe.Pointer(v)))
}

func (l *library) DeviceGetCount(n *int32) Result {
	return l.call1(symDeviceGetCount, uintptr(unsafe.Pointer(n)))
}

func (l *library) DeviceGet(d *Device, ordinal int32) Result {
	return l.call2(symDeviceGet, uintptr(unsafe.Pointer(d)), uintptr(uint32(ordinal)))
}

func (l *library) DeviceTotalMem(n *uint64, d Device) Result {
	return l.call2(symDeviceTotalMem, uintptr(unsafe.Pointer(n)), uintptr(uint32(d)))
}

func (l *library) DeviceGetAttribute(v *int32, a DeviceAttr, d Device) Result {
	return l.call3(symDeviceGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(uint32(a)), uintptr(uint32(d)))
}

func (l *library) DeviceGetUuid(u *[16]byte, d Device) Result {
	return l.call2(symDeviceGetUuid, uintptr(unsafe.Pointer(u)), uintptr(uint32(d)))
}

func (l *library) DevicePrimaryCtxRetain(c *Context, d Device) Result {
	return l.call2(symDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(c)), uintptr(uint32(d)))
}

func (l *library) DevicePrimaryCtxRelease(d Device) Result {
	return l.call1(symDevicePrimaryCtxRelease, uintptr(uint32(d)))
}

func (l *library) CtxSetCurrent(c Context) Result {
	return l.call1(symCtxSetCurrent, uintptr(c))
}

func (l *library) CtxGetStreamPriorityRange(least, greatest *int32) Result {
	return l.call2(symCtxGetStreamPriorityRange, uintptr(unsafe.Pointer(least)), uintptr(unsafe.Pointer(greatest)))
}

func (l *library) StreamCreateWithPriority(s *Stream, flags uint32, priority int32) Result {
	return l.call3(symStreamCreateWithPriority, uintptr(unsafe.Pointer(s)), uintptr(flags), uintptr(uint32(priority)))
}

func (l *library) StreamDestroy(s Stream) Result {
	return l.call1(symStreamDestroy, uintptr(s))
}

func (l *library) StreamSynchronize(s Stream) Result {
	return l.call1(symStreamSynchronize, uintptr(s))
}

func (l *library) StreamQuery(s Stream) Result {
	return l.call1(symStreamQuery, uintptr(s))
}

func (l *library) StreamWaitEvent(s Stream, e Event, flags uint32) Result {
	return l.call3(symStreamWaitEvent, uintptr(s), uintptr(e), uintptr(flags))
}

func (l *library) StreamBeginCapture(s Stream, mode int32) Result {
	return l.call2(symStreamBeginCapture, uintptr(s), uintptr(uint32(mode)))
}

func (l *library) StreamEndCapture(s Stream, g *Graph) Result {
	return l.call2(symStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(g)))
}

func (l *library) StreamIsCapturing(s Stream, status *int32) Result {
	return l.call2(symStreamIsCapturing, uintptr(s), uintptr(unsafe.Pointer(status)))
}

func (l *library) EventCreate(e *Event, flags uint32) Result {
	return l.call2(symEventCreate, uintptr(unsafe.Pointer(e)), uintptr(flags))
}

func (l *library) EventDestroy(e Event) Result {
	return l.call1(symEventDestroy, uintptr(e))
}

func (l *library) EventRecord(e Event, s Stream) Result {
	return l.call2(symEventRecord, uintptr(e), uintptr(s))
}

func (l *library) EventSynchronize(e Event) Result {
	return l.call1(symEventSynchronize, uintptr(e))
}

func (l *library) EventQuery(e Event) Result {
	return l.call1(symEventQuery, uintptr(e))
}

func (l *library) EventElapsedTime(ms *float32, start, end Event) Result {
	return l.call3(symEventElapsedTime, uintptr(unsafe.Pointer(ms)), uintptr(start), uintptr(end))
}

func (l *library) ModuleUnload(m Module) Result {
	return l.call1(symModuleUnload, uintptr(m))
}

func (l *library) FuncGetAttribute(v *int32, a FuncAttr, f Function) Result {
	return l.call3(symFuncGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(uint32(a)), uintptr(f))
}

func (l *library) FuncSetAttribute(f Function, a FuncAttr, v int32) Result {
	return l.call3(symFuncSetAttribute, uintptr(f), uintptr(uint32(a)), uintptr(uint32(v)))
}

func (l *library) FuncGetParamInfo(f Function, index uint64, offset, size *uint64) Result {
	return l.call4(symFuncGetParamInfo, uintptr(f), uintptr(index), uintptr(unsafe.Pointer(offset)),
		uintptr(unsafe.Pointer(size)))
}

func (l *library) FuncLoad(f Function) Result {
	return l.call1(symFuncLoad, uintptr(f))
}

func (l *library) OccupancyMaxActiveBlocksPerMultiprocessor(n *int32, f Function, blockSize int32, shared uint64) Result {
	return l.call4(symOccupancyMaxActiveBlocks, uintptr(unsafe.Pointer(n)), uintptr(f), uintptr(uint32(blockSize)),
		uintptr(shared))
}

func (l *library) GraphInstantiateWithFlags(e *Exec, g Graph, flags uint64) Result {
	return l.call3(symGraphInstantiateWithFlags, uintptr(unsafe.Pointer(e)), uintptr(g), uintptr(flags))
}

func (l *library) GraphUpload(e Exec, s Stream) Result {
	return l.call2(symGraphUpload, uintptr(e), uintptr(s))
}

func (l *library) GraphLaunch(e Exec, s Stream) Result {
	return l.call2(symGraphLaunch, uintptr(e), uintptr(s))
}

func (l *library) GraphExecDestroy(e Exec) Result {
	return l.call1(symGraphExecDestroy, uintptr(e))
}

func (l *library) GraphDestroy(g Graph) Result {
	return l.call1(symGraphDestroy, uintptr(g))
}

func (l *library) MemAlloc(p *Ptr, n uint64) Result {
	return l.call2(symMemAlloc, uintptr(unsafe.Pointer(p)), uintptr(n))
}

func (l *library) MemFree(p Ptr) Result {
	return l.call1(symMemFree, uintptr(p))
}

func (l *library) MemGetInfo(free, total *uint64) Result {
	return l.call2(symMemGetInfo, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total)))
}

func (l *library) MemcpyHtoDAsync(dst Ptr, src unsafe.Pointer, n uint64, s Stream) Result {
	return l.call4(symMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemcpyDtoHAsync(dst unsafe.Pointer, src Ptr, n uint64, s Stream) Result {
	return l.call4(symMemcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemcpyDtoDAsync(dst, src Ptr, n uint64, s Stream) Result {
	return l.call4(symMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

func (l *library) MemsetD8Async(dst Ptr, v uint8, n uint64, s Stream) Result {
	return l.call4(symMemsetD8Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s))
}

func (l *library) MemsetD32Async(dst Ptr, v uint32, words uint64, s Stream) Result {
	return l.call4(symMemsetD32Async, uintptr(dst), uintptr(v), uintptr(words), uintptr(s))
}

func (l *library) MemHostAlloc(p *unsafe.Pointer, n uint64, flags uint32) Result {
	return l.call3(symMemHostAlloc, uintptr(unsafe.Pointer(p)), uintptr(n), uintptr(flags))
}

func (l *library) MemFreeHost(p unsafe.Pointer) Result {
	return l.call1(symMemFreeHost, uintptr(p))
}

func (l *library) MemHostGetDevicePointer(p *Ptr, host unsafe.Pointer) Result {
	return l.call3(symMemHostGetDevicePointer, uintptr(unsafe.Pointer(p)), uintptr(host), 0)
}

func (l *library) MemAddressReserve(p *Ptr, n, align uint64) Result {
	return l.call5(symMemAddressReserve, uintptr(unsafe.Pointer(p)), uintptr(n), uintptr(align), 0, 0)
}

func (l *library) MemAddressFree(p Ptr, n uint64) Result {
	return l.call2(symMemAddressFree, uintptr(p), uintptr(n))
}

func (l *library) MemCreate(h *Physical, n uint64, prop *AllocationProp) Result {
	return l.call4(symMemCreate, uintptr(unsafe.Pointer(h)), uintptr(n), uintptr(unsafe.Pointer(prop)), 0)
}

func (l *library) MemRelease(h Physical) Result {
	return l.call1(symMemRelease, uintptr(h))
}

func (l *library) MemMap(p Ptr, n, offset uint64, h Physical) Result {
	return l.call5(symMemMap, uintptr(p), uintptr(n), uintptr(offset), uintptr(h), 0)
}

func (l *library) MemUnmap(p Ptr, n uint64) Result {
	return l.call2(symMemUnmap, uintptr(p), uintptr(n))
}

func (l *library) MemSetAccess(p Ptr, n uint64, desc *AccessDesc) Result {
	return l.call4(symMemSetAccess, uintptr(p), uintptr(n), uintptr(unsafe.Pointer(desc)), 1)
}

func (l *library) MemGetAllocationGranularity(n *uint64, prop *AllocationProp, option int32) Result {
	return l.call3(symMemGetAllocationGranularity, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(prop)),
		uintptr(uint32(option)))
}
