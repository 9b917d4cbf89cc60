//go:build !unix

package mem

import "unsafe"

func reserve(n int) (*Region, error) {
	raw := make([]byte, n+HugePage)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (HugePage - 1)
	return &Region{raw[skip : skip+n : skip+n], raw}, nil
}

func (r *Region) discard(int, int) error { return nil }

func (r *Region) free() error { return nil }
