package kvcache

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestModel runs the fuzz target's interpreter on fixed random operations, so that plain test runs cover it.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 450)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		m := newModel(t, 1+rng.IntN(40), 1+rng.IntN(5))
		if seed%3 == 0 {
			m.p.index.init(m.p.Pages(), m.p.PageSize())
			m.p.index.buckets = m.p.index.buckets[:1] // every content collides
		}
		m.run(ops)
		m.finish()
	}
}

func TestNewPoolRejects(t *testing.T) {
	for _, c := range [][2]int{{0, 16}, {-1, 16}, {1 << 31, 16}, {8, 0}, {8, -3}, {8, 1<<20 + 1}} {
		if _, err := NewPool(c[0], c[1]); err == nil {
			t.Errorf("NewPool(%d, %d) accepted", c[0], c[1])
		}
	}
}

func newPool(t testing.TB, pages, pageSize int) *Pool {
	t.Helper()
	p, err := NewPool(pages, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustGrow(t testing.TB, p *Pool, s *Seq, tokens int) {
	t.Helper()
	if _, err := p.Grow(s, tokens); err != nil {
		t.Fatal(err)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}

func TestCallersBugsPanic(t *testing.T) {
	p, other := newPool(t, 4, 2), newPool(t, 4, 2)
	s := p.NewSeq("")
	mustGrow(t, p, s, 3)
	page := s.Table()[0]
	mustPanic(t, "Lookup into a used sequence", func() { p.Lookup(s, []int32{1, 2, 3}) })
	mustPanic(t, "Truncate beyond the end", func() { p.Truncate(s, 4) })
	mustPanic(t, "Commit beyond the end", func() { p.Commit(s, make([]int32, 4)) })
	mustPanic(t, "Grow by -1", func() { p.Grow(s, -1) })
	mustPanic(t, "foreign sequence", func() { other.Grow(s, 1) })
	p.Free(s)
	p.Free(s) // empty: nothing to do
	mustPanic(t, "Release of a free page", func() { p.Release(page) })
	mustPanic(t, "Retain of a free page", func() { p.Retain(page) })
}

func TestGrowIsAllOrNothing(t *testing.T) {
	p := newPool(t, 4, 2)
	s := p.NewSeq("")
	mustGrow(t, p, s, 3)
	for _, n := range []int{6, 7, 100, int(^uint(0) >> 1)} {
		if _, err := p.Grow(s, n); !errors.Is(err, ErrFull) {
			t.Errorf("Grow by %d: %v", n, err)
		}
	}
	if s.Len() != 3 || p.Available() != 2 {
		t.Errorf("a failed Grow left %d tokens, %d pages available", s.Len(), p.Available())
	}
	mustGrow(t, p, s, 5)
	if p.Available() != 0 {
		t.Errorf("%d pages available, want 0", p.Available())
	}
}

// averageRun is the mean length of the runs of all sequences, in pages.
func averageRun(seqs []*Seq) float64 {
	pages, runs := 0, 0
	for _, s := range seqs {
		pages += len(s.Table())
		runs += s.Runs()
	}
	return float64(pages) / float64(runs)
}

func TestInterleavedGrowthStaysAdjacent(t *testing.T) {
	p := newPool(t, 4096, 16)
	seqs := make([]*Seq, 8)
	for i := range seqs {
		seqs[i] = p.NewSeq("")
	}
	for p.Available() > p.Pages()/2 {
		for _, s := range seqs {
			mustGrow(t, p, s, 1)
		}
	}
	if got := averageRun(seqs); got < 250 {
		t.Errorf("half full: average run %.1f pages of 256", got)
	}
	for full := false; !full; {
		for _, s := range seqs {
			if _, err := p.Grow(s, 1); err != nil {
				full = true
			}
		}
	}
	if p.Available() != 0 {
		t.Errorf("%d pages can't be had", p.Available())
	}
	if got := averageRun(seqs); got < 64 {
		t.Errorf("full: average run %.1f pages", got)
	}
}

// TestChurnStaysAdjacent is a server's day: sequences of very different lengths come and go, all of them
// commit their pages, and the pool is under pressure from the cache all the time.
func TestChurnStaysAdjacent(t *testing.T) {
	for _, commit := range []bool{false, true} {
		p := newPool(t, 4096, 16)
		rng := rand.New(rand.NewPCG(7, 7))
		type job struct {
			s      *Seq
			tokens []int32
			left   int
		}
		var jobs []*job
		sum, n := 0.0, 0
		for step := range 20000 {
			if len(jobs) < 8 {
				j := &job{s: p.NewSeq(""), left: 1 + rng.IntN(2000)}
				j.tokens = make([]int32, 1+rng.IntN(4000))
				for i := range j.tokens {
					j.tokens[i] = int32(rng.IntN(1000))
				}
				p.Lookup(j.s, j.tokens)
				mustGrow(t, p, j.s, len(j.tokens)-j.s.Len())
				jobs = append(jobs, j)
			}
			for i := len(jobs) - 1; i >= 0; i-- {
				j := jobs[i]
				mustGrow(t, p, j.s, 1)
				j.tokens = append(j.tokens, int32(rng.IntN(1000)))
				if commit {
					p.Commit(j.s, j.tokens)
				}
				if j.left--; j.left == 0 {
					p.Free(j.s)
					jobs = append(jobs[:i], jobs[i+1:]...)
				}
			}
			if step > 5000 && step%100 == 0 && len(jobs) > 0 {
				seqs := make([]*Seq, len(jobs))
				for i, j := range jobs {
					seqs[i] = j.s
				}
				sum += averageRun(seqs)
				n++
			}
		}
		got := sum / float64(n)
		t.Logf("commit=%v: average run %.1f pages, %+v", commit, got, p.Stats())
		if got < 16 {
			t.Errorf("commit=%v: average run %.1f pages", commit, got)
		}
	}
}

func TestGrowDoesNotAllocate(t *testing.T) {
	p := newPool(t, 4096, 1)
	seqs := make([]*Seq, 4)
	tokens := make([]int32, 1024)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	for i := range seqs {
		seqs[i] = p.NewSeq(string(rune('a' + i)))
		seqs[i].Reserve(1024)
	}
	p.Commit(seqs[0], nil)
	mustGrow(t, p, seqs[0], 1)
	p.Commit(seqs[0], tokens[:1]) // builds the index
	if n := testing.AllocsPerRun(500, func() {
		for _, s := range seqs {
			if _, err := p.Grow(s, 1); err != nil {
				t.Fatal(err)
			}
			p.Commit(s, tokens[:s.Len()])
		}
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
	if n := testing.AllocsPerRun(50, func() { // sequences that end and come again
		for _, s := range seqs {
			p.Free(s)
			p.Lookup(s, tokens[:700])
			mustGrow(t, p, s, 700-s.Len())
		}
	}); n != 0 {
		t.Errorf("%v allocations per resumed sequence", n)
	}
}

func BenchmarkGrow(b *testing.B) {
	p := newPool(b, 1<<16, 1) // a page per token: every call allocates
	seqs := make([]*Seq, 8)
	for i := range seqs {
		seqs[i] = p.NewSeq("")
		seqs[i].Reserve(1 << 13)
	}
	b.ReportAllocs()
	for i := range b.N {
		s := seqs[i&7]
		if _, err := p.Grow(s, 1); err != nil {
			for _, s := range seqs {
				p.Free(s)
			}
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	p := newPool(b, 1<<12, 16)
	prompt := make([]int32, 16384)
	for i := range prompt {
		prompt[i] = int32(i * 7919 % 49152)
	}
	s := p.NewSeq("")
	mustGrow(b, p, s, len(prompt))
	p.Commit(s, prompt)
	p.Free(s)
	b.SetBytes(int64(4 * len(prompt)))
	for b.Loop() {
		if n := p.Lookup(s, prompt); n != len(prompt)-16 {
			b.Fatal(n)
		}
		p.Free(s)
	}
}
