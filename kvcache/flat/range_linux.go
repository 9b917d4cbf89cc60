package flat

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Range is the address range of one sequence.
type Range struct {
	a     *Arena
	base  unsafe.Pointer // nil once closed
	table []int32        // [maxPages] the arena's page at each place, or none
}

const none = int32(-1)

// Reserve sets aside address space for maxPages pages. It takes no memory.
func (a *Arena) Reserve(maxPages int) (*Range, error) {
	if maxPages < 1 || maxPages > math.MaxInt/a.pageBytes {
		return nil, fmt.Errorf("flat: range of %d pages of %d bytes can't be addressed", maxPages, a.pageBytes)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return nil, ErrClosed
	}
	if err := a.roomFor(1); err != nil {
		return nil, err
	}
	base, err := reserve(nil, uintptr(maxPages*a.pageBytes), 0)
	if err != nil {
		return nil, fmt.Errorf("flat: reserve address space for %d pages: %w", maxPages, err)
	}
	r := &Range{a: a, base: base, table: make([]int32, maxPages)}
	for i := range r.table {
		r.table[i] = none
	}
	a.ranges[r] = struct{}{}
	a.mappings++
	return r, nil
}

// reserve makes n bytes at the given place inaccessible, without a claim on memory.
func reserve(at unsafe.Pointer, n uintptr, flags int) (unsafe.Pointer, error) {
	flags |= unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	return unix.MmapPtr(-1, 0, at, n, unix.PROT_NONE, flags)
}

func (a *Arena) roomFor(more int) error {
	if a.mappings+more > a.maxMappings {
		return fmt.Errorf("%w: %d in use, %d more wanted, %d allowed: raise vm.max_map_count or use block tables",
			ErrMaps, a.mappings, more, a.maxMappings)
	}
	return nil
}

// MaxPages is the number of pages the range has room for.
func (r *Range) MaxPages() int { return len(r.table) }

// Bytes is the whole range. Bytes of places where no page is mapped must not be touched: they fault. So do all
// of them after Close.
func (r *Range) Bytes() []byte { return unsafe.Slice((*byte)(r.base), len(r.table)*r.a.pageBytes) }

// Map puts pages of the arena at the places index, index+1, … of the range, instead of what was there. Pages
// that are mapped there already cost nothing, and consecutive page numbers are mapped together. On an
// error of the system the places keep no page; on any other error nothing was changed.
func (r *Range) Map(index int, pages []int32) error {
	a := r.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := r.check(index, len(pages)); err != nil {
		return err
	}
	for i, page := range pages {
		if page < 0 || int(page) >= a.pages {
			return fmt.Errorf("flat: map page %d at place %d: the arena has %d", page, index+i, a.pages)
		}
	}
	more := r.pieces(index, pages) - r.pieces(index, r.table[index:][:len(pages)])
	if err := a.roomFor(more); more > 0 && err != nil {
		return err
	}
	for i := 0; i < len(pages); {
		if r.table[index+i] == pages[i] {
			i++
			continue
		}
		n := 1
		for i+n < len(pages) && pages[i+n] == pages[i]+int32(n) {
			n++
		}
		if err := r.mapRun(index+i, pages[i], n); err != nil {
			return errors.Join(err, r.unmap(index, len(pages)))
		}
		i += n
	}
	a.mappings += more
	copy(r.table[index:], pages)
	return nil
}

func (r *Range) mapRun(index int, page int32, n int) error {
	a := r.a
	at := unsafe.Add(r.base, index*a.pageBytes)
	size := uintptr(n * a.pageBytes)
	_, err := unix.MmapPtr(a.fd, int64(page)*int64(a.pageBytes), at, size,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: %w", ErrMaps, err)
	}
	if err != nil {
		return fmt.Errorf("flat: map %d pages at place %d: %w", n, index, err)
	}
	a.adviseHuge(at, size)
	return nil
}

// Unmap takes the pages at n places out of the range. The arena keeps them.
func (r *Range) Unmap(index, n int) error {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if err := r.check(index, n); err != nil {
		return err
	}
	return r.unmap(index, n)
}

func (r *Range) unmap(index, n int) error {
	if n == 0 {
		return nil
	}
	_, err := reserve(unsafe.Add(r.base, index*r.a.pageBytes), uintptr(n*r.a.pageBytes), unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("flat: unmap %d pages at place %d: %w", n, index, err)
	}
	old := r.table[index:][:n]
	before := r.pieces(index, old)
	for i := range old {
		old[i] = none
	}
	r.a.mappings += r.pieces(index, old) - before
	return nil
}

// check reports misuse. The caller holds the lock.
func (r *Range) check(index, n int) error {
	if r.base == nil {
		return ErrClosed
	}
	if index < 0 || n < 0 || n > len(r.table)-index {
		return fmt.Errorf("flat: places [%d, %d) of a range of %d pages", index, index+n, len(r.table))
	}
	return nil
}

// pieces counts the mappings that begin in the given places, or just after them, if pages were mapped there.
func (r *Range) pieces(index int, pages []int32) int {
	n := 0
	for i, page := range pages {
		if prev := index + i - 1; prev >= 0 && i == 0 && joined(r.table[prev], page) || i > 0 && joined(pages[i-1], page) {
			continue
		}
		n++
	}
	if next := index + len(pages); len(pages) > 0 && next < len(r.table) && !joined(pages[len(pages)-1], r.table[next]) {
		n++
	}
	return n
}

// joined reports whether neighbouring places with these pages share a mapping.
func joined(left, right int32) bool {
	return left == none && right == none || left != none && right == left+1
}

// Close unmaps the range and gives its addresses back. A second Close does nothing.
func (r *Range) Close() error {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if r.base == nil {
		return nil
	}
	return r.release()
}

func (r *Range) release() error {
	err := unix.MunmapPtr(r.base, uintptr(len(r.table)*r.a.pageBytes))
	r.a.mappings -= r.pieces(0, r.table)
	delete(r.a.ranges, r)
	r.base = nil
	return err
}
