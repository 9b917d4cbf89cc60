package kvcache

import (
	"errors"
	"slices"
	"testing"
)

// model drives a pool with operations and knows independently what every page must contain. A token's KV
// depends on all tokens before it, so its stand-in is a hash of the whole prefix; the salt is hashed too, so
// that a page shared between tenants shows as wrong content.
type model struct {
	t       *testing.T
	p       *Pool
	seqs    []*shadow
	pins    []int32
	content [][]uint64 // [pages][pageSize] what the backend's memory would hold

	committed map[uint64]bool // prefix hashes of full pages that were committed
	lost      bool            // something may have left the cache since: Lookup need not find all of committed
}

type shadow struct {
	s       *Seq
	salt    string
	tokens  []int32
	written int // tokens committed at most
}

func newModel(t *testing.T, pages, pageSize int) *model {
	p, err := NewPool(pages, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, p: p, committed: map[uint64]bool{}, content: make([][]uint64, pages)}
	for i := range m.content {
		m.content[i] = make([]uint64, pageSize)
	}
	return m
}

// prefixHash stands for the KV of the last of tokens.
func prefixHash(salt string, tokens []int32) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, over whole tokens
	for _, c := range salt {
		h = (h ^ uint64(c)) * 1099511628211
	}
	for _, tok := range tokens {
		h = (h ^ uint64(tok+1)) * 1099511628211
	}
	return h ^ h>>32
}

// used returns the references that tables and pins account for.
func (m *model) used() map[int32]int {
	refs := map[int32]int{}
	for _, q := range m.seqs {
		for _, page := range q.s.Table() {
			refs[page]++
		}
	}
	for _, page := range m.pins {
		refs[page]++
	}
	return refs
}

func (m *model) start(salt string, prompt []int32) {
	q := &shadow{s: m.p.NewSeq(salt), salt: salt}
	m.seqs = append(m.seqs, q)
	m.lookup(q, prompt)
	m.grow(q, prompt[len(q.tokens):])
}

func (m *model) lookup(q *shadow, prompt []int32) {
	size := m.p.PageSize()
	n := m.p.Lookup(q.s, prompt)
	if n%size != 0 || n > 0 && n >= len(prompt) || n != q.s.Len() {
		m.t.Fatalf("Lookup of %d tokens found %d, sequence has %d", len(prompt), n, q.s.Len())
	}
	want := 0
	for want+size < len(prompt) && m.committed[prefixHash(q.salt, prompt[:want+size])] {
		want += size
	}
	if n > want || n < want && !m.lost {
		m.t.Fatalf("Lookup found %d tokens, %d were committed (lost: %v)", n, want, m.lost)
	}
	q.tokens = slices.Clone(prompt[:n])
	q.written = n
}

// grow adds tokens and runs the step that writes them, if the pool has room.
func (m *model) grow(q *shadow, more []int32) {
	size := m.p.PageSize()
	refs := m.used()
	old := slices.Clone(q.s.Table())
	need := (len(q.tokens)+len(more)+size-1)/size - len(old)
	part := len(q.tokens) % size
	cow := len(more) > 0 && part > 0 && refs[old[len(old)-1]] > 1
	if cow {
		need++
	}
	if got := m.p.Need(q.s, len(more)); got != need {
		m.t.Fatalf("Need is %d pages, want %d", got, need)
	}
	evictions := m.p.Stats().Evictions
	cp, err := m.p.Grow(q.s, len(more))
	if m.p.Stats().Evictions != evictions {
		m.lost = true
	}
	if full := need > m.p.Pages()-len(refs); full != errors.Is(err, ErrFull) || !full && err != nil {
		m.t.Fatalf("Grow by %d: %d pages needed, %d of %d used: %v", len(more), need, len(refs), m.p.Pages(), err)
	}
	if err != nil {
		if !slices.Equal(q.s.Table(), old) || q.s.Len() != len(q.tokens) || cp != (Copy{}) {
			m.t.Fatal("Grow changed the sequence and returned ErrFull")
		}
		return
	}
	if cow != (cp.Tokens > 0) || cow && (cp.Tokens != part || cp.Src != old[len(old)-1] || cp.Dst != q.s.Table()[len(old)-1]) {
		m.t.Fatalf("copy %+v, shared tail %v, %d tokens in it, table %v", cp, cow, part, old)
	}
	copy(m.content[cp.Dst][:cp.Tokens], m.content[cp.Src])
	refs = m.used()
	for j, tok := range more {
		q.tokens = append(q.tokens, tok)
		slot := q.s.Slot(len(q.tokens) - 1)
		page := int32(slot / int64(size))
		if j == 0 && part > 0 && !cow {
			m.lost = true // the page may have been committed before a Truncate
		}
		if refs[page] != 1 || m.p.index.known(page) {
			m.t.Fatalf("a step writes to page %d: %d references, cached content %v", page, refs[page], m.p.index.known(page))
		}
		m.content[page][slot%int64(size)] = prefixHash(q.salt, q.tokens)
	}
}

