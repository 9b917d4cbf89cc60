package mem

import "fmt"

// HugePage is the alignment of a Region.
const HugePage = 2 << 20

// Region is reserved memory, zero where it was never written.
type Region struct {
	Bytes []byte // aligned to HugePage
	raw   []byte
}

// Reserve reserves n bytes.
func Reserve(n int64) (*Region, error) {
	if n <= 0 || int64(int(n)) != n || n > 1<<46 {
		return nil, fmt.Errorf("mem: can't reserve %d bytes", n)
	}
	r, err := reserve(int(n))
	if err != nil {
		return nil, fmt.Errorf("mem: reserve %d bytes: %w", n, err)
	}
	return r, nil
}

// Discard gives the memory of [off, off+n) back to the system. Whole system pages inside the range read as zero
// afterwards; where the system has no such call, nothing happens.
func (r *Region) Discard(off, n int) error {
	if off < 0 || n < 0 || off+n > len(r.Bytes) {
		return fmt.Errorf("mem: discard of %d bytes at %d of a region of %d", n, off, len(r.Bytes))
	}
	if n == 0 {
		return nil
	}
	return r.discard(off, n)
}

// Free gives everything back; the region must not be touched afterwards. Freeing twice is harmless.
func (r *Region) Free() error {
	if r.raw == nil {
		return nil
	}
	err := r.free()
	r.Bytes, r.raw = nil, nil
	return err
}
