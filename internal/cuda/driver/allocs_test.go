//go:build linux && (amd64 || arm64) && !race

package driver

import (
	"testing"
	"unsafe"
)

// TestNoAllocs: a call allocates nothing, neither here nor in the way of its arguments. Not under the race detector, where
// sync.Pool forgets.
func TestNoAllocs(t *testing.T) {
	var api API = record(t)
	l := NewLaunch([]unsafe.Pointer{unsafe.Pointer(new(uint64)), unsafe.Pointer(new(uint64))})
	buf := make([]byte, 8)
	for name, f := range map[string]func(){
		"LaunchKernelEx":  func() { api.LaunchKernelEx(1, l) },
		"CtxSetCurrent":   func() { api.CtxSetCurrent(1) },
		"MemcpyHtoDAsync": func() { api.MemcpyHtoDAsync(1, unsafe.Pointer(&buf[0]), 8, 2) },
		"GraphLaunch":     func() { api.GraphLaunch(1, 2) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
