// Package cudatest is a driver in Go behind driver.API, for tests of host code on machines without a GPU. It knows no
// CUDA code: a kernel is a Go function, registered by name (Driver.AddKernel), that gets the raw bytes of its arguments
// and reads and writes device memory by address.
//
// It is stricter than the real one, so that mistakes which only sometimes show on a GPU always show here:
//
//   - Work runs as late as the driver's rules allow: at a synchronisation, not at the call. Host memory that is read
//     or overwritten too early is seen to be.
//   - Fresh device memory holds bytes 0xFF, a NaN in every float format.
//   - An address is never given out twice. Every access of a copy or a kernel is checked: out of bounds, after
//     free, not mapped, or of another device, and the context is lost with CUDA_ERROR_ILLEGAL_ADDRESS (Faults says where).
//   - Calls from a thread on which the context isn't current fail.
//   - What can't be captured fails, and spoils the capture, as the driver's manual says.
//   - What is left open is listed (Leaks); Open makes a test fail for it.
//
// Failures are injected by Options (no device, missing symbol, old driver), Driver.Fail (any call), Driver.FailAlloc
// (out of memory) and Driver.FailLaunch (a kernel that takes the context with it).
//
// Terms: a chunk is the unit in which device memory takes host memory, on first touch; a segment is a run of
// addresses with memory behind it; a thread is an OS thread; a mark is a position in a stream.
package cudatest
