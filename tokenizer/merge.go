package tokenizer

// Byte-pair merging (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016, §3.2): of all
// adjacent pairs that may merge, the one of lowest rank, and of equal ranks the leftmost, merges first.

const (
	// smallWord is the number of symbols up to which scanning all ranks beats a heap. Words of text have 5 to 10 bytes.
	smallWord = 48
	// maxWordBytes keeps positions in an int32; a longer word is cut there.
	maxWordBytes = 1 << 30
	// keepSyms is the scratch kept for the next call; larger buffers go back to the garbage collector.
	keepSyms = 1 << 14
)

// sym is a symbol: word[start:end] and its token, or None.
type sym struct {
	start, end int32
	id         int32
	// Of the pair with the next symbol: rank and merged token.
	rank   uint32
	merged int32
}

// link chains the symbols left over; next is 0 at the end, prev -1 at the start.
type link struct{ prev, next int32 }

// candidate is a pair that may merge, named by its left symbol and by where its right one ends: symbols only grow, so
// a pair that no longer ends there is out of date.
type candidate struct {
	rank     uint32
	at, end  int32
	mergedID int32
}

type scratch struct {
	syms  []sym
	links []link
	heap  []candidate
}

func (sc *scratch) trim() {
	if cap(sc.syms) > keepSyms {
		*sc = scratch{}
	}
}

// pair returns the rank and result of merging a and b, neighbours in word.
func (t *Tokenizer) pair(word string, a, b *sym) (rank uint32, id int32) {
	if !t.byScore {
		return t.pairs.get(a.id, b.id)
	}
	if id = t.words.get(word[a.start:b.end]); id < 0 {
		return noRank, None
	}
	return t.scoreRank[id], id
}

// mergeSmall merges by looking for the lowest rank anew each time: O(n²) on few symbols.
func (t *Tokenizer) mergeSmall(word string, s []sym) []sym {
	if len(s) == 0 {
		return s
	}
	for k := range len(s) - 1 {
		s[k].rank, s[k].merged = t.pair(word, &s[k], &s[k+1])
	}
	s[len(s)-1].rank = noRank
	for {
		at, best := -1, noRank
		for k := range s {
			if s[k].rank < best {
				at, best = k, s[k].rank
			}
		}
		if at < 0 {
			return s
		}
		s[at].end, s[at].id, s[at].rank = s[at+1].end, s[at].merged, noRank
		copy(s[at+1:], s[at+2:])
		s = s[:len(s)-1]
		if at+1 < len(s) {
			s[at].rank, s[at].merged = t.pair(word, &s[at], &s[at+1])
		}
		if at > 0 {
			s[at-1].rank, s[at-1].merged = t.pair(word, &s[at-1], &s[at])
		}
	}
}

// mergeLarge merges with a heap of candidates over a linked list: O(n log n).
func (t *Tokenizer) mergeLarge(word string, s []sym, sc *scratch) []sym {
	links := sc.links[:0]
	h := sc.heap[:0]
	push := func(a, b int32) {
		if rank, id := t.pair(word, &s[a], &s[b]); rank != noRank {
			h = heapPush(h, candidate{rank, a, s[b].end, id})
		}
	}
	for k := range int32(len(s)) {
		links = append(links, link{k - 1, k + 1})
	}
	links[len(s)-1].next = 0
	for k := range int32(len(s) - 1) {
		push(k, k+1)
	}
	for len(h) > 0 {
		var c candidate
		c, h = heapPop(h)
		a := &s[c.at]
		next := links[c.at].next
		// A symbol that was merged into its left neighbour has end 0.
		if a.end == 0 || next == 0 || s[next].end != c.end {
			continue
		}
		a.id, a.end = c.mergedID, c.end
		s[next].end = 0
		after := links[next].next
		links[c.at].next = after
		if after != 0 {
			links[after].prev = c.at
			push(c.at, after)
		}
		if prev := links[c.at].prev; prev >= 0 {
			push(prev, c.at)
		}
	}
	sc.links, sc.heap = links, h
	out := s[:0]
	for k := range s {
		if s[k].end != 0 {
			out = append(out, s[k])
		}
	}
	return out
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

func heapPush(h []candidate, c candidate) []candidate {
	h = append(h, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = c
	return h
}

func heapPop(h []candidate) (candidate, []candidate) {
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	if len(h) == 0 {
		return top, h
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(last) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = last
	return top, h
}
