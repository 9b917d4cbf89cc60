package faulttest

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// Need skips the test where the system does not tell the address of a fault. Linux does; user-mode
// emulators of another architecture may not.
func Need(t testing.TB) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, ok := fault(data).(interface {
		runtime.Error
		Addr() uintptr
	}); !ok {
		t.Skip("this system does not tell the address of a fault: a truncated file can't be recognised")
	}
}

// fault reads data and returns what was recovered.
func fault(data []byte) (recovered any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { recovered = recover() }()
	return data[0]
}
