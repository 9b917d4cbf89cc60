package kvcache

import "math/bits"

// runs is the set of free pages, kept as maximal runs of consecutive page numbers.
//
// Both end pages of a free run carry its length, and pages that are not free carry 0, so a page that becomes
// free finds its free neighbours in O(1). Runs are listed by the power of two of their length. Every operation
// is O(1), or O(1) per page taken.
type runs struct {
	size       []int32   // [pages] length, at both ends of a free run; 0 for pages that are not free; stale inside a run
	next, prev []int32   // [pages] valid at the first page of a free run: its neighbours in the list
	head       [32]int32 // first run with 2^c ≤ length < 2^(c+1), or none
	classes    uint32    // bit c is set while head[c] is a run
	free       int       // pages in all runs
}

const none = int32(-1)

func newRuns(pages int) runs {
	r := runs{size: make([]int32, pages), next: make([]int32, pages), prev: make([]int32, pages)}
	for c := range r.head {
		r.head[c] = none
	}
	r.set(0, int32(pages))
	r.free = pages
	return r
}

func class(n int32) int { return bits.Len32(uint32(n)) - 1 }

// set makes [first, first+n) a free run and lists it. It does not count the pages.
func (r *runs) set(first, n int32) {
	r.size[first], r.size[first+n-1] = n, n
	c := class(n)
	h := r.head[c]
	r.next[first], r.prev[first] = h, none
	if h != none {
		r.prev[h] = first
	}
	r.head[c] = first
	r.classes |= 1 << c
}

// unlist takes the run that starts at first off its list.
func (r *runs) unlist(first int32) {
	next, prev := r.next[first], r.prev[first]
	if next != none {
		r.prev[next] = prev
	}
	if prev != none {
		r.next[prev] = next
		return
	}
	c := class(r.size[first])
	r.head[c] = next
	if next == none {
		r.classes &^= 1 << c
	}
}

// at returns the length of the free run that starts at page, 0 if the page is not free or does not exist. The
// page before it must not be free.
func (r *runs) at(page int32) int32 {
	if int(page) >= len(r.size) {
		return 0
	}
	return r.size[page]
}

// largest returns the first page of a run at least half as long as the longest one. Some page must be free.
func (r *runs) largest() int32 { return r.head[31-bits.LeadingZeros32(r.classes)] }

// take removes n pages from the run that starts at first, skipping the run's first skip pages.
func (r *runs) take(first, skip, n int32) {
	size := r.size[first]
	r.unlist(first)
	for p := first + skip; p < first+skip+n; p++ {
		r.size[p] = 0
	}
	if skip > 0 {
		r.set(first, skip)
	}
	if rest := size - skip - n; rest > 0 {
		r.set(first+skip+n, rest)
	}
	r.free -= int(n)
}

// put makes one page free and joins it with the free runs on both sides.
func (r *runs) put(page int32) {
	first, n := page, int32(1)
	if page > 0 {
		if left := r.size[page-1]; left > 0 {
			first -= left
			n += left
			r.unlist(first)
		}
	}
	if right := r.at(page + 1); right > 0 {
		r.unlist(page + 1)
		n += right
	}
	r.set(first, n)
	r.free++
}
