package kvmem

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/flashdecode/flashdecode/internal/cuda"
)

// Errors that callers act on.
var (
	// ErrFull: as many pages as were configured, or as the device has memory for, are in use.
	ErrFull = errors.New("kvmem: no memory for another page")
	// ErrBound: a page that is to be released is still in a range.
	ErrBound = errors.New("kvmem: page is bound")
)

// Config says how much there is to be.
type Config struct {
	PageBytes          int64 // of a page, all layers: rounded up to granules
	Pages              int   // most pages with memory
	Ranges, RangePages int
	Ahead              int // slots mapped ahead of each range's last page; 0: none
}

// Memory is pages and ranges. It is safe for concurrent use.
type Memory struct {
	ctx       *cuda.Context
	cfg       Config
	pageBytes int64
	granule   int64

	mu     sync.Mutex
	pages  []page
	ranges []addresses
	window *cuda.Range
	shown  []bool           // [pages] mapped into the window
	free   []*cuda.Physical // memory of no page, mapped nowhere
	made   int              // pieces of memory that exist
	stats  Stats
	fault  error // of the goroutine that maps ahead; the next Bind returns it

	work chan int32
	done chan struct{}
}

// page is one page's memory and the number of slots that it is in.
type page struct {
	memory *cuda.Physical
	slots  int
}

// addresses is one range.
type addresses struct {
	space *cuda.Range
	slots []slot // from 0 to the last that is mapped
	bound int    // slots that have pages; those after them are spares
}

// slot is what is mapped there.
type slot struct {
	memory *cuda.Physical
	page   int32 // -1: a spare
}

// Stats counts what happened.
type Stats struct {
	Memory int // pieces that exist: pages, spares, and what is kept for the next
	Spares int // of them mapped ahead
	Taken  int // pages that took a spare
	Mapped int // slots that Bind itself had to map
	Ahead  int // slots that were mapped ahead
}

// New reserves addresses and starts the goroutine that maps ahead. It takes no memory.
func New(ctx *cuda.Context, cfg Config) (*Memory, error) {
	const most = 1 << 46 // bytes of addresses that the hardware has room for
	if max(cfg.Pages, cfg.Ranges, cfg.RangePages) > 1<<24 || cfg.PageBytes < 1 || cfg.Pages < 1 || cfg.Ranges < 1 || cfg.RangePages < 1 || cfg.Ahead < 0 || cfg.PageBytes > most ||
		int64(cfg.Pages) > most/cfg.PageBytes || int64(cfg.RangePages) > most/cfg.PageBytes/int64(cfg.Ranges) {
		return nil, fmt.Errorf("kvmem: %d pages of %d bytes, %d ranges of %d pages: want positive numbers and at most %d bytes of addresses",
			cfg.Pages, cfg.PageBytes, cfg.Ranges, cfg.RangePages, int64(most))
	}
	if !ctx.Device().VirtualMemory {
		return nil, fmt.Errorf("kvmem: %s: %w: use a block table", ctx.Device().Name, cuda.ErrUnsupported)
	}
	granule, err := ctx.Granule()
	if err != nil {
		return nil, fmt.Errorf("kvmem: %w", err)
	}
	m := &Memory{
		ctx: ctx, cfg: cfg, granule: granule, pageBytes: (cfg.PageBytes + granule - 1) / granule * granule,
		pages: make([]page, cfg.Pages), shown: make([]bool, cfg.Pages), ranges: make([]addresses, cfg.Ranges),
		work: make(chan int32, cfg.Ranges), done: make(chan struct{}),
	}
	for i := range m.ranges {
		if m.ranges[i].space, err = ctx.Reserve(m.pageBytes*int64(cfg.RangePages), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("kvmem: range %d: %w", i, err), m.closeAll())
		}
	}
	if m.window, err = ctx.Reserve(m.pageBytes*int64(cfg.Pages), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("kvmem: %w", err), m.closeAll())
	}
	go m.mapAhead(m.work)
	return m, nil
}

// PageBytes is the distance from slot to slot.
func (m *Memory) PageBytes() int64 { return m.pageBytes }

