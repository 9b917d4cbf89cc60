package driver

import "unsafe"

// API is the functions of libcuda that this module calls. Those that act on a device's memory or streams want the
// context current on the calling thread (CtxSetCurrent). Sizes are in bytes.
//
// A call hands the driver addresses of Go memory only for its own duration, with the exception of host memory in
// asynchronous copies, which must come from MemHostAlloc.
type API interface {
	// Has reports whether the library has the symbol of this name (Symbols), with which optional functions are
	// asked for.
	Has(symbol string) bool

	Init(flags uint32) Result
	DriverGetVersion(v *int32) Result
	DeviceGetCount(n *int32) Result
	DeviceGet(d *Device, ordinal int32) Result
	DeviceGetName(name []byte, d Device) Result // zero-terminated
	DeviceTotalMem(n *uint64, d Device) Result
	DeviceGetAttribute(v *int32, a DeviceAttr, d Device) Result
	DeviceGetUuid(u *[16]byte, d Device) Result
	DevicePrimaryCtxRetain(c *Context, d Device) Result
	DevicePrimaryCtxRelease(d Device) Result
	CtxSetCurrent(c Context) Result
	CtxGetStreamPriorityRange(least, greatest *int32) Result

	StreamCreateWithPriority(s *Stream, flags uint32, priority int32) Result
	StreamDestroy(s Stream) Result
	StreamSynchronize(s Stream) Result
	StreamQuery(s Stream) Result
	StreamWaitEvent(s Stream, e Event, flags uint32) Result
	StreamBeginCapture(s Stream, mode int32) Result
	StreamEndCapture(s Stream, g *Graph) Result
	StreamIsCapturing(s Stream, status *int32) Result
	EventCreate(e *Event, flags uint32) Result
	EventDestroy(e Event) Result
	EventRecord(e Event, s Stream) Result
	EventSynchronize(e Event) Result
	EventQuery(e Event) Result
	EventElapsedTime(ms *float32, start, end Event) Result

	// ModuleLoadDataEx loads a cubin, fatbin or PTX text (zero-terminated); errorLog, if not empty, receives
	// the PTX compiler's complaint.
	ModuleLoadDataEx(m *Module, image, errorLog []byte) Result
	ModuleUnload(m Module) Result
	ModuleGetFunction(f *Function, m Module, name string) Result
	ModuleGetGlobal(p *Ptr, n *uint64, m Module, name string) Result
	FuncGetAttribute(v *int32, a FuncAttr, f Function) Result
	FuncSetAttribute(f Function, a FuncAttr, v int32) Result
	FuncGetParamInfo(f Function, index uint64, offset, size *uint64) Result // optional
	FuncLoad(f Function) Result                                             // optional
	OccupancyMaxActiveBlocksPerMultiprocessor(n *int32, f Function, blockSize int32, shared uint64) Result
	OccupancyMaxActiveClusters(n *int32, f Function, l *Launch) Result
	OccupancyMaxPotentialClusterSize(n *int32, f Function, l *Launch) Result
	LaunchKernelEx(f Function, l *Launch) Result

	GraphInstantiateWithFlags(e *Exec, g Graph, flags uint64) Result
	GraphUpload(e Exec, s Stream) Result
	GraphLaunch(e Exec, s Stream) Result
	GraphExecDestroy(e Exec) Result
	GraphDestroy(g Graph) Result
	GraphGetNodes(g Graph, n *uint64) Result // the number of nodes

	MemAlloc(p *Ptr, n uint64) Result
	MemFree(p Ptr) Result
	MemGetInfo(free, total *uint64) Result
	MemcpyHtoDAsync(dst Ptr, src unsafe.Pointer, n uint64, s Stream) Result
	MemcpyDtoHAsync(dst unsafe.Pointer, src Ptr, n uint64, s Stream) Result
	MemcpyDtoDAsync(dst, src Ptr, n uint64, s Stream) Result
	MemsetD8Async(dst Ptr, v uint8, n uint64, s Stream) Result
	MemsetD32Async(dst Ptr, v uint32, words uint64, s Stream) Result
	MemHostAlloc(p *unsafe.Pointer, n uint64, flags uint32) Result
	MemFreeHost(p unsafe.Pointer) Result
	MemHostGetDevicePointer(p *Ptr, host unsafe.Pointer) Result

	MemAddressReserve(p *Ptr, n, align uint64) Result
	MemAddressFree(p Ptr, n uint64) Result
	MemCreate(h *Physical, n uint64, prop *AllocationProp) Result
	MemRelease(h Physical) Result
	MemMap(p Ptr, n, offset uint64, h Physical) Result
	MemUnmap(p Ptr, n uint64) Result
	MemSetAccess(p Ptr, n uint64, desc *AccessDesc) Result
	MemGetAllocationGranularity(n *uint64, prop *AllocationProp, option int32) Result
}
