package cpu

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/flashdecode/flashdecode/kvcache/flat"
	"github.com/flashdecode/flashdecode/ops"
)

// flatMemory is pages that are mapped into one address range for each sequence.
type flatMemory struct {
	arena  *flat.Arena
	ranges []*flat.Range
	starts []int64 // of the ranges, relative to the arena's first byte
	bound  []int   // [ranges] places that may hold a page
}

// newFlatMemory makes the memory of a layout whose pages hold pageBytes bytes, which are rounded up to pages of the
// system.
func newFlatMemory(l ops.KVLayout, pageBytes int) (*flatMemory, error) {
	system := os.Getpagesize()
	arena, err := flat.New(l.Pages, (pageBytes+system-1)/system*system)
	if err != nil {
		return nil, err
	}
	m := &flatMemory{arena: arena, bound: make([]int, l.Ranges)}
	base := uintptr(unsafe.Pointer(&arena.Bytes()[0]))
	for range l.Ranges {
		r, err := arena.Reserve(l.RangePages)
		if err != nil {
			arena.Close()
			return nil, err
		}
		m.ranges = append(m.ranges, r)
		m.starts = append(m.starts, int64(uintptr(unsafe.Pointer(&r.Bytes()[0]))-base))
	}
	return m, nil
}

func (m *flatMemory) copyPage(dst, src int32) {
	n, b := int64(m.arena.PageBytes()), m.arena.Bytes()
	copy(b[int64(dst)*n:(int64(dst)+1)*n], b[int64(src)*n:(int64(src)+1)*n])
}

// flatKV is a kv in flat mode, which can bind.
type flatKV struct{ *kv }

var _ ops.Binder = (*flatKV)(nil)

// Bind implements ops.Binder.
func (c *flatKV) Bind(r int32, from int, pages []int32) error {
	m := c.flat
	if r < 0 || int(r) >= len(m.ranges) {
		return fmt.Errorf("cpu: range %d of a cache with %d", r, len(m.ranges))
	}
	m.bound[r] = max(m.bound[r], from+len(pages))
	return m.ranges[r].Map(from, pages)
}

// Unbind implements ops.Binder.
func (c *flatKV) Unbind(r int32) error {
	m := c.flat
	if r < 0 || int(r) >= len(m.ranges) {
		return fmt.Errorf("cpu: range %d of a cache with %d", r, len(m.ranges))
	}
	n := m.bound[r]
	m.bound[r] = 0
	return m.ranges[r].Unmap(0, n)
}
