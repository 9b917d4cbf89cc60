//go:build unix

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func reserve(n int) (*Region, error) {
	raw, err := unix.Mmap(-1, 0, n+HugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|noReserve)
	if err != nil {
		return nil, err
	}
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (HugePage - 1)
	r := &Region{raw[skip : skip+n : skip+n], raw}
	adviseHuge(r.Bytes)
	return r, nil
}

func (r *Region) free() error { return unix.Munmap(r.raw) }
