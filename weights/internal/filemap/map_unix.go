//go:build unix

package filemap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) (data []byte, mapped bool, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, false, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return data, true, nil
}

func unmap(data []byte) error { return unix.Munmap(data) }

// dontNeed is a hint: that it can't be followed changes nothing for the caller.
func dontNeed(data []byte) { _ = unix.Madvise(data, unix.MADV_DONTNEED) }