// Base is the address of a range's first slot.
func (m *Memory) Base(r int32) cuda.Ptr { return m.ranges[r].space.Ptr() }

// Stats returns the counts so far.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Memory = m.made
	return s
}

// Bind puts pages at slots from, from+1, … of a range, instead of what was there. Slots are filled from the first on
// without gaps. On an error the slots from there on are empty. Kernels that read what is replaced must have ended.
func (m *Memory) Bind(r int32, from int, pages []int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkBind(r, from, pages); err != nil {
		return err
	}
	a := &m.ranges[r]
	for i, p := range pages {
		if err := m.bind(a, from+i, p); err != nil {
			return errors.Join(err, m.cut(a, from+i))
		}
	}
	m.ahead(r)
	return nil
}

func (m *Memory) checkBind(r int32, from int, pages []int32) error {
	if err := m.fault; err != nil {
		m.fault = nil
		return err
	}
	if int(r) < 0 || int(r) >= len(m.ranges) {
		return fmt.Errorf("kvmem: range %d of %d", r, len(m.ranges))
	}
	if a := &m.ranges[r]; from < 0 || from > a.bound || from+len(pages) > m.cfg.RangePages {
		return fmt.Errorf("kvmem: bind %d pages at slot %d of range %d, which has %d of %d", len(pages), from, r, a.bound, m.cfg.RangePages)
	}
	for _, p := range pages {
		if p < 0 || int(p) >= len(m.pages) {
			return fmt.Errorf("kvmem: page %d of %d", p, len(m.pages))
		}
	}
	return nil
}

// bind puts page p into slot i, which is bound, a spare, or the first empty one.
func (m *Memory) bind(a *addresses, i int, p int32) error {
	pg := &m.pages[p]
	if i < len(a.slots) {
		switch s := &a.slots[i]; {
		case s.page == p:
			return nil
		case s.page < 0 && pg.memory == nil: // a fresh page takes the spare
			pg.memory, pg.slots, s.page = s.memory, 1, p
			a.bound = i + 1
			m.stats.Spares--
			m.stats.Taken++
			return nil
		}
		if err := m.unmap(a, i); err != nil {
			return err
		}
	}
	if pg.memory == nil {
		mem, err := m.take()
		if err != nil {
			return fmt.Errorf("kvmem: page %d: %w", p, err)
		}
		pg.memory = mem
	}
	if err := a.space.Map(int64(i)*m.pageBytes, pg.memory); err != nil {
		return errors.Join(fmt.Errorf("kvmem: page %d: %w", p, err), m.drop(p))
	}
	m.stats.Mapped++
	pg.slots++
	if i == len(a.slots) {
		a.slots = append(a.slots, slot{})
	}
	a.slots[i] = slot{pg.memory, p}
	a.bound = max(a.bound, i+1)
	return nil
}

// drop gives up the memory of a page that is in no slot.
func (m *Memory) drop(p int32) error {
	pg := &m.pages[p]
	if pg.slots > 0 || pg.memory == nil {
		return nil
	}
	if m.shown[p] {
		if err := m.window.Unmap(int64(p)*m.pageBytes, m.pageBytes); err != nil {
			return fmt.Errorf("kvmem: page %d: %w", p, err)
		}
		m.shown[p] = false
	}
	m.free = append(m.free, pg.memory)
	pg.memory = nil
	return nil
}

// unmap empties slot i, which something replaces or which is the last.
func (m *Memory) unmap(a *addresses, i int) error {
	s := &a.slots[i]
	if s.memory == nil {
		return nil
	}
	if err := a.space.Unmap(int64(i)*m.pageBytes, m.pageBytes); err != nil {
		return fmt.Errorf("kvmem: slot %d: %w", i, err)
	}
	if s.page < 0 {
		m.free = append(m.free, s.memory)
		m.stats.Spares--
	} else {
		m.pages[s.page].slots--
	}
	*s = slot{page: -1}
	return nil
}

// cut empties the slots from i on.
func (m *Memory) cut(a *addresses, i int) error {
	for j := len(a.slots) - 1; j >= i; j-- {
		if err := m.unmap(a, j); err != nil {
			return err
		}
		a.slots = a.slots[:j]
	}
	a.bound = min(a.bound, i)
	return nil
}

