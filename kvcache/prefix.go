package kvcache

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
)

// node names one page's worth of content in its context: the tokens of the page and of all before it, and the
// salt. Serials are never used twice, so a node that was evicted is recognised as gone even if its page has
// new content. The zero node is the beginning of every sequence.
type node struct {
	serial uint64
	page   int32
}

// entry is what the prefix cache knows of one page. serial 0: nothing.
type entry struct {
	serial uint64
	parent uint64 // serial of the page before it in the sequence; 0: it is the first
	salt   string // of the first page only
	next   int32  // next page in the same bucket
}

// index finds pages by content. It is a hash table with chains threaded through the entries, because a Go map
// allocates when it is churned.
type index struct {
	pageSize int
	entries  []entry // [pages], nil until the first insert
	tokens   []int32 // [pages, pageSize]
	buckets  []int32 // first page of each chain; the length is a power of two
	seed     uint64
	serial   uint64 // last one given
}

func (x *index) init(pages, pageSize int) {
	x.pageSize = pageSize
	x.entries = make([]entry, pages)
	x.tokens = make([]int32, pages*pageSize)
	x.buckets = make([]int32, 1<<bits.Len(uint(pages-1)))
	for i := range x.buckets {
		x.buckets[i] = none
	}
	// The seed is random so that nobody can craft prompts that all fall into one bucket.
	x.seed = maphash.Bytes(maphash.MakeSeed(), nil)
}

func (x *index) known(page int32) bool { return x.entries != nil && x.entries[page].serial != 0 }

// live reports whether the content that nd names can still be found.
func (x *index) live(nd node) bool { return x.entries[nd.page].serial == nd.serial }

func (x *index) content(page int32) []int32 {
	return x.tokens[int(page)*x.pageSize:][:x.pageSize]
}

// bucket hashes with the folded 64×64 multiplication of wyhash, one per token.
func (x *index) bucket(parent uint64, salt string, tokens []int32) *int32 {
	h := x.seed ^ parent
	for i := range len(salt) {
		h = fold(h ^ uint64(salt[i]))
	}
	for _, t := range tokens {
		h = fold(h ^ uint64(uint32(t)))
	}
	return &x.buckets[h&uint64(len(x.buckets)-1)]
}

func fold(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xa0761d6478bd642f)
	return hi ^ lo
}

// find returns the node of the page that holds tokens after parent.
func (x *index) find(parent uint64, salt string, tokens []int32) (node, bool) {
	if x.entries == nil {
		return node{}, false
	}
	if parent != 0 {
		salt = "" // the parent's serial implies it
	}
	for page := *x.bucket(parent, salt, tokens); page != none; page = x.entries[page].next {
		e := &x.entries[page]
		if e.parent == parent && e.salt == salt && slices.Equal(x.content(page), tokens) {
			return node{e.serial, page}, true
		}
	}
	return node{}, false
}

// insert records that page holds tokens after parent. The caller has made sure that neither the page nor the
// content is known.
func (x *index) insert(page int32, parent uint64, salt string, tokens []int32) node {
	if parent != 0 {
		salt = ""
	}
	x.serial++
	b := x.bucket(parent, salt, tokens)
	x.entries[page] = entry{serial: x.serial, parent: parent, salt: salt, next: *b}
	copy(x.content(page), tokens)
	*b = page
	return node{x.serial, page}
}

// remove forgets the content of a page, if it is known.
func (x *index) remove(page int32) {
	if !x.known(page) {
		return
	}
	e := &x.entries[page]
	link := x.bucket(e.parent, e.salt, x.content(page))
	for *link != page {
		link = &x.entries[*link].next
	}
	*link = e.next
	*e = entry{}
}

// Lookup gives the empty sequence s the pages of the longest cached prefix of prompt, and returns the number
// of its tokens. It never finds the whole prompt: the last token is left to compute, because its logits are
// wanted. Stats counts what was found when s grows: a sequence that finds no room looks again.
func (p *Pool) Lookup(s *Seq, prompt []int32) int {
	p.own(s)
	if len(s.pages) > 0 {
		panic("kvcache: Lookup into a sequence that has tokens")
	}
	full := max(0, len(prompt)-1) / p.pageSize
	pages := s.pages
	parent := node{}
	for i := range full {
		nd, ok := p.index.find(parent.serial, s.salt, prompt[i*p.pageSize:][:p.pageSize])
		if !ok {
			break
		}
		if p.refs[nd.page]++; p.refs[nd.page] == 1 {
			p.lru.remove(nd.page)
		}
		pages = append(pages, nd.page)
		s.chain = append(s.chain, nd)
		parent = nd
	}
	p.setTable(s, pages)
	s.tokens = len(pages) * p.pageSize
	s.asked = full * p.pageSize
	return s.tokens
}

// Commit tells the prefix cache that the KV of all the given tokens is written: they are the tokens of s from
// its beginning, at most Len of them. Call it after the step that wrote them has completed, never before, or
// another sequence could read pages that are not there yet. Only full pages are recorded; a page whose content
// is known already stays private.
func (p *Pool) Commit(s *Seq, tokens []int32) {
	p.own(s)
	if len(tokens) > s.tokens {
		panic(fmt.Sprintf("kvcache: %d tokens committed, sequence has %d", len(tokens), s.tokens))
	}
	full := len(tokens) / p.pageSize
	if full <= len(s.chain) {
		return
	}
	if p.index.entries == nil {
		p.index.init(len(p.refs), p.pageSize)
	}
	p.relink(s)
	for i := len(s.chain); i < full; i++ {
		parent := node{}
		if i > 0 {
			parent = s.chain[i-1]
		}
		page := s.pages[i]
		part := tokens[i*p.pageSize:][:p.pageSize]
		nd, ok := p.index.find(parent.serial, s.salt, part)
		if !ok {
			p.index.remove(page) // it may be known after a predecessor that is gone
			nd = p.index.insert(page, parent.serial, s.salt, part)
		}
		if nd.page != page {
			s.foreign++
		}
		s.chain = append(s.chain, nd)
	}
}

// relink cuts the chain before the first node that is gone. That can only be a page of another sequence with
// the same content; what comes after it could never be found again, so Commit records it anew.
func (p *Pool) relink(s *Seq) {
	if s.foreign == 0 {
		return
	}
	for i, nd := range s.chain {
		if !p.index.live(nd) {
			p.cutChain(s, i)
			return
		}
	}
}

// cutChain keeps the first n nodes of the chain.
func (p *Pool) cutChain(s *Seq, n int) {
	for i := n; i < len(s.chain); i++ {
		if s.chain[i].page != s.pages[i] {
			s.foreign--
		}
	}
	s.chain = s.chain[:n]
}
