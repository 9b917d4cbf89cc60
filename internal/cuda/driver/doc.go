// Package driver is the C interface of NVIDIA's driver library, libcuda, as Go sees it: the functions this
// module calls (API), the values that go through them, and Load, which finds them by dlopen, without cgo.
//
// Terms, as the driver's manual (CUDA Driver API reference) has them:
//
//	result     what every function returns: 0 or the reason of a failure (Result)
//	handle     a number that names something the driver owns: context, stream, event, module, function, graph
//	context    a process's state on one device; most functions act on the one that is current on the
//	           calling thread
//	Ptr        a device address; one address space for all devices and pinned host memory
//	launch     one execution of a function on a grid of blocks, with attributes beyond the grid (Launch)
//
// Names and numbers are those of cuda.h without the prefix "cu" or "CU_" and without the suffix "_v2", which is
// part of the symbol's name in the library only: Symbols has it. Nothing here checks, remembers or explains;
// package cuda above does, and package cudatest puts a driver in plain Go behind the same interface.
package driver
