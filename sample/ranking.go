package sample

import (
	"fmt"
	"math"
)

const (
	blockSize = 64   // logits that share one maximum
	listCap   = 4096 // kept tokens from which on they are worth a list of their own
	digitBits = 11   // of a key, per pass of a radix selection
	digits    = 1 << digitBits
)

// ranking knows which tokens of a row are kept: those of a beginning of the ranking by (logit descending, id
// ascending). It looks at the whole row, or at a short list that holds at least all kept tokens.
type ranking struct {
	blockMax []float32 // [⌈vocab/blockSize⌉] largest logit of each block of the row
	max      float32   // largest of the row
	perUnit  float64   // 1/temperature

	vals   []float32 // the row, or listVals
	ids    []int32   // listIDs, or nil: the id is the index
	whole  bool      // vals is the row, so that blockMax speaks of it
	last   rank      // the last rank kept
	sums   []float64 // [⌈vocab/blockSize⌉] weights of the kept tokens of each block of vals
	weight [digits]float64
	count  [digits]int32

	listVals []float32 // [≤ listCap], ids ascending
	listIDs  []int32
}

// rank is a place in the ranking.
type rank struct {
	key uint32 // of the logit
	id  int32
}

// key orders logits as unsigned integers. -0 and 0 are the same logit.
func key(x float32) uint32 {
	b := math.Float32bits(x)
	if b == 1<<31 {
		b = 0
	}
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

func (l rank) keeps(key uint32, id int32) bool { return key > l.key || key == l.key && id <= l.id }

func newRanking(vocab int) ranking {
	blocks := (vocab + blockSize - 1) / blockSize
	return ranking{blockMax: make([]float32, blocks), sums: make([]float64, blocks)}
}

// scan checks the row and takes the maximum of each block.
func (r *ranking) scan(logits []float32) error {
	r.max = float32(math.Inf(-1))
	for b := range r.blockMax {
		m := blockMaximum(block(logits, b))
		if !(m <= math.MaxFloat32) {
			return badLogit(logits, b)
		}
		r.blockMax[b] = m
		r.max = max(r.max, m)
	}
	if math.IsInf(float64(r.max), -1) {
		return ErrNoToken
	}
	return nil
}

func badLogit(logits []float32, b int) error {
	for i, x := range block(logits, b) {
		if !(x <= math.MaxFloat32) {
			return fmt.Errorf("%w: token %d has %v", ErrLogit, b*blockSize+i, x)
		}
	}
	panic("sample: unreachable: the block has a NaN or +Inf")
}

// rescan brings the maxima up to date after edits.
func (r *ranking) rescan(logits []float32, edits []edit) {
	if len(edits) == 0 {
		return
	}
	if len(edits) > len(r.blockMax) {
		for b := range r.blockMax {
			r.blockMax[b] = blockMaximum(block(logits, b))
		}
	} else {
		for _, e := range edits {
			b := int(e.token) / blockSize
			r.blockMax[b] = blockMaximum(block(logits, b))
		}
	}
	r.max = blockMaximum(r.blockMax)
}

// blockMaximum returns the largest value, NaN if there is one. Four maxima side by side, because each max waits
// for the one before it.
func blockMaximum(row []float32) float32 {
	m := row[0]
	a, b, c := m, m, m
	for ; len(row) >= 4; row = row[4:] {
		m, a, b, c = max(m, row[0]), max(a, row[1]), max(b, row[2]), max(c, row[3])
	}
	for _, x := range row {
		m = max(m, x)
	}
	return max(m, a, b, c)
}

// block returns the values of block b.
func block(vals []float32, b int) []float32 {
	lo := b * blockSize
	return vals[lo:min(lo+blockSize, len(vals))]
}

// argmax returns the first token with the largest logit.
func (r *ranking) argmax(logits []float32) int32 {
	for b, m := range r.blockMax {
		if m != r.max {
			continue
		}
		for i := b * blockSize; ; i++ {
			if logits[i] == m {
				return int32(i)
			}
		}
	}
	panic("sample: scan did not see this row")
}

// begin keeps all tokens of the row, which scan has seen.
func (r *ranking) begin(logits []float32, temperature float32) {
	r.perUnit = 1 / float64(temperature)
	r.vals, r.ids, r.whole = logits, nil, true
	r.last = rank{0, math.MaxInt32}
}

// weightOf is proportional to a token's probability, 1 for the likeliest.
func (r *ranking) weightOf(x float32) float64 {
	return expNeg((float64(r.max) - float64(x)) * r.perUnit)
}

func (r *ranking) id(i int) int32 {
	if r.ids == nil {
		return int32(i)
	}
	return r.ids[i]
}

// keepNear drops tokens whose logit over temperature is more than dist below the largest.
func (r *ranking) keepNear(dist float64) {
	floor := float64(r.max) - dist/r.perUnit
	x := float32(max(floor, -math.MaxFloat32))
	if float64(x) < floor {
		x = math.Nextafter32(x, math.MaxFloat32)
	}
	r.last = rank{key(x), math.MaxInt32}
	r.list(r.last.key)
}

// keepCount drops all but the first k ranks.
func (r *ranking) keepCount(k int) {
	if k >= len(r.vals) {
		return
	}
	if k <= len(r.blockMax) && r.whole {
		// At least k logits are as large as the k-th largest maximum, and seldom many more. So only the
		// maxima are looked through, and about k blocks.
		row := r.vals
		before := r.last
		r.vals, r.whole = r.blockMax, false
		r.last = rank{0, math.MaxInt32}
		r.cut(float64(k), true)
		floor := r.last.key
		r.vals, r.whole, r.last = row, true, before
		r.list(max(floor, before.key))
	}
	r.cut(float64(k), true)
}

// keepMass drops all but the fewest first ranks that hold the fraction p of the weight of what is kept.
func (r *ranking) keepMass(p float64) { r.cut(p, false) }

// list makes vals, the row, a list of the tokens with keys of at least floor, if they are few.
func (r *ranking) list(floor uint32) {
	if r.listVals == nil {
		r.listVals = make([]float32, 0, listCap)
		r.listIDs = make([]int32, 0, listCap)
	}
	vals, ids := r.listVals[:0], r.listIDs[:0]
	for b, m := range r.blockMax {
		if key(m) < floor {
			continue
		}
		row := block(r.vals, b)
		if len(vals)+len(row) > listCap {
			return // too many: stay with the row
		}
		for i, x := range row {
			if key(x) >= floor {
				vals, ids = append(vals, x), append(ids, int32(b*blockSize+i))
			}
		}
	}
	r.vals, r.ids, r.whole = vals, ids, false
}

// cut moves last up: to rank target if unit is set, else to the first rank at which the kept weights sum to the
// fraction target of them all. If fewer are kept, nothing changes. It is a radix selection over the keys' bits,
// highest first: three passes whatever the values are, the later two mostly over few tokens.
func (r *ranking) cut(target float64, unit bool) {
	prefix, shift := uint32(0), 32
	for _, width := range [3]int{digitBits, digitBits, 32 - 2*digitBits} {
		above := shift
		shift -= width
		total := r.tally(prefix, above, shift, unit)
		if above == 32 && !unit {
			target *= total
		}
		digit, rest := uint32(0), 0.0
		for d := uint32(1)<<width - 1; d < digits; d-- { // until it wraps
			if r.count[d] == 0 {
				continue
			}
			// The lowest digit in use also serves when rounding leaves a sum just short of the target.
			digit, rest = d, target
			if target -= r.weight[d]; target <= 0 {
				break
			}
		}
		if above == 32 && target > 0 {
			return
		}
		target = rest
		prefix = prefix<<width | digit
		if above == 32 && r.whole {
			r.list(prefix << shift)
		}
	}
	w := 1.0
	if !unit {
		w = r.weightOf(unkey(prefix))
	}
	r.last = rank{prefix, r.tied(prefix, target, w)}
}

// tally sums counts and weights of the kept tokens whose keys begin with prefix, by the digit that follows, and
// returns the sum of the weights.
func (r *ranking) tally(prefix uint32, above, shift int, unit bool) float64 {
	clear(r.weight[:])
	clear(r.count[:])
	floor := max(r.last.key, prefix<<above)
	mask := uint32(1)<<(above-shift) - 1
	w, total := 1.0, 0.0
	for b := range r.blocks() {
		if r.passed(b, floor) {
			continue
		}
		for i, x := range block(r.vals, b) {
			k := key(x)
			if k < floor || k>>above != prefix || !r.last.keeps(k, r.id(b*blockSize+i)) {
				continue
			}
			if !unit {
				w = r.weightOf(x)
			}
			d := k >> shift & mask
			r.weight[d] += w
			r.count[d]++
			total += w
		}
	}
	return total
}

// blocks is the number of blocks of vals.
func (r *ranking) blocks() int { return (len(r.vals) + blockSize - 1) / blockSize }

// passed reports whether block b of vals is known to have no key of at least floor.
func (r *ranking) passed(b int, floor uint32) bool {
	return r.whole && key(r.blockMax[b]) < floor
}

// unkey is the inverse of key.
func unkey(k uint32) float32 {
	if k>>31 == 1 {
		return math.Float32frombits(k &^ (1 << 31))
	}
	return math.Float32frombits(^k)
}

// tied returns the id of the last token to keep among those with the same key, of weight w each.
func (r *ranking) tied(k uint32, target, w float64) int32 {
	id := int32(0)
	for b := range r.blocks() {
		if r.passed(b, k) {
			continue
		}
		for i, x := range block(r.vals, b) {
			if at := r.id(b*blockSize + i); key(x) == k && r.last.keeps(k, at) {
				id = at
				if target -= w; target <= 0 {
					return id
				}
			}
		}
	}
	return id
}

// sum returns the weight of what is kept, and leaves that of each block in sums.
func (r *ranking) sum() float64 {
	total := 0.0
	all := r.last.key == 0
	for b := range r.blocks() {
		r.sums[b] = 0
		if r.passed(b, r.last.key) {
			continue
		}
		part := 0.0
		for i, x := range block(r.vals, b) {
			if all || r.last.keeps(key(x), r.id(b*blockSize+i)) {
				part += r.weightOf(x)
			}
		}
		r.sums[b] = part
		total += part
	}
	return total
}

// draw returns the first kept token, by id, at which the weights up to it exceed the fraction u of all.
func (r *ranking) draw(u float64) int32 {
	target := u * r.sum()
	b, rest := -1, target
	for i, w := range r.sums[:r.blocks()] {
		if w == 0 {
			continue
		}
		b, rest = i, target // the last block with weight also serves when rounding leaves a target beyond it
		if target < w {
			break
		}
		target -= w
	}
	if b < 0 {
		panic("sample: nothing is kept") // the likeliest token always is
	}
	tok := int32(-1)
	lo := b * blockSize
	for i, x := range block(r.vals, b) {
		if !r.last.keeps(key(x), r.id(lo+i)) {
			continue
		}
		w := r.weightOf(x)
		if w == 0 {
			continue
		}
		tok = r.id(lo + i)
		if rest < w {
			break
		}
		rest -= w
	}
	return tok
}
