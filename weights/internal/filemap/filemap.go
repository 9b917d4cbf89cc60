// Package filemap maps whole files into memory, read only. Where the system cannot, it reads them.
package filemap

import (
	"errors"
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
	file    *os.File // stays open so that Check asks about the mapped file, not what has its name now; nil for Bytes
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

// Bytes returns data, which the caller has in memory, as a Map that never changes.
func Bytes(name string, data []byte) *Map { return &Map{Data: data, path: name} }

// Path returns the path given to Open or the name given to Bytes.
func (m *Map) Path() string { return m.path }

// IsFile reports whether m came from Open.
func (m *Map) IsFile() bool { return m.file != nil }

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

// offset returns where in the mapping addr lies, and whether it does.
func (m *Map) offset(addr uintptr) (int, bool) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))
	if !m.mapped || addr < start || addr-start >= uintptr(len(m.Data)) {
		return 0, false
	}
	return int(addr - start), true
}

// FaultAt implements weights.Mapped.
func (m *Map) FaultAt(addr uintptr) error {
	if _, ok := m.offset(addr); !ok {
		return nil
	}
	return fmt.Errorf("%s: %w", m.path, weights.ErrChanged)
}

// Evict gives back the memory of the pages wholly inside data, if data lies in the mapping. They can
// still be read, from the file anew.
func (m *Map) Evict(data []byte) {
	at, ok := m.offset(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	if !ok || len(data) > len(m.Data)-at {
		return
	}
	// The mapping begins on a page, so offsets in it are aligned as addresses are. The file's last page
	// is wholly its own.
	page := os.Getpagesize()
	begin, end := (at+page-1)/page*page, (at+len(data))/page*page
	if at+len(data) == len(m.Data) {
		end = len(m.Data)
	}
	if begin < end {
		dontNeed(m.Data[begin:end])
	}
}

// Close unmaps the file. Whoever still reads Data then crashes. Closing again does nothing.
func (m *Map) Close() error {
	if m.Data == nil {
		return nil
	}
	data := m.Data
	m.Data = nil
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	if m.mapped {
		if e := unmap(data); e != nil {
			err = fmt.Errorf("%s: unmap: %w", m.path, e)
		}
	}
	return err
}

// Set is the files of one model.
type Set []*Map

// Check returns the first error of the files' Check.
func (s Set) Check() error {
	for _, m := range s {
		if err := m.Check(); err != nil {
			return err
		}
	}
	return nil
}

// FaultAt returns the error of the file that addr lies in.
func (s Set) FaultAt(addr uintptr) error {
	for _, m := range s {
		if err := m.FaultAt(addr); err != nil {
			return err
		}
	}
	return nil
}

// Evict evicts data from the file that it lies in.
func (s Set) Evict(data []byte) {
	for _, m := range s {
		m.Evict(data)
	}
}

// Close closes all files.
func (s Set) Close() error {
	errs := make([]error, len(s))
	for i, m := range s {
		errs[i] = m.Close()
	}
	return errors.Join(errs...)
}
