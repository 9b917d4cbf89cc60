package mem

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noReserve: a cache is sized for its capacity, of which most is never touched.
const noReserve = unix.MAP_NORESERVE

// adviseHuge asks for huge pages. A system without them refuses; small pages work too.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

func (r *Region) discard(off, n int) error {
	page := os.Getpagesize()
	base := int(uintptr(unsafe.Pointer(&r.Bytes[0])))
	lo := (base+off+page-1)&^(page-1) - base
	hi := (base+off+n)&^(page-1) - base
	if lo >= hi {
		return nil
	}
	return unix.Madvise(r.Bytes[lo:hi], unix.MADV_DONTNEED)
}
