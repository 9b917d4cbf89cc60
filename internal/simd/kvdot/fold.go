package kvdot

import (
	"math/bits"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// maxGroup is the largest number of rows a body takes at once.
const maxGroup = 6

// foldArgs is what a body gets: a group of rows and a run of stripes. The generator of the assembly knows
// its offsets. A stripe is always four tile offsets; the walk repeats an offset where tiles end.
type foldArgs struct {
	base    unsafe.Pointer
	off     *int64   // [4·stripes]
	ahead   *int64   // [4·stripes+4], what to prefetch meanwhile
	stripes int64    // ≥ 1; the assembly counts it down to 0
	q       *float32 // prepared by the body's prepare
	m       *float32 // [rows]
	l       *float32 // [rows][16], partial sums by lane
	o       *float32 // [rows][dim]
	p       *float32 // [rows][64] scores, then weights; Q8_0: [dim/32] integer weights follow, q8WeightWords
	mask    *uint64  // [rows], bit t: the row sees token t of the stripe; nil: every row sees all 64
	lo, hi  int64    // tokens of each stripe whose values are read: [0, 64) unless mask is set
	dim     int64
	vOff    int64 // bytes from a tile's keys to its values
	softcap float32
	invCap  float32
	rows    int64
}

// body is one implementation of the leaves.
type body struct {
	group   int                                              // rows at once, at most maxGroup
	qWords  func(l Layout, rows int) int                     // float32 words prepare writes
	prepare func(l Layout, dst, q []float32, rows int)       // q [rows][dim] to what fold reads
	fold    func(l Layout, a *foldArgs)                      // a.stripes stripes, a.rows rows
	read    func(l Layout, base unsafe.Pointer, off []int64) // every byte of the tiles
}

// q8WeightWords is the size of a group's integer weights of 32 dimensions: 16 bits a token, and a line for a
// row's scale.
const q8WeightWords = maxGroup * (stripeTokens/2 + TileTokens)

// Scratch is a worker's buffers. The zero value is ready; they grow to what the largest Item needs.
type Scratch struct {
	args       foldArgs
	masks      [maxGroup]uint64
	off        []int64
	q, l, p    []float32
	key, value [maxHeadDim * 4]byte
}

// Reserve makes room for items of that many rows and tiles, so that Fold does not allocate for a sequence that grows.
func (s *Scratch) Reserve(k *Kernels, rows, tiles int) {
	if n := tiles + 2*stripeTiles + k.ahead; cap(s.off) < n { // padded, and what is prefetched behind the end
		s.off = make([]int64, 0, n)
	}
	s.size(k, rows)
}

// size is for that many rows.
func (s *Scratch) size(k *Kernels, rows int) {
	g := k.body.group
	grow(&s.q, (rows+g-1)/g*k.body.qWords(k.layout, g)+k.body.qWords(k.layout, 1)) // one row to spare for foldMasked
	grow(&s.l, rows*TileTokens)
	scores := maxGroup * stripeTokens
	if k.layout.Type == quant.Q8_0 {
		scores += k.layout.HeadDim / blockDims * q8WeightWords
	}
	grow(&s.p, scores)
}

// stripesAtOnce bounds a run of stripes: many rows share them while they stay in the L2 cache, and a body,
// which the Go scheduler cannot interrupt, stays below some 100 µs.
func (k *Kernels) stripesAtOnce() int {
	const shared = 256 << 10
	return min(16, max(1, shared/(stripeTiles*k.layout.TileBytes)))
}

// Fold folds the tokens each row sees into its state, in token order.
//
// Stripes are cut from the item's first tile on, whatever the rows see, so that a row's arithmetic is the
// same in every item with the same tiles.
func (k *Kernels) Fold(it *Item, s *Scratch) {
	it.check(k.layout)
	lo, hi := it.span(0, it.Rows)
	if lo >= hi {
		return
	}
	s.begin(k, it)
	first, last := lo/stripeTokens, (hi-1)/stripeTokens+1
	for at := first; at < last; at += k.stripesAtOnce() {
		end := min(at+k.stripesAtOnce(), last)
		for r := 0; r < it.Rows; r += k.body.group {
			k.foldGroup(it, s, r, min(r+k.body.group, it.Rows), at, end)
		}
	}
	for r := range it.Rows {
		it.L[r] = laneSum(s.l[r*TileTokens : (r+1)*TileTokens])
	}
}

// span returns the smallest range of tokens that holds what rows [r0, r1) see, lo ≥ hi if that is nothing.
func (it *Item) span(r0, r1 int) (lo, hi int) {
	lo = 1 << 62
	for r := r0; r < r1; r++ {
		if it.Lo[r] < it.Hi[r] {
			lo, hi = min(lo, int(it.Lo[r])), max(hi, int(it.Hi[r]))
		}
	}
	return lo, hi
}

// begin fills the buffers that serve the whole item: padded offsets, prepared queries, empty lane sums.
func (s *Scratch) begin(k *Kernels, it *Item) {
	s.off = append(s.off[:0], it.Off...)
	for len(s.off)%stripeTiles != 0 {
		s.off = append(s.off, it.Off[len(it.Off)-1]) // the last stripe's missing tiles, hidden by its mask
	}
	for i := range k.ahead + stripeTiles {
		s.off = append(s.off, s.off[len(it.Off)-1])
		if i < len(it.Next) {
			s.off[len(s.off)-1] = it.Next[i]
		}
	}
	d, g := k.layout.HeadDim, k.body.group
	words := k.body.qWords(k.layout, g)
	s.size(k, it.Rows)
	for i := range (it.Rows + g - 1) / g {
		r0, r1 := i*g, min((i+1)*g, it.Rows)
		k.body.prepare(k.layout, s.q[i*words:(i+1)*words], it.Q[r0*d:r1*d], r1-r0)
	}
	clear(s.l)
	for r := range it.Rows {
		s.l[r*TileTokens] = it.L[r]
	}
	s.args = foldArgs{
		base: it.Base, p: &s.p[0], dim: int64(d), vOff: int64(k.layout.KBytes), softcap: it.Softcap,
	}
	if it.Softcap != 0 {
		s.args.invCap = 1 / it.Softcap
	}
}

// grow makes *f an aligned slice of n.
func grow(f *[]float32, n int) {
	if cap(*f) < n {
		*f = alignedFloats(n)
	}
	*f = (*f)[:n]
}

// foldGroup folds stripes [at, end) into rows [r0, r1): runs of stripes that every row sees whole in one
// call, others one by one with masks.
func (k *Kernels) foldGroup(it *Item, s *Scratch, r0, r1, at, end int) {
	lo, hi := it.span(r0, r1)
	at, end = max(at, lo/stripeTokens), min(end, (hi+stripeTokens-1)/stripeTokens)
	if at >= end {
		return
	}
	a := &s.args
	a.setRows(k, it, s, r0, r1)
	a.q = &s.q[r0/k.body.group*k.body.qWords(k.layout, k.body.group)]
	for at < end {
		n := 0
		for at+n < end && it.whole(r0, r1, at+n) {
			n++
		}
		a.off, a.ahead = &s.off[at*stripeTiles], &s.off[at*stripeTiles+k.ahead]
		if n == 0 {
			k.foldMasked(it, s, r0, r1, at)
			at++
			continue
		}
		a.stripes, a.mask, a.lo, a.hi = int64(n), nil, 0, stripeTokens
		k.body.fold(k.layout, a)
		at += n
	}
}

// setRows points the arguments at the states of rows [r0, r1).
func (a *foldArgs) setRows(k *Kernels, it *Item, s *Scratch, r0, r1 int) {
	a.m, a.l, a.o = &it.M[r0], &s.l[r0*TileTokens], &it.O[r0*k.layout.HeadDim]
	a.rows = int64(r1 - r0)
}

// foldMasked folds a stripe that some of rows [r0, r1) see in part.
func (k *Kernels) foldMasked(it *Item, s *Scratch, r0, r1, stripe int) {
	a := &s.args
	lo, hi, holes := it.maskStripe(&s.masks, r0, r1, stripe)
	a.stripes, a.mask, a.lo, a.hi = 1, &s.masks[0], int64(lo), int64(hi)
	if !holes {
		if lo < hi {
			k.body.fold(k.layout, a)
		}
		return
	}
	// Some tokens between those the rows see belong to none and may be NaN, which a weight of 0 does not
	// stop: go row by row.
	q, d := a.q, k.layout.HeadDim
	a.q = &s.q[len(s.q)-k.body.qWords(k.layout, 1)]
	for r := r0; r < r1; r++ {
		if lo, hi, _ := it.maskStripe(&s.masks, r, r+1, stripe); lo < hi {
			a.stripes, a.lo, a.hi = 1, int64(lo), int64(hi)
			a.setRows(k, it, s, r, r+1)
			k.body.prepare(k.layout, unsafe.Slice(a.q, k.body.qWords(k.layout, 1)), it.Q[r*d:(r+1)*d], 1)
			k.body.fold(k.layout, a)
		}
	}
	a.setRows(k, it, s, r0, r1)
	a.q = q
}

// whole reports whether rows [r0, r1) all see all of a stripe.
func (it *Item) whole(r0, r1, stripe int) bool {
	first, end := int32(stripe*stripeTokens), int32((stripe+1)*stripeTokens)
	for r := r0; r < r1; r++ {
		if it.Lo[r] > first || it.Hi[r] < end {
			return false
		}
	}
	return true
}

// maskStripe sets the masks of what rows [r0, r1) see of a stripe, and returns the smallest range of its
// tokens that holds all of it, and whether that range holds a token which no row sees.
func (it *Item) maskStripe(masks *[maxGroup]uint64, r0, r1, stripe int) (lo, hi int, holes bool) {
	first, union := stripe*stripeTokens, uint64(0)
	for r := r0; r < r1; r++ {
		from := max(int(it.Lo[r])-first, 0)
		to := min(int(it.Hi[r])-first, stripeTokens)
		masks[r-r0] = 0
		if from < to {
			masks[r-r0] = ^uint64(0) >> (stripeTokens - (to - from)) << from
		}
		union |= masks[r-r0]
	}
	lo, hi = bits.TrailingZeros64(union), bits.Len64(union)
	return lo, hi, bits.OnesCount64(union) < hi-lo
}

// laneSum adds the 16 partial sums pairwise.
func laneSum(x []float32) float32 {
	x = x[:TileTokens]
	var t [8]float32
	for i := range t {
		t[i] = x[i] + x[i+8]
	}
	return ((t[0] + t[4]) + (t[1] + t[5])) + ((t[2] + t[6]) + (t[3] + t[7]))
}
