package kvdot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

const eps = 0x1p-24 // relative error of one rounding to float32

var allTypes = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0}

// cache is tiles in shuffled places of one buffer, with what was stored in them.
type cache struct {
	l      Layout
	mem    []float32 // the tiles
	base   unsafe.Pointer
	off    []int64
	tokens int
	k, v   [][]float64 // [tokens][dim], as stored
}

// newCache stores tokens random tokens. Everything else, unused slots and unused tiles, is NaN.
func newCache(t testing.TB, level simd.Level, typ quant.Type, dim, tokens int, keyStd float64, seed uint64) *cache {
	t.Helper()
	l, err := NewLayout(typ, dim)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	n := (tokens + TileTokens - 1) / TileTokens
	c := &cache{l: l, tokens: tokens, mem: alignedFloats((n + 2) * l.TileBytes / 4)}
	for i := range c.mem {
		c.mem[i] = math.Float32frombits(0xffffffff) // NaN in F32, F16, BF16 and as a Q8_0 scale
	}
	c.base = unsafe.Pointer(&c.mem[0])
	for _, i := range rng.Perm(n + 2)[:n] {
		c.off = append(c.off, int64(i*l.TileBytes))
	}
	kern, s := New(level, l), new(Scratch)
	key, value := make([]float32, dim), make([]float32, dim)
	for i := range tokens {
		for d := range dim {
			key[d], value[d] = float32(rng.NormFloat64()*keyStd), float32(rng.NormFloat64())
		}
		c.k, c.v = append(c.k, nil), append(c.v, nil)
		c.store(kern, s, i, key, value)
	}
	return c
}

// store puts a token into its tile and notes what the tile then holds.
func (c *cache) store(k *Kernels, s *Scratch, token int, key, value []float32) {
	tile, d := unsafe.Add(c.base, c.off[token/TileTokens]), c.l.HeadDim
	k.Store(tile, token%TileTokens, key, value, s)
	c.k[token], c.v[token] = make([]float64, d), make([]float64, d)
	stored := make([]float32, 2*d)
	c.l.Load(tile, token%TileTokens, stored[:d], stored[d:])
	copy(c.k[token], widen(stored[:d]))
	copy(c.v[token], widen(stored[d:]))
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}

// item returns an item of rows empty states over all the cache, with random queries of that deviation.
func (c *cache) item(rows int, std float64, seed uint64) *Item {
	rng := rand.New(rand.NewPCG(seed, 2))
	d := c.l.HeadDim
	it := &Item{
		Rows: rows, Q: make([]float32, rows*d), Base: c.base, Off: c.off,
		Lo: make([]int32, rows), Hi: make([]int32, rows),
		M: make([]float32, rows), L: make([]float32, rows), O: make([]float32, rows*d),
	}
	for i := range it.Q {
		it.Q[i] = float32(rng.NormFloat64() * std)
	}
	for r := range rows {
		it.Hi[r] = int32(c.tokens)
		it.M[r] = float32(math.Inf(-1))
	}
	return it
}

// want is a row's attention in float64 and the error float32 arithmetic may make, over what the row sees.
type want struct {
	out      []float64 // O/L
	lse      float64
	outSlack float64 // bound of every |out error|
	lseSlack float64
	empty    bool
}

