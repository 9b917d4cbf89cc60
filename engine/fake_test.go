package engine

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/flashdecode/flashdecode/ops"
)

const fakeVocab = 97

// fake is a model whose next token is a function of the whole history as it finds it in the pages of the cache: if
// the engine mixes up a page, a position or a prefix, the text changes.
type fake struct {
	layout   ops.KVLayout
	slots    []int32 // [pages·pageSize] the token stored there, -1: nothing
	steps    atomic.Int64
	released atomic.Int64  // pages that the last Release gave back
	most     int           // most rows of a step seen
	fail     error         // what Forward returns, if anything
	gate     chan struct{} // a receive before each step, if not nil
}

func newFake(pages, pageSize int) *fake {
	f := &fake{layout: ops.KVLayout{Layers: 1, KVHeads: 1, HeadDim: 8, Pages: pages, PageSize: pageSize}}
	f.slots = make([]int32, pages*pageSize)
	for i := range f.slots {
		f.slots[i] = -1
	}
	return f
}

func (f *fake) Layout() ops.KVLayout { return f.layout }
func (f *fake) PageBytes() int64     { return 1 }
func (f *fake) Close() error         { return nil }

// Release loses the contents of the pages.
func (f *fake) Release(pages []int32) error {
	n := int32(f.layout.PageSize)
	for _, p := range pages {
		for i := p * n; i < (p+1)*n; i++ {
			f.slots[i] = -1
		}
	}
	f.released.Store(int64(len(pages)))
	return nil
}

func (f *fake) CopyPage(dst, src int32) error {
	n := int32(f.layout.PageSize)
	copy(f.slots[dst*n:(dst+1)*n], f.slots[src*n:(src+1)*n])
	return nil
}

func (f *fake) Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error {
	if f.gate != nil {
		<-f.gate
	}
	f.steps.Add(1)
	f.most = max(f.most, b.Rows())
	if f.fail != nil {
		return f.fail
	}
	if err := b.Check(f.layout); err != nil {
		return err
	}
	at := 0
	for s := range b.Seqs() {
		table := b.Table(s)
		for r := int(b.QIndptr[s]); r < int(b.QIndptr[s+1]); r++ {
			f.slots[f.slot(table, int(b.Positions[r]))] = b.Tokens[r]
		}
		if at < len(rows) && int(rows[at]) == int(b.QIndptr[s+1])-1 {
			h, err := f.hash(table, int(b.KVLens[s]))
			if err != nil {
				return err
			}
			row := logits[at*fakeVocab : (at+1)*fakeVocab]
			for i := range row {
				row[i] = float32(-math.Abs(float64(int(h%fakeVocab) - i)))
			}
			at++
		}
	}
	if at != len(rows) {
		return fmt.Errorf("%d rows of logits wanted, %d are last rows of a sequence", len(rows), at)
	}
	return nil
}

func (f *fake) slot(table []int32, pos int) int {
	return int(table[pos/f.layout.PageSize])*f.layout.PageSize + pos%f.layout.PageSize
}

func (f *fake) hash(table []int32, n int) (uint32, error) {
	h := uint32(2166136261)
	for p := range n {
		t := f.slots[f.slot(table, p)]
		if t < 0 {
			return 0, fmt.Errorf("position %d of %d was never written", p, n)
		}
		h = step(h, t)
	}
	return h, nil
}

func step(h uint32, t int32) uint32 { return (h ^ uint32(t)) * 16777619 }

// expect is what a prompt continues with.
func expect(prompt []int32, n int) []int32 {
	h := uint32(2166136261)
	for _, t := range prompt {
		h = step(h, t)
	}
	var out []int32
	for range n {
		t := int32(h % fakeVocab)
		out = append(out, t)
		h = step(h, t)
	}
	return out
}

// prompt makes n tokens that differ by seed from their first token on.
func prompt(seed, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32((seed*31 + i*i + i*seed) % fakeVocab)
	}
	return p
}

// flatFake is a fake in flat mode: it checks that each sequence's range holds exactly its table.
type flatFake struct {
	*fake
	places [][]int32 // [ranges][places] the page bound there, -1: none
}

func newFlatFake(pages, pageSize, ranges, rangePages int) *flatFake {
	f := &flatFake{fake: newFake(pages, pageSize), places: make([][]int32, ranges)}
	f.layout.Ranges, f.layout.RangePages = ranges, rangePages
	for r := range f.places {
		f.places[r] = make([]int32, rangePages)
		f.Unbind(int32(r))
	}
	return f
}

func (f *flatFake) Bind(r int32, from int, pages []int32) error {
	copy(f.places[r][from:from+len(pages)], pages)
	return nil
}

func (f *flatFake) Unbind(r int32) error {
	for i := range f.places[r] {
		f.places[r][i] = -1
	}
	return nil
}

func (f *flatFake) Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error {
	for s := range b.Seqs() {
		for i, p := range b.Table(s) {
			if got := f.places[b.Ranges[s]][i]; got != p {
				return fmt.Errorf("place %d of range %d holds page %d, the table says %d", i, b.Ranges[s], got, p)
			}
		}
	}
	return f.fake.Forward(b, kv, rows, logits)
}
