package kvmem

import (
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda"
)

// ahead asks for spares behind a range's last page. Called with the lock; where the queue is full the goroutine has
// that range, or enough else, to do.
func (m *Memory) ahead(r int32) {
	a := &m.ranges[r]
	if m.work == nil || a.bound == 0 || len(a.slots) >= m.want(a) {
		return
	}
	select {
	case m.work <- r:
	default:
	}
}

// want is the number of slots that a range should have mapped.
func (m *Memory) want(a *addresses) int { return min(a.bound+m.cfg.Ahead, m.cfg.RangePages) }

// mapAhead is the goroutine: one slot at a time, so that a Bind waits for no more than that.
func (m *Memory) mapAhead(work <-chan int32) {
	defer close(m.done)
	for r := range work {
		for m.mapSpare(r) {
		}
	}
}

// mapSpare maps one spare and reports whether another one is wanted. It takes only what is left over: memory that is
// kept or can be made, not another range's spare.
func (m *Memory) mapSpare(r int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.work == nil {
		return false
	}
	a := &m.ranges[r]
	if a.bound == 0 || len(a.slots) >= m.want(a) || !m.left() {
		return false
	}
	mem, err := m.spare()
	if err != nil {
		if !errors.Is(err, cuda.ErrOutOfMemory) { // being out of memory is not a fault as long as no page needs any
			m.fault = fmt.Errorf("kvmem: mapping ahead: %w", err)
		}
		return false
	}
	i := len(a.slots)
	if err := a.space.Map(int64(i)*m.pageBytes, mem); err != nil {
		m.free = append(m.free, mem)
		m.fault = fmt.Errorf("kvmem: mapping ahead: %w", err)
		return false
	}
	a.slots = append(a.slots, slot{mem, -1})
	m.stats.Spares++
	m.stats.Ahead++
	return len(a.slots) < m.want(a)
}

// left reports whether spare may be asked: memory is kept, or may be made.
func (m *Memory) left() bool { return len(m.free) > 0 || m.made < m.cfg.Pages }

// spare returns memory that no slot has: kept, or made.
func (m *Memory) spare() (*cuda.Physical, error) {
	if n := len(m.free); n > 0 {
		mem := m.free[n-1]
		m.free = m.free[:n-1]
		return mem, nil
	}
	mem, err := m.ctx.AllocPhysical(m.pageBytes)
	if err == nil {
		m.made++
	}
	return mem, err
}

// Settle waits until what is to be mapped ahead is, for tests and for measuring.
func (m *Memory) Settle() {
	for r := range m.ranges {
		for m.mapSpare(int32(r)) {
		}
	}
}
