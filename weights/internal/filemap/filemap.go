// Package filemap maps whole files into memory, read only. Where the system cannot, it reads them.
package filemap

import (
	"fmt"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights"
)

// Map is a file in memory. Its methods but Close are safe for concurrent use.
type Map struct {
	// Data is the file's bytes, or nil once closed. Writing to it faults.
	Data []byte

	path    string
	file    *os.File // stays open so that Check asks about the mapped file, not what has its name now
	modTime time.Time
	mapped  bool // false: Data was read into the heap
}

// Open maps the regular file at path.
func Open(path string) (*Map, error) {
	// Asked before opening: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Map{path: path, file: f}
	if err := m.load(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *Map) load() error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	m.modTime = info.ModTime()
	switch size := info.Size(); {
	case size == 0:
		return fmt.Errorf("file is empty")
	case size > math.MaxInt:
		return fmt.Errorf("file of %d bytes does not fit this machine's address space", size)
	default:
		m.Data, m.mapped, err = mapFile(m.file, int(size))
		return err
	}
}

// Path returns the path given to Open.
func (m *Map) Path() string { return m.path }

// Check returns an error that wraps weights.ErrChanged if the file's size or modification time differs
// from when it was mapped. A file renamed or deleted is not changed: its bytes stay mapped.
func (m *Map) Check() error {
	if !m.mapped || m.Data == nil {
		return nil
	}
	info, err := m.file.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", m.path, err)
	}
	if size := int64(len(m.Data)); info.Size() != size {
		return fmt.Errorf("%s: %w: it had %d bytes, now %d", m.path, weights.ErrChanged, size, info.Size())
	}
	if !info.ModTime().Equal(m.modTime) {
		return fmt.Errorf("%s: %w: it was written to at %v", m.path, weights.ErrChanged, info.ModTime().Format(time.RFC3339))
	}
	return nil
}

// FaultAt implements weights.Mapped.
func (m *Map) FaultAt(addr uintptr) error {
	if !m.mapped || len(m.Data) == 0 {
		return nil
	}
	if start := uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))); addr < start || addr-start >= uintptr(len(m.Data)) {
		return nil
	}
	return fmt.Errorf("%s: %w", m.path, weights.ErrChanged)
}

// Close unmaps the file. Whoever still reads Data then crashes. Closing again does nothing.
func (m *Map) Close() error {
	if m.Data == nil {
		return nil
	}
	data := m.Data
	m.Data = nil
	err := m.file.Close()
	if m.mapped {
		if e := unmap(data); e != nil {
			err = fmt.Errorf("%s: unmap: %w", m.path, e)
		}
	}
	return err
}
