package kvcache

import "fmt"

// Seq is one sequence's part of a pool: its table and its length. Only the pool's methods change it.
type Seq struct {
	pool    *Pool
	salt    string
	pages   []int32 // the table
	tokens  int     // length, including tokens that a step is about to write
	asked   int     // tokens of the full pages that Lookup looked for, until Grow counts them
	chain   []node  // what the prefix cache calls the leading full pages that were looked up or committed
	foreign int     // entries of chain that name another page than pages does: same content, written twice
}

// Copy asks the backend to copy the first Tokens tokens of page Src to page Dst. Copies must be carried out
// in the order in which the pool reported them, and before any later step writes: the pool may already have
// given Src to another sequence. The zero Copy asks for nothing.
type Copy struct {
	Src, Dst int32
	Tokens   int
}

// NewSeq returns an empty sequence. Sequences share prefixes only with sequences of the same salt.
func (p *Pool) NewSeq(salt string) *Seq { return &Seq{pool: p, salt: salt} }

// Len is the number of tokens that the sequence has room for and counts as its own.
func (s *Seq) Len() int { return s.tokens }

// Table lists the sequence's pages in token order. It is valid until the next call that changes the sequence
// and must not be written to.
func (s *Seq) Table() []int32 { return s.pages }

// Slot returns where token j is kept: page·PageSize + offset.
func (s *Seq) Slot(j int) int64 {
	size := s.pool.pageSize
	return int64(s.pages[j/size])*int64(size) + int64(j%size)
}

// Runs is the number of runs of consecutive pages in the table, 0 for an empty one.
func (s *Seq) Runs() int {
	n := 0
	for i, page := range s.pages {
		if i == 0 || page != s.pages[i-1]+1 {
			n++
		}
	}
	return n
}

// Reserve makes the table's own memory large enough for a sequence of the given length, so that no Grow up to
// there allocates. It takes no pages.
func (s *Seq) Reserve(tokens int) {
	if n := s.pool.PagesFor(tokens); n > cap(s.pages) {
		s.pages = append(make([]int32, 0, n), s.pages...)
		s.chain = append(make([]node, 0, n), s.chain...)
	}
}

// Need is the number of pages that Grow(s, tokens) would take.
func (p *Pool) Need(s *Seq, tokens int) int {
	n := p.PagesFor(s.tokens+tokens) - len(s.pages)
	if tokens > 0 && p.sharedTail(s) {
		n++
	}
	return n
}

// sharedTail reports whether the next token falls into a page that others read too.
func (p *Pool) sharedTail(s *Seq) bool {
	return s.tokens%p.pageSize != 0 && p.refs[s.pages[len(s.pages)-1]] > 1
}

// Grow makes room for more tokens at the end of s, or returns ErrFull and changes nothing. If the next token
// falls into a page that is shared since a Fork, s gets a page of its own and the Copy says what to copy.
func (p *Pool) Grow(s *Seq, tokens int) (Copy, error) {
	p.own(s)
	if tokens < 0 {
		panic(fmt.Sprintf("kvcache: Grow by %d tokens", tokens))
	}
	if tokens == 0 {
		return Copy{}, nil
	}
	if tokens > len(p.refs)*p.pageSize {
		return Copy{}, ErrFull // before the sum below can overflow
	}
	need := p.Need(s, tokens)
	if need > p.Available() {
		return Copy{}, ErrFull
	}
	if s.asked > 0 {
		p.stats.HitTokens += uint64(s.tokens)
		p.stats.MissTokens += uint64(s.asked - s.tokens)
		s.asked = 0
	}
	var cp Copy
	part := s.tokens % p.pageSize
	switch {
	case p.sharedTail(s):
		k := len(s.pages) - 1
		cp = Copy{Src: s.pages[k], Tokens: part}
		p.setTable(s, s.pages[:k])
		p.refs[cp.Src]-- // it has other references
		p.extend(s, need)
		cp.Dst = s.pages[k]
		p.stats.Copies++
	case part > 0:
		// Truncate may have left a page whose content Lookup still offers. It is about to change.
		p.index.remove(s.pages[len(s.pages)-1])
		fallthrough
	default:
		p.extend(s, need)
	}
	s.tokens += tokens
	return cp, nil
}

// extend appends n pages to the table.
func (p *Pool) extend(s *Seq, n int) {
	if n > 0 {
		last := lastPage(s.pages)
		p.setTable(s, p.alloc(s.pages, last, n))
	}
}

// setTable replaces the table and tells the pool which page the sequence now ends with.
func (p *Pool) setTable(s *Seq, pages []int32) {
	if last := lastPage(s.pages); last != none {
		p.tails[last]--
	}
	if last := lastPage(pages); last != none {
		p.tails[last]++
	}
	s.pages = pages
}

func lastPage(pages []int32) int32 {
	if len(pages) == 0 {
		return none
	}
	return pages[len(pages)-1]
}

// Fork returns a new sequence with the same tokens. All pages are shared; a partly filled last page is copied
// when one of the two first grows into it.
func (p *Pool) Fork(s *Seq) *Seq {
	p.own(s)
	t := &Seq{pool: p, salt: s.salt, tokens: s.tokens, foreign: s.foreign}
	t.chain = append(t.chain, s.chain...)
	for _, page := range s.pages {
		p.refs[page]++
	}
	p.setTable(t, append([]int32(nil), s.pages...))
	return t
}

// Truncate drops tokens from the end, so that s has the given length, and releases the pages that only they
// needed.
func (p *Pool) Truncate(s *Seq, tokens int) {
	p.own(s)
	if tokens < 0 || tokens > s.tokens {
		panic(fmt.Sprintf("kvcache: truncate to %d tokens, have %d", tokens, s.tokens))
	}
	if full := tokens / p.pageSize; full < len(s.chain) {
		p.cutChain(s, full)
	}
	old := s.pages
	keep := p.PagesFor(tokens)
	p.setTable(s, old[:keep])
	// Backwards: pages at the end of a prompt become the least recently used, so that the cache gives up
	// the ends of prefixes before their beginnings, without which the ends can't be found.
	for i := len(old) - 1; i >= keep; i-- {
		p.Release(old[i])
	}
	s.tokens = tokens
}

// Free drops all tokens. The sequence is empty afterwards and can be used again, with the same salt.
func (p *Pool) Free(s *Seq) {
	p.Truncate(s, 0)
	s.asked = 0
}

func (p *Pool) own(s *Seq) {
	if s.pool != p {
		panic("kvcache: sequence of another pool")
	}
}
