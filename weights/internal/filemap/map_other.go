//go:build !unix

package filemap

import (
	"io"
	"os"
)

func mapFile(f *os.File, size int) (data []byte, mapped bool, err error) {
	data = make([]byte, size)
	_, err = io.ReadFull(f, data)
	return data, false, err
}

func unmap([]byte) error { return nil }

func dontNeed([]byte) {}
