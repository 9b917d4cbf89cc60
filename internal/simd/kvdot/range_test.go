package kvdot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// poison overwrites the keys and values of every token that no row of the item sees with NaN.
func (c *cache) poison(it *Item, k *Kernels, s *Scratch) {
	nan := make([]float32, c.l.HeadDim)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	for t := range c.tokens {
		seen := false
		for r := range it.Rows {
			seen = seen || int(it.Lo[r]) <= t && t < int(it.Hi[r])
		}
		if !seen {
			c.store(k, s, t, nan, nan)
		}
	}
}

// TestFoldRanges gives every row its own range: causal, windows, tails, empty ones, islands far apart. What
// no row sees is NaN, and rows that see nothing keep their states to the bit.
func TestFoldRanges(t *testing.T) {
	const tokens, dim = 200, 64
	ranges := map[string]func(rng *rand.Rand, r, rows int) (lo, hi int){
		"causal": func(_ *rand.Rand, r, rows int) (int, int) { return 0, tokens - rows + r + 1 },
		"window": func(_ *rand.Rand, r, rows int) (int, int) { return tokens - rows + r - 69, tokens - rows + r + 1 },
		"inside": func(*rand.Rand, int, int) (int, int) { return 65, 127 },
		"random": func(rng *rand.Rand, _, _ int) (int, int) { return rng.IntN(tokens + 1), rng.IntN(tokens + 1) },
		"island": func(_ *rand.Rand, r, _ int) (int, int) { return 5 + r*7%60, 7 + r*7%60 },
		"far":    func(_ *rand.Rand, r, _ int) (int, int) { return r % 2 * 190, 9 + r%2*190 },
		"empty":  func(*rand.Rand, int, int) (int, int) { return 40, 40 },
	}
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		s := new(Scratch)
		for name, of := range ranges {
			for _, rows := range []int{1, 2, 3, 5, 6, 7, 16} {
				rng := rand.New(rand.NewPCG(uint64(rows), 3))
				c := newCache(t, level, typ, dim, tokens, 1, 7)
				k := New(level, c.l)
				it := c.item(rows, 0.4, uint64(rows))
				for r := range rows {
					lo, hi := of(rng, r, rows)
					it.Lo[r], it.Hi[r] = int32(lo), int32(hi)
					if lo >= hi {
						it.M[r], it.L[r], it.O[r*dim] = 1.25, float32(r), -3
					}
				}
				c.poison(it, k, s)
				k.Fold(it, s)
				c.check(t, it, name)
				for r := range rows {
					if it.Lo[r] >= it.Hi[r] && (it.M[r] != 1.25 || it.L[r] != float32(r) || it.O[r*dim] != -3) {
						t.Fatalf("%s: row %d sees nothing, state became M %v L %v O %v", name, r, it.M[r], it.L[r], it.O[r*dim])
					}
				}
			}
		}
	})
}

// TestFoldSoftcap uses caps below, near and far above the scores, which are beyond both branches of tanh.
func TestFoldSoftcap(t *testing.T) {
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		s := new(Scratch)
		c := newCache(t, level, typ, 64, 150, 1, 4)
		k := New(level, c.l)
		for _, limit := range []float32{0.5, 5, 50, 1e4} {
			it := c.item(5, 2, 5)
			it.Softcap = limit
			k.Fold(it, s)
			c.check(t, it, fmt.Sprint("softcap ", limit))
		}
	})
}

// TestFoldLarge has logits of ±6e4 and steps between: exact in every format but Q8_0, so only the
// exponential may err, and nothing overflows.
func TestFoldLarge(t *testing.T) {
	const dim, tokens = 8, 300
	for _, level := range simd.Levels() {
		for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16} {
			c := newCache(t, level, typ, dim, tokens, 0, 8) // keys 0
			k, s := New(level, c.l), new(Scratch)
			rng := rand.New(rand.NewPCG(9, 9))
			key, value := make([]float32, dim), make([]float32, dim)
			for i := range tokens {
				key[0] = []float32{-59904, -3072, -1, 0, 1, 12, 3072, 59904, 59904 - 256}[rng.IntN(9)]
				value[i%dim] = float32(rng.NormFloat64())
				c.store(k, s, i, key, value)
			}
			it := c.item(4, 1, 1)
			for i := range it.Q {
				it.Q[i] = 0
			}
			it.Q[0], it.Q[dim], it.Q[2*dim], it.Q[3*dim] = 1, -1, 0.25, 0
			k.Fold(it, s)
			c.check(t, it, fmt.Sprintf("%v %v", level, typ))
			for r := range it.Rows {
				w := c.reference(it, r)
				for i := range dim { // exact scores: δ is 0
					if got := float64(it.O[r*dim+i]) / float64(it.L[r]); !(math.Abs(got-w.out[i]) <= 400*eps) {
						t.Fatalf("%v %v row %d: out[%d] = %v, want %v", level, typ, r, i, got, w.out[i])
					}
				}
			}
		}
	}
}

// TestFoldInParts folds tokens in pieces into one state, and each piece into its own, merged after.
func TestFoldInParts(t *testing.T) {
	const dim, tokens, rows = 64, 333, 7
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		c := newCache(t, level, typ, dim, tokens, 1, 11)
		k, s := New(level, c.l), new(Scratch)
		for _, cuts := range [][]int{{0, 160, tokens}, {0, 16, 17, 100, tokens}, {0, 1, 64, 65, 320, tokens}} {
			whole, merged := c.item(rows, 0.4, 12), c.item(rows, 0.4, 12)
			for i := 1; i < len(cuts); i++ {
				first := cuts[i-1] / TileTokens
				part := c.item(rows, 0.4, 12)
				for _, it := range []*Item{whole, part} {
					it.Off = c.off[first:min(len(c.off), (cuts[i]+TileTokens-1)/TileTokens)]
					for r := range rows {
						it.Lo[r], it.Hi[r] = int32(cuts[i-1]-first*TileTokens), int32(cuts[i]-first*TileTokens)
					}
					k.Fold(it, s)
				}
				merge(merged, part, dim)
			}
			for _, it := range []*Item{whole, merged} {
				it.Off = c.off
				for r := range rows {
					it.Lo[r], it.Hi[r] = 0, tokens
				}
				c.check(t, it, fmt.Sprint("cuts ", cuts))
			}
		}
	})
}

// merge folds the states of b into those of a, in float64.
func merge(a, b *Item, dim int) {
	for r := range a.Rows {
		m := max(a.M[r], b.M[r])
		fa, fb := math.Exp(float64(a.M[r]-m)), math.Exp(float64(b.M[r]-m))
		a.M[r], a.L[r] = m, float32(fa*float64(a.L[r])+fb*float64(b.L[r]))
		for i := r * dim; i < (r+1)*dim; i++ {
			a.O[i] = float32(fa*float64(a.O[i]) + fb*float64(b.O[i]))
		}
	}
}
