package weights

import (
	"runtime"
	"runtime/debug"
)

// Mapped is a file whose bytes are read through a memory mapping.
type Mapped interface {
	// FaultAt returns an error that names the file and wraps ErrChanged if addr lies in its mapping, and
	// nil otherwise.
	FaultAt(addr uintptr) error
}

// Fault explains a recovered panic: if it is a memory fault inside one of files, as happens when a
// mapped file is truncated, it returns that file's error. Otherwise it returns nil, and the caller
// should panic again.
//
// The runtime ends the process on such a fault unless debug.SetPanicOnFault(true) was called on the
// goroutine that reads. A goroutine that reads weights for as long as it lives, such as a worker of a
// backend, calls that once and Fault in its deferred function; others use Guard.
func Fault(recovered any, files ...Mapped) error {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	for _, f := range files {
		if err := f.FaultAt(fault.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// Guard calls read, which reads from files on the calling goroutine, and returns its error, or that of
// Fault if it faults.
func Guard(read func() error, files ...Mapped) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if err = Fault(r, files...); err == nil {
				panic(r)
			}
		}
	}()
	return read()
}
