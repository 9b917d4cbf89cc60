//go:build unix && !linux

package mem

const noReserve = 0

func adviseHuge([]byte) {}

// discard does nothing: what MADV_DONTNEED means differs between these systems.
func (r *Region) discard(int, int) error { return nil }