// take returns memory of no page: kept, made, or a spare of some range, in this order.
func (m *Memory) take() (*cuda.Physical, error) {
	full := ErrFull
	if m.left() {
		mem, err := m.spare()
		if err == nil || !errors.Is(err, cuda.ErrOutOfMemory) {
			return mem, err
		}
		full = fmt.Errorf("%w: %w", ErrFull, err)
	}
	for r := range m.ranges {
		if a := &m.ranges[r]; len(a.slots) > a.bound {
			if err := m.cut(a, len(a.slots)-1); err != nil {
				return nil, err
			}
			return m.take()
		}
	}
	return nil, full
}

// Unbind empties a range. Kernels that read it must have ended. Its pages keep their memory until Release.
func (m *Memory) Unbind(r int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if int(r) < 0 || int(r) >= len(m.ranges) {
		return fmt.Errorf("kvmem: range %d of %d", r, len(m.ranges))
	}
	return m.cut(&m.ranges[r], 0)
}

// Release gives the memory of pages back to the device; their contents are lost. A page that has none is passed over,
// one that is still bound is ErrBound, and then nothing is released.
func (m *Memory) Release(pages []int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pages {
		if p < 0 || int(p) >= len(m.pages) {
			return fmt.Errorf("kvmem: page %d of %d", p, len(m.pages))
		}
		if n := m.pages[p].slots; n > 0 {
			return fmt.Errorf("%w: page %d, in %d ranges: unbind them first", ErrBound, p, n)
		}
	}
	for _, p := range pages {
		if err := m.drop(p); err != nil {
			return err
		}
	}
	return m.trim()
}

// trim gives back memory that nothing uses.
func (m *Memory) trim() error {
	for n := len(m.free); n > 0; n = len(m.free) {
		mem := m.free[n-1]
		m.free = m.free[:n-1]
		m.made--
		if err := mem.Close(); err != nil {
			return fmt.Errorf("kvmem: %w", err)
		}
	}
	return nil
}

// Address returns where page p is in the window. It has memory afterwards. The address is good until Release.
func (m *Memory) Address(p int32) (cuda.Ptr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p < 0 || int(p) >= len(m.pages) {
		return 0, fmt.Errorf("kvmem: page %d of %d", p, len(m.pages))
	}
	off := int64(p) * m.pageBytes
	if m.shown[p] {
		return m.window.Ptr() + cuda.Ptr(off), nil
	}
	pg := &m.pages[p]
	if pg.memory == nil {
		mem, err := m.take()
		if err != nil {
			return 0, fmt.Errorf("kvmem: page %d: %w", p, err)
		}
		pg.memory = mem
	}
	if err := m.window.Map(off, pg.memory); err != nil {
		return 0, errors.Join(fmt.Errorf("kvmem: page %d: %w", p, err), m.drop(p))
	}
	m.shown[p] = true
	return m.window.Ptr() + cuda.Ptr(off), nil
}

// Close gives everything back. No kernel may use it any more.
func (m *Memory) Close() error {
	m.mu.Lock()
	if m.work == nil {
		m.mu.Unlock()
		return nil
	}
	close(m.work)
	m.work = nil
	m.mu.Unlock()
	<-m.done
	return m.closeAll()
}

// closeAll closes addresses before the memory that is mapped to them.
func (m *Memory) closeAll() error {
	var errs []error
	var memory []*cuda.Physical
	for _, a := range m.ranges {
		for _, s := range a.slots {
			if s.page < 0 {
				memory = append(memory, s.memory)
			}
		}
		if a.space != nil {
			errs = append(errs, a.space.Close())
		}
	}
	if m.window != nil {
		errs = append(errs, m.window.Close())
	}
	for _, p := range m.pages {
		memory = append(memory, p.memory)
	}
	for _, mem := range slices.Concat(memory, m.free) {
		if mem != nil {
			errs = append(errs, mem.Close())
		}
	}
	m.ranges, m.pages, m.free, m.made = nil, nil, nil, 0
	return errors.Join(errs...)
}
