// Package cuda runs kernels on NVIDIA GPUs through libcuda, without cgo: handles are Go values with Close, results
// are errors that say what to do, and a launch allocates nothing.
//
// Terms:
//
//	Driver     libcuda, loaded and checked (Open), or a driver in Go for tests (New, package cudatest)
//	Device     a GPU and what it can do
//	Context    this process's state on a device (the primary context, which libraries share); owns all that follows
//	Stream     a queue: what is put into it runs in order, and later than the call that put it there
//	Event      a mark in a stream that others wait for or measure from
//	Module     loaded machine code; Function, a kernel in it; Launch, a prepared execution of one
//	Graph      launches recorded by Stream.Capture; Exec, a Graph made ready to launch as one
//	Buffer     device memory; HostBuffer, page-locked host memory, the only kind that asynchronous copies take
//	Range      reserved device addresses, into which Physical memory is mapped
//
// # Threads and order
//
// Every call makes its context current on the calling thread, so any goroutine may call anything; two goroutines
// may not use the same Launch at once, nor close what another uses. No call touches the null stream: what happens on
// the device is ordered by streams and events alone. Upload and Download wait for their stream, all else returns
// at once.
//
// # Lifetimes
//
// Close releases at once and is harmless the second time; a closed value answers ErrClosed. The device may still be
// at work when Close is called: Buffer.Close waits for it, as libcuda defines, the others don't, so synchronise
// first. Context.Close refuses, with a list, while anything it owns is open.
//
// # Failures
//
// A kernel that goes wrong takes the context with it: every later call answers ErrContextLost with the first
// failure, Close of what the context owns succeeds without a call, and the process has to be started anew to use
// the device again. Running out of memory (ErrOutOfMemory) harms nothing. errors.As with *Error gives the driver's
// own number.
//
// A program that imports this package is linked dynamically on Linux, because dlopen is the dynamic linker's: only
// backend/cuda does.
package cuda