// reference computes a row in three passes. The bound: a score is a chain of dim products, so it is off by
// at most (dim+2)·eps·Σ|q·k| (Q8_0's integer queries add 2⁻¹⁶·max|q|·Σ|k|); softcap adds 8·eps·cap; the
// reference M is rounded, which costs eps·|M|. An error δ of the scores is a factor e^±δ of the weights,
// and the exponential adds 8·eps, the sums of n weights and n values at most n·eps, in practice far less
// because they are lanes of random signs: √n·eps·4 is allowed. Hence |out error| ≤ (2δ + …)·max|v|.
//
// Q8_0's weights are rounded to integers: those of a stripe, times their scales, to multiples of the largest
// weight times the largest scale over 32767. So each of n weights of a stripe is off by at most max p/65534 in
// units of max|v|, independently: 4·√n of that is allowed, summed over the stripes as √Σ.
func (c *cache) reference(it *Item, r int) want {
	d := c.l.HeadDim
	q := widen(it.Q[r*d : (r+1)*d])
	lo, hi := int(it.Lo[r]), int(it.Hi[r])
	if lo >= hi {
		return want{empty: true}
	}
	s := make([]float64, hi-lo)
	top, delta, qMax, vMax := math.Inf(-1), 0.0, 0.0, 0.0
	for _, x := range q {
		qMax = max(qMax, math.Abs(x))
	}
	for t := range s {
		var dot, abs, kAbs float64
		for i, x := range c.k[lo+t] {
			dot, abs, kAbs = dot+q[i]*x, abs+math.Abs(q[i]*x), kAbs+math.Abs(x)
			vMax = max(vMax, math.Abs(c.v[lo+t][i]))
		}
		e := float64(d+2) * eps * abs
		if c.l.Type == quant.Q8_0 {
			e += 0x1p-16 * qMax * kAbs
		}
		if it.Softcap != 0 {
			limit := float64(it.Softcap)
			dot = limit * math.Tanh(dot/limit)
			e += 8 * eps * math.Abs(dot)
		}
		s[t], top, delta = dot, max(top, dot), max(delta, e)
	}
	w := want{out: make([]float64, d)}
	var sum, rounding, stripeTop float64
	for t := range s {
		p := math.Exp(s[t] - top)
		sum += p
		if t == 0 || (lo+t)%stripeTokens == 0 {
			stripeTop = 0
			for u := t; u < len(s) && (u == t || (lo+u)%stripeTokens != 0); u++ {
				stripeTop = max(stripeTop, math.Exp(s[u]-top))
			}
		}
		rounding += stripeTop * stripeTop
		for i, x := range c.v[lo+t] {
			w.out[i] += p * x
		}
	}
	for i := range w.out {
		w.out[i] /= sum
	}
	w.lse = top + math.Log(sum)
	w.lseSlack = delta + eps*(2*math.Abs(top)+16+4*math.Sqrt(float64(len(s))))
	w.outSlack = vMax * (math.Expm1(2*delta) + eps*(16+4*math.Sqrt(float64(len(s)))))
	if c.l.Type == quant.Q8_0 {
		w.outSlack += vMax * 4 * math.Sqrt(rounding) / (2 * 32767 * sum)
	}
	return w
}

// check compares all of an item's states with the reference.
func (c *cache) check(t *testing.T, it *Item, name string) {
	t.Helper()
	c.checkAgainst(t, it, c.references(it), name)
}

func (c *cache) references(it *Item) (ws []want) {
	for r := range it.Rows {
		ws = append(ws, c.reference(it, r))
	}
	return ws
}

func (c *cache) checkAgainst(t *testing.T, it *Item, ws []want, name string) {
	t.Helper()
	d := c.l.HeadDim
	for r, w := range ws {
		if w.empty {
			continue
		}
		lse := float64(it.M[r]) + math.Log(float64(it.L[r]))
		if !(math.Abs(lse-w.lse) <= w.lseSlack) {
			t.Fatalf("%s row %d of %d: lse %v, want %v ± %.2g (M %v, L %v)", name, r, it.Rows, lse, w.lse, w.lseSlack, it.M[r], it.L[r])
		}
		for i := range d {
			got := float64(it.O[r*d+i]) / float64(it.L[r])
			if !(math.Abs(got-w.out[i]) <= w.outSlack) {
				t.Fatalf("%s row %d of %d: out[%d] = %v, want %v ± %.2g", name, r, it.Rows, i, got, w.out[i], w.outSlack)
			}
		}
	}
}

// eachKernel runs f for every instruction level and type.
func eachKernel(t *testing.T, f func(t *testing.T, level simd.Level, typ quant.Type)) {
	for _, level := range simd.Levels() {
		for _, typ := range allTypes {
			t.Run(fmt.Sprintf("%v/%v", level, typ), func(t *testing.T) { f(t, level, typ) })
		}
	}
}

func dimsOf(typ quant.Type) []int {
	if typ == quant.Q8_0 {
		return []int{32, 64, 96, 128, 256, 512}
	}
	return []int{8, 24, 64, 72, 80, 128, 256, 512}
}

var rowCounts = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 33}

// TestFold covers every level, type, head dimension and group size at the lengths around tiles and stripes.
func TestFold(t *testing.T) {
	s := new(Scratch)
	for _, typ := range allTypes {
		for _, dim := range dimsOf(typ) {
			for _, tokens := range []int{0, 1, 15, 16, 17, 63, 64, 65, 500, 2048} {
				if tokens == 2048 && dim != 64 || tokens == 500 && dim > 128 {
					continue // slow, and no other path
				}
				c := newCache(t, simd.Detect(), typ, dim, tokens, 1, uint64(tokens))
				for i, rows := range rowCounts {
					if (tokens >= 500 || dim > 256) && i%4 != (dim/8+tokens)%4 {
						continue
					}
					deviation := 3 / math.Sqrt(float64(dim)) // scores of 3, which force rescales
					ws := c.references(c.item(rows, deviation, uint64(rows)))
					for _, level := range simd.Levels() {
						it := c.item(rows, deviation, uint64(rows))
						New(level, c.l).Fold(it, s)
						c.checkAgainst(t, it, ws, fmt.Sprintf("%v %v dim %d, %d tokens", level, typ, dim, tokens))
					}
				}
			}
		}
	}
}
