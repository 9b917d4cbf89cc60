package kvcache

import (
	"slices"
	"testing"
)

// A sequence of distinct tokens starting at first.
func count(first, n int) []int32 {
	toks := make([]int32, n)
	for i := range toks {
		toks[i] = int32(first + i)
	}
	return toks
}

func (m *model) expect(what string, got, want int) {
	m.t.Helper()
	m.check()
	if got != want {
		m.t.Fatalf("%s: %d, want %d", what, got, want)
	}
}

// TestForkTimeline: two branches of one past share its pages, and the first to write copies the last page.
func TestForkTimeline(t *testing.T) {
	m := newModel(t, 16, 4)
	m.start("", count(0, 10)) // 3 pages, the last half full
	m.fork(m.seqs[0])
	m.expect("used after fork", m.p.Stats().Used, 3)
	m.grow(m.seqs[1], count(100, 1)) // copies
	m.expect("used after the fork wrote", m.p.Stats().Used, 4)
	m.grow(m.seqs[0], count(200, 1)) // alone again: writes in place
	m.expect("used after the original wrote", m.p.Stats().Used, 4)
	m.expect("copies", int(m.p.Stats().Copies), 1)
	m.truncate(m.seqs[0], 8)
	m.grow(m.seqs[0], count(300, 1)) // starts a page, the second page is still shared
	m.expect("copies", int(m.p.Stats().Copies), 1)
	m.truncate(m.seqs[0], 7)
	m.grow(m.seqs[0], count(400, 1)) // now it writes into a shared page
	m.expect("copies", int(m.p.Stats().Copies), 2)
	m.drop(0)
	m.expect("used after free", m.p.Stats().Used, 3)
	m.finish()
}

// TestPreemptTimeline: a sequence that was preempted finds its own pages again, unless the pool needed them.
func TestPreemptTimeline(t *testing.T) {
	m := newModel(t, 8, 4)
	prompt := count(0, 16)
	m.start("", prompt)
	a := m.seqs[0]
	m.commit(a, 16)
	m.truncate(a, 0)
	m.expect("cached", m.p.Stats().Cached, 4)
	m.lookup(a, prompt)
	m.expect("found; the last page must be computed", a.s.Len(), 12)
	m.grow(a, prompt[12:])
	m.commit(a, 16)
	m.truncate(a, 0)

	m.start("", count(100, 24)) // 6 of 8 pages: takes two of the four cached
	m.expect("evictions", int(m.p.Stats().Evictions), 2)
	m.lookup(a, append(prompt, 7))
	m.expect("found after the end of the prefix was evicted", a.s.Len(), 8)
	m.finish()
}

// TestShareTimeline: a page is visible to others from its Commit on, not before, and only under its salt.
func TestShareTimeline(t *testing.T) {
	m := newModel(t, 32, 4)
	prompt := count(0, 9)
	m.start("", prompt)
	m.start("", prompt)
	m.expect("used: nothing is shared before Commit", m.p.Stats().Used, 6)
	m.commit(m.seqs[0], 7)
	m.start("", prompt)
	m.expect("used: one full page is committed", m.p.Stats().Used, 8)
	m.commit(m.seqs[0], 9)
	m.start("", prompt)
	m.expect("used: two", m.p.Stats().Used, 9)
	m.start("tenant", prompt)
	m.expect("used: nothing under another salt", m.p.Stats().Used, 12)
	st := m.p.Stats()
	m.expect("hits", int(st.HitTokens), 4+8)
	m.expect("misses", int(st.MissTokens), 8+8+4+8)
	m.finish()
}

// TestDuplicateTimeline: two sequences compute the same prompt at once, and the one whose pages are known ends
// first. When its pages are evicted, the other one's take their place.
func TestDuplicateTimeline(t *testing.T) {
	m := newModel(t, 8, 2)
	prompt := count(0, 4)
	m.start("", prompt)
	m.start("", prompt)
	b := m.seqs[1]
	m.commit(m.seqs[0], 4)
	m.commit(b, 4)
	m.expect("foreign nodes", b.s.foreign, 2)
	m.drop(0)
	m.start("", count(50, 12)) // 6 pages: evicts both
	m.drop(1)
	m.expect("evictions", int(m.p.Stats().Evictions), 2)
	m.grow(b, count(4, 3))
	m.commit(b, 7)
	m.expect("foreign nodes", b.s.foreign, 0)
	m.start("", count(0, 7))
	m.expect("shared pages", len(m.seqs[1].s.Table()), 4)
	if !slices.Equal(m.seqs[1].s.Table()[:3], b.s.Table()[:3]) {
		t.Fatalf("table %v, want the pages of %v", m.seqs[1].s.Table(), b.s.Table())
	}
	m.finish()
}

// TestRetainOutlivesFree: a pinned page keeps its content.
func TestRetainOutlivesFree(t *testing.T) {
	m := newModel(t, 4, 2)
	m.start("", count(0, 4))
	page := m.seqs[0].s.Table()[1]
	m.p.Retain(page)
	m.pins = append(m.pins, page)
	m.drop(0)
	m.expect("used", m.p.Stats().Used, 1)
	m.start("", count(9, 6))
	m.expect("available", m.p.Available(), 0)
	m.finish()
}