func (m *model) commit(q *shadow, n int) {
	m.p.Commit(q.s, q.tokens[:n])
	for size := m.p.PageSize(); q.written+size <= n; q.written += size {
		m.committed[prefixHash(q.salt, q.tokens[:q.written+size])] = true
	}
}

func (m *model) truncate(q *shadow, n int) {
	m.p.Truncate(q.s, n)
	q.tokens = q.tokens[:n]
	q.written = min(q.written, n/m.p.PageSize()*m.p.PageSize())
}

func (m *model) fork(q *shadow) {
	m.seqs = append(m.seqs, &shadow{m.p.Fork(q.s), q.salt, slices.Clone(q.tokens), q.written})
}

func (m *model) drop(i int) {
	m.p.Free(m.seqs[i].s)
	m.seqs = slices.Delete(m.seqs, i, i+1)
}

// check compares the whole pool with the model.
func (m *model) check() {
	m.t.Helper()
	p := m.p
	refs := m.used()
	for page := range int32(p.Pages()) {
		if int(p.refs[page]) != refs[page] {
			m.t.Fatalf("page %d has %d references, tables and pins have %d", page, p.refs[page], refs[page])
		}
	}
	state := make([]string, p.Pages())
	mark := func(page int32, s string) {
		if state[page] != "" {
			m.t.Fatalf("page %d is %s and %s", page, state[page], s)
		}
		state[page] = s
	}
	for page := range refs {
		mark(page, "used")
	}
	cached := 0
	for page := p.lru.first; page != none; page = p.lru.next[page] {
		mark(page, "cached")
		cached++
		if !p.index.known(page) {
			m.t.Fatalf("page %d is cached without content", page)
		}
	}
	free := 0
	p.EachFree(func(page int32, n int) {
		for i := range n {
			mark(page+int32(i), "free")
			if p.index.known(page + int32(i)) {
				m.t.Fatalf("free page %d is in the prefix index", page+int32(i))
			}
		}
		free += n
	})
	st := p.Stats()
	if st.Used != len(refs) || st.Cached != cached || st.Free != free || st.Used+st.Cached+st.Free != p.Pages() {
		m.t.Fatalf("stats %+v, counted %d used %d cached %d free", st, len(refs), cached, free)
	}
	if p.Available() != cached+free {
		m.t.Fatalf("%d available, %d cached, %d free", p.Available(), cached, free)
	}
	m.checkRuns(state)
	m.checkSeqs()
}

// checkRuns: free runs are maximal, carry their length at both ends and are listed by class.
func (m *model) checkRuns(state []string) {
	r := &m.p.runs
	for c, h := range r.head {
		if (h != none) != (r.classes>>c&1 == 1) {
			m.t.Fatalf("class %d: head %d, classes %b", c, h, r.classes)
		}
		for prev := none; h != none; prev, h = h, r.next[h] {
			n := r.size[h]
			last := h + n - 1
			if class(n) != c || r.size[last] != n || r.prev[h] != prev {
				m.t.Fatalf("run at %d: length %d, %d at its end, class %d, prev %d", h, n, r.size[last], c, r.prev[h])
			}
			if h > 0 && state[h-1] == "free" || int(last)+1 < len(state) && state[last+1] == "free" {
				m.t.Fatalf("run [%d, %d] is not maximal", h, last)
			}
		}
	}
	for page, s := range state {
		if s != "free" && r.size[page] != 0 {
			m.t.Fatalf("%s page %d carries the run length %d", s, page, r.size[page])
		}
	}
}

