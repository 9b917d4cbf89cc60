package kvcache

import (
	"errors"
	"fmt"
	"math"
)

// ErrFull says that the pool has too few free and cached pages. Nothing was changed: free or truncate a
// sequence and try again.
var ErrFull = errors.New("kvcache: no free page")

// goodRun is the run length in pages below which a sequence that starts a new run is worth evicting cached
// pages for, and growthShare the part of the pool (1/growthShare) that may be kept free that way. Without it a
// pool full of cached pages hands out one evicted page at a time and no two of them adjacent.
const (
	goodRun     = 64
	evictBatch  = 2 * goodRun
	growthShare = 6
)

// Pool hands out the pages of one KV memory. It is not safe for concurrent use: the engine's step goroutine
// owns it.
type Pool struct {
	pageSize int
	refs     []int32 // [pages] references by tables and by Retain; 0 for free and cached pages
	tails    []int32 // [pages] sequences whose last page this is: they want the page after it
	runs     runs
	lru      lru
	index    index // built by the first Commit
	stats    Stats // the counters; the gauges are filled in by Stats
}

// Stats describes a pool: gauges in pages, counters since NewPool.
type Stats struct {
	Pages, Used, Cached, Free int

	HitTokens  uint64 // prompt tokens that Lookup found
	MissTokens uint64 // prompt tokens in full pages that Lookup did not find
	Evictions  uint64 // cached pages given up for new content
	Copies     uint64 // pages copied on write
}

// NewPool makes a pool of free pages of pageSize tokens.
func NewPool(pages, pageSize int) (*Pool, error) {
	if pages < 1 || pages > math.MaxInt32-1 {
		return nil, fmt.Errorf("kvcache: %d pages: want 1 to %d", pages, math.MaxInt32-1)
	}
	if pageSize < 1 || pageSize > 1<<20 {
		return nil, fmt.Errorf("kvcache: page size of %d tokens: want 1 to %d", pageSize, 1<<20)
	}
	return &Pool{
		pageSize: pageSize,
		refs:     make([]int32, pages),
		tails:    make([]int32, pages),
		runs:     newRuns(pages),
		lru:      newLRU(pages),
	}, nil
}

// PageSize is the number of tokens of a page.
func (p *Pool) PageSize() int { return p.pageSize }

// Pages is the number of pages, in whatever state.
func (p *Pool) Pages() int { return len(p.refs) }

// Available is the number of pages that Grow can hand out: free and cached ones.
func (p *Pool) Available() int { return p.runs.free + p.lru.n }

// PagesFor is the number of pages that hold the given number of tokens.
func (p *Pool) PagesFor(tokens int) int {
	n := tokens / p.pageSize
	if tokens%p.pageSize != 0 {
		n++
	}
	return n
}

// Stats returns the pool's gauges and counters.
func (p *Pool) Stats() Stats {
	s := p.stats
	s.Pages, s.Cached, s.Free = len(p.refs), p.lru.n, p.runs.free
	s.Used = s.Pages - s.Cached - s.Free
	return s
}

// Retain adds a reference to a used page, so that it outlives the tables it is in. It panics if the page is
// free or cached.
func (p *Pool) Retain(page int32) {
	if p.refs[page] == 0 {
		panic(fmt.Sprintf("kvcache: page %d retained while nobody uses it", page))
	}
	p.refs[page]++
}

// Release drops a reference. The last one makes the page cached if the prefix cache knows it, else free. It
// panics if the page has none.
func (p *Pool) Release(page int32) {
	if p.refs[page] == 0 {
		panic(fmt.Sprintf("kvcache: page %d released more often than retained", page))
	}
	if p.refs[page]--; p.refs[page] > 0 {
		return
	}
	if p.index.known(page) {
		p.lru.push(page)
	} else {
		p.runs.put(page)
	}
}

// EachFree calls f with every run of free pages (first page and count), so that a backend can give their
// memory back to the system.
func (p *Pool) EachFree(f func(page int32, n int)) {
	for _, h := range p.runs.head {
		for ; h != none; h = p.runs.next[h] {
			f(h, int(p.runs.size[h]))
		}
	}
}

// alloc appends n pages to dst, each the one after its predecessor where possible; after is the page before
// the first, or none. The caller has checked Available.
func (p *Pool) alloc(dst []int32, after int32, n int) []int32 {
	for p.runs.free < n {
		p.evict()
	}
	for n > 0 {
		first, got := after+1, int32(0)
		if after != none {
			got = min(p.runs.at(first), int32(n))
		}
		if got > 0 {
			p.runs.take(first, 0, got)
		} else {
			first, got = p.startRun(int32(n))
		}
		for page := first; page < first+got; page++ {
			p.refs[page] = 1
			dst = append(dst, page)
		}
		after = first + got - 1
		n -= int(got)
	}
	return dst
}

// startRun takes up to n consecutive pages from a large free run. If the run follows the last page of another
// sequence, that one keeps half of it to grow into, as far as n leaves it.
func (p *Pool) startRun(n int32) (first, got int32) {
	for i := 0; i < evictBatch && p.lru.n > 0 && p.runs.free < len(p.refs)/growthShare && p.runs.classes < goodRun; i++ {
		p.evict() // classes < goodRun: no run is as long as goodRun, a power of two
	}
	first = p.runs.largest()
	size := p.runs.size[first]
	skip := int32(0)
	if first > 0 && p.tails[first-1] > 0 {
		skip = max(0, min(size/2, size-n))
	}
	got = min(n, size-skip)
	p.runs.take(first, skip, got)
	return first + skip, got
}

// evict makes the least recently used cached page free.
func (p *Pool) evict() {
	page := p.lru.oldest()
	p.lru.remove(page)
	p.index.remove(page)
	p.runs.put(page)
	p.stats.Evictions++
}
