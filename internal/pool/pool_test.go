package pool

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type counter struct {
	hits    []atomic.Int32
	workers [8]atomic.Int32
	slow    bool
}

func (c *counter) Chunk(worker, i int) {
	c.hits[i].Add(1)
	c.workers[worker].Add(1)
	if c.slow {
		time.Sleep(100 * time.Microsecond)
	}
}

func TestEveryChunkOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 3, 5} {
		p := New(workers)
		for round := range 300 {
			n := []int{0, 1, 2, 7, 64, 1000}[round%6]
			c := &counter{hits: make([]atomic.Int32, n)}
			p.Begin()
			p.Run(NewRegion(c), n)
			for i := range c.hits {
				if got := c.hits[i].Load(); got != 1 {
					t.Fatalf("workers=%d n=%d: chunk %d ran %d times", workers, n, i, got)
				}
			}
			if f := p.End(); f != nil {
				t.Fatal(f)
			}
		}
		p.Close()
	}
}

// TestRegionsBackToBack changes the region as fast as possible: a worker that comes late must never run a chunk of
// the new region with the old task, nor make the caller return early.
func TestRegionsBackToBack(t *testing.T) {
	p := New(4)
	defer p.Close()
	p.Begin()
	defer p.End()
	cs := []*counter{{hits: make([]atomic.Int32, 9)}, {hits: make([]atomic.Int32, 5)}}
	rs := []*Region{NewRegion(cs[0]), NewRegion(cs[1])}
	const rounds = 20000
	for i := range rounds {
		k := i % 2
		p.Run(rs[k], len(cs[k].hits))
		if got := cs[k].hits[0].Load(); got != int32(i/2+1) {
			t.Fatalf("round %d returned with chunk 0 done %d times", i, got)
		}
	}
	for k, c := range cs {
		for i := range c.hits {
			if got := c.hits[i].Load(); got != rounds/2 {
				t.Errorf("region %d chunk %d ran %d times, want %d", k, i, got, rounds/2)
			}
		}
	}
}

func TestSlowChunksAreShared(t *testing.T) {
	p := New(3)
	defer p.Close()
	c := &counter{hits: make([]atomic.Int32, 300), slow: true}
	p.Begin()
	p.Run(NewRegion(c), 300)
	p.End()
	for w := range 3 {
		if c.workers[w].Load() == 0 {
			t.Errorf("worker %d did nothing", w)
		}
	}
}

type faulty struct{ at int }

func (f faulty) Chunk(_, i int) {
	if i == f.at {
		panic(fmt.Sprintf("chunk %d", i))
	}
}

func TestPanicIsReportedOnce(t *testing.T) {
	p := New(2)
	defer p.Close()
	for range 50 {
		p.Begin()
		p.Run(NewRegion(faulty{3}), 8)
		f := p.End()
		if f == nil || !strings.Contains(f.Error(), "chunk 3") {
			t.Fatalf("fault = %v", f)
		}
		p.Begin()
		p.Run(NewRegion(faulty{-1}), 8)
		if f := p.End(); f != nil {
			t.Fatalf("fault of an older step came back: %v", f)
		}
	}
}

// TestParked waits for the workers to park, then checks that a step still uses them.
func TestParked(t *testing.T) {
	p := New(3)
	defer p.Close()
	for p.parked.Load() != 2 {
		runtime.Gosched()
	}
	c := &counter{hits: make([]atomic.Int32, 200), slow: true}
	p.Begin()
	p.Run(NewRegion(c), 200)
	p.End()
	if c.workers[1].Load()+c.workers[2].Load() == 0 {
		t.Error("parked workers did not wake")
	}
}

func TestRunDoesNotAllocate(t *testing.T) {
	p := New(2)
	defer p.Close()
	c := &counter{hits: make([]atomic.Int32, 8)}
	r := NewRegion(c)
	if a := testing.AllocsPerRun(100, func() { p.Begin(); p.Run(r, 8); p.End() }); a != 0 {
		t.Errorf("%v allocations a region", a)
	}
}

type empty struct{}

func (empty) Chunk(int, int) {}

// BenchmarkRegion is the cost of starting and ending a parallel region within a step.
func BenchmarkRegion(b *testing.B) {
	for _, chunks := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("workers=2/chunks=%d", chunks), func(b *testing.B) {
			p := New(2)
			defer p.Close()
			r := NewRegion(empty{})
			p.Begin()
			for b.Loop() {
				p.Run(r, chunks)
			}
			p.End()
		})
	}
}