func (m *model) checkSeqs() {
	tails := make([]int32, m.p.Pages())
	size := m.p.PageSize()
	for i, q := range m.seqs {
		table := q.s.Table()
		if q.s.Len() != len(q.tokens) || len(table) != m.p.PagesFor(len(q.tokens)) {
			m.t.Fatalf("sequence %d: %d tokens, %d pages, want %d tokens", i, q.s.Len(), len(table), len(q.tokens))
		}
		for j := range q.tokens {
			if got := m.content[table[j/size]][j%size]; got != prefixHash(q.salt, q.tokens[:j+1]) {
				m.t.Fatalf("sequence %d reads foreign content at token %d, page %d", i, j, table[j/size])
			}
		}
		if len(table) > 0 {
			tails[table[len(table)-1]]++
		}
		foreign := 0
		for k, nd := range q.s.chain {
			if nd.page != table[k] {
				foreign++
			}
		}
		if foreign != q.s.foreign {
			m.t.Fatalf("sequence %d: %d foreign nodes, counted %d", i, q.s.foreign, foreign)
		}
	}
	if !slices.Equal(tails, m.p.tails) {
		m.t.Fatalf("tails %v, want %v", m.p.tails, tails)
	}
}

// run interprets ops: the first byte chooses the shape, then each operation takes three bytes.
func (m *model) run(ops []byte) {
	for ; len(ops) >= 3; ops = ops[3:] {
		op, arg, val := ops[0]%10, int(ops[1]), int(ops[2])
		if len(m.seqs) == 0 || op == 0 && len(m.seqs) < 8 {
			m.start([]string{"", "b"}[arg&1], bitTokens(arg>>1&31, val))
			m.check()
			continue
		}
		i := arg % len(m.seqs)
		q := m.seqs[i]
		switch op {
		case 1, 2:
			m.grow(q, bitTokens(arg>>4, val))
		case 3:
			if len(m.seqs) < 8 {
				m.fork(q)
			}
		case 4:
			m.truncate(q, val%(len(q.tokens)+1))
		case 5:
			m.drop(i)
		case 6, 7:
			m.commit(q, len(q.tokens)-min(len(q.tokens), val%3))
		case 8: // preempt and resume
			tokens := slices.Clone(q.tokens)
			m.truncate(q, 0)
			m.lookup(q, tokens)
		case 9:
			if table := q.s.Table(); len(table) > 0 && val&1 == 0 {
				m.p.Retain(table[val%len(table)])
				m.pins = append(m.pins, table[val%len(table)])
			} else if len(m.pins) > 0 {
				m.p.Release(m.pins[0])
				m.pins = m.pins[1:]
			}
		}
		m.check()
	}
}

// bitTokens makes n tokens of two values, so that prefixes meet often.
func bitTokens(n, bits int) []int32 {
	toks := make([]int32, n)
	for i := range toks {
		toks[i] = int32(bits >> (i % 8) & 1)
	}
	return toks
}

func (m *model) finish() {
	for len(m.seqs) > 0 {
		m.drop(0)
		m.check()
	}
	for _, page := range m.pins {
		m.p.Release(page)
	}
	m.pins = nil
	m.check()
	if m.p.Available() != m.p.Pages() {
		m.t.Fatalf("%d of %d pages available after all is freed", m.p.Available(), m.p.Pages())
	}
}

func FuzzPool(f *testing.F) {
	f.Add([]byte{0x00, 0, 8, 0, 1, 40, 1, 3, 0, 0, 6, 0, 0, 5, 0, 0, 0, 20, 0, 1, 50, 3})
	f.Add([]byte{0x15, 0, 30, 0, 6, 0, 0, 4, 0, 2, 1, 50, 7, 6, 0, 0, 8, 0, 0, 9, 0, 0, 5, 0, 0})
	f.Add([]byte{0x2f, 0, 62, 0, 3, 0, 0, 3, 0, 0, 1, 240, 0, 1, 241, 5, 1, 242, 9, 4, 1, 1, 6, 2, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) == 0 || len(ops) > 600 {
			return
		}
		m := newModel(t, 1+int(ops[0]>>3), 1+int(ops[0]&3))
		if ops[0]&4 != 0 {
			m.p.index.init(m.p.Pages(), m.p.PageSize())
			m.p.index.buckets = m.p.index.buckets[:1] // every content collides
		}
		m.run(ops[1:])
		m.finish()
	})
}
