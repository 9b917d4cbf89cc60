package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
)

// Cell is one batch and shape, of one query token a sequence.
type Cell struct {
	Seqs, QHeads, KVHeads, HeadDim int
	KVLen                          int     // of the longest sequence
	Lens                           []int32 // nil: all are KVLen
	KV                             attention.Type
	Note                           string // where the lengths differ: "one long", "zipf"
}

// lens are the lengths of the sequences.
func (c *Cell) lens() []int32 {
	if c.Lens != nil {
		return c.Lens
	}
	l := make([]int32, c.Seqs)
	for i := range l {
		l[i] = int32(c.KVLen)
	}
	return l
}

// tokens of all sequences.
func (c *Cell) tokens() (n int64) {
	for _, l := range c.lens() {
		n += int64(l)
	}
	return n
}

// tokenBytes is K and V of a token, all heads.
func (c *Cell) tokenBytes() int64 {
	return 2 * int64(c.KVHeads) * int64(c.HeadDim) * int64(c.KV.Bytes())
}

// bytes that have to be read.
func (c *Cell) bytes() int64 { return c.tokens() * c.tokenBytes() }

// String is short: "8 × 4096, 32/8 heads, bf16".
func (c *Cell) String() string {
	s := fmt.Sprintf("%d × %d, %d/%d heads, %v", c.Seqs, c.KVLen, c.QHeads, c.KVHeads, c.KV)
	if c.Note != "" {
		s += ", " + c.Note
	}
	return s
}

// Grids are the names that Grid knows.
var Grids = []string{"std", "fp8", "long", "skew", "seeds", "smoke"}

// Grid returns the cells of a grid. std, fp8 and long are those that the peers were measured on; skew has batches of very
// different lengths, each with an even one of as many tokens; seeds are the tables that the algorithm's authors published.
func Grid(name string) ([]Cell, error) {
	bf16 := func(b, q, kv, n int) Cell { return Cell{Seqs: b, QHeads: q, KVHeads: kv, HeadDim: 128, KVLen: n} }
	switch name {
	case "smoke":
		return []Cell{bf16(1, 32, 8, 4096), bf16(8, 32, 8, 4096)}, nil
	case "long":
		var cells []Cell
		for _, h := range [][2]int{{16, 2}, {32, 8}} {
			for _, n := range []int{262144, 524288, 1048576} {
				cells = append(cells, bf16(1, h[0], h[1], n))
			}
		}
		return cells, nil
	case "std":
		return slices.Concat(common(attention.BF16), budget(16, 2), multiHead()), nil
	case "fp8":
		return common(attention.E4M3), nil
	case "skew":
		return skewed(), nil
	case "seeds":
		return seeds(), nil
	}
	return nil, fmt.Errorf("bench: unknown grid %q: want %s", name, strings.Join(Grids, ", "))
}

// common are cells of 16-bit and 8-bit KV.
func common(kv attention.Type) (cells []Cell) {
	add := func(b, q, h, n int) {
		cells = append(cells, Cell{Seqs: b, QHeads: q, KVHeads: h, HeadDim: 128, KVLen: n, KV: kv})
	}
	for _, h := range [][2]int{{16, 2}, {32, 8}, {64, 8}, {32, 4}} {
		for e := 9; e <= 17; e++ {
			add(1, h[0], h[1], 1<<e)
		}
	}
	for _, c := range [][2]int{{8, 1024}, {8, 4096}, {8, 16384}, {8, 32768}, {16, 1024}, {16, 4096}, {32, 4096}, {64, 2048}, {256, 1024}, {16, 8192}} {
		add(c[0], 32, 8, c[1])
	}
	return cells
}

// budget is a constant number of tokens in batches of different shape.
func budget(q, kv int) (cells []Cell) {
	for n := 256; n <= 32768; n *= 2 {
		cells = append(cells, Cell{Seqs: 65536 / n, QHeads: q, KVHeads: kv, HeadDim: 128, KVLen: n})
	}
	return cells
}

// multiHead are shapes without shared KV heads.
func multiHead() (cells []Cell) {
	for _, c := range [][2]int{{1, 64}, {1, 1024}, {1, 2048}, {1, 4096}, {1, 32768}, {1, 65536}, {4, 64}, {4, 1024}, {4, 2048}, {4, 4096}, {4, 32768}} {
		cells = append(cells, Cell{Seqs: c[0], QHeads: 32, KVHeads: 32, HeadDim: 128, KVLen: c[1]})
	}
	return cells
}

// skewed are batches of very different lengths, each followed by an even one of the same number of tokens.
func skewed() (cells []Cell) {
	add := func(note string, lens []int32) {
		c := Cell{Seqs: len(lens), QHeads: 32, KVHeads: 8, HeadDim: 128, KVLen: int(slices.Max(lens)), Lens: lens, Note: note}
		even := c
		even.KVLen, even.Lens, even.Note = int((c.tokens()+int64(c.Seqs)-1)/int64(c.Seqs)), nil, note+", spread evenly"
		cells = append(cells, c, even)
	}
	long := make([]int32, 64)
	for i := range long {
		long[i] = 1024
	}
	long[0] = 131072
	add("one of 131072, 63 of 1024", long)
	for _, n := range []int{16, 64, 256} {
		zipf := make([]int32, n)
		for i := range zipf { // longest first, as no scheduler would be so kind: shuffled by a fixed stride
			zipf[i*37%n] = int32(max(16, 65536/math.Pow(float64(i+1), 0.8)))
		}
		add(fmt.Sprintf("zipf of %d", n), zipf)
	}
	return cells
}

// seeds are the shapes of the published tables: 16 query heads of Flash-Decoding, as batch 1 and as the constant budget of
// 65,536 tokens that they were, and Llama-3-8B.
func seeds() (cells []Cell) {
	for n := 256; n <= 65536; n *= 2 {
		cells = append(cells, Cell{Seqs: 1, QHeads: 16, KVHeads: 16, HeadDim: 128, KVLen: n}, Cell{Seqs: 1, QHeads: 16, KVHeads: 2, HeadDim: 128, KVLen: n})
	}
	cells = append(cells, budget(16, 2)...)
	cells = append(cells, budget(16, 16)...)
	for n := 2048; n <= 65536; n *= 2 {
		cells = append(cells, Cell{Seqs: 1, QHeads: 32, KVHeads: 8, HeadDim: 128, KVLen: n})
	}
	return cells
}

// Variant is an algorithm and how its memory is laid out.
type Variant struct {
	Name    string
	Alg     attention.Variant
	Address attention.Address
	Page    int
	Chained bool
}

// ParseVariant reads a name like split1_pdl_flat.
func ParseVariant(name string) (Variant, error) {
	parts := strings.Split(name, "_")
	v := Variant{Name: name, Page: 16}
	var err error
	if v.Alg, err = attention.ParseVariant(parts[0]); err != nil {
		return v, err
	}
	for _, p := range parts[1:] {
		switch p {
		case "pdl":
			v.Chained = true
		case "flat":
			v.Address = attention.Flat
		case "contig":
			v.Address = attention.Contiguous
		case "p64":
			v.Page = 64
		default:
			return v, fmt.Errorf("bench: variant %q: %q is not one of pdl, flat, contig, p64", name, p)
		}
	}
	return v, nil
}
