package kvcache

// lru lists the cached pages from the least to the most recently used one.
type lru struct {
	next, prev  []int32 // [pages]
	first, last int32   // or none
	n           int
}

func newLRU(pages int) lru {
	return lru{next: make([]int32, pages), prev: make([]int32, pages), first: none, last: none}
}

// push makes page the most recently used one.
func (l *lru) push(page int32) {
	l.next[page], l.prev[page] = none, l.last
	if l.last != none {
		l.next[l.last] = page
	} else {
		l.first = page
	}
	l.last = page
	l.n++
}

func (l *lru) remove(page int32) {
	next, prev := l.next[page], l.prev[page]
	if prev != none {
		l.next[prev] = next
	} else {
		l.first = next
	}
	if next != none {
		l.prev[next] = prev
	} else {
		l.last = prev
	}
	l.n--
}

// oldest returns the least recently used page. There must be one.
func (l *lru) oldest() int32 { return l.first }
