package kvdot

import (
	"math"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// slack is how far a score may exceed its reference before the reference follows: exponentials stay below
// e⁸, far from overflow, and almost every stripe needs no maximum across lanes.
const slack = 8

var genericBody = body{
	group:   maxGroup,
	qWords:  func(l Layout, rows int) int { return rows * l.HeadDim },
	prepare: func(_ Layout, dst, q []float32, _ int) { copy(dst, q) },
	fold:    foldGeneric,
	read:    readGeneric,
}

// foldGeneric is the reference body: for every stripe scores, weights, values.
func foldGeneric(l Layout, a *foldArgs) {
	n, d := int(a.rows), l.HeadDim
	q, m := unsafe.Slice(a.q, n*d), unsafe.Slice(a.m, n)
	lanes, o := unsafe.Slice(a.l, n*TileTokens), unsafe.Slice(a.o, n*d)
	offs := unsafe.Slice(a.off, a.stripes*stripeTiles)
	p := unsafe.Slice(a.p, n*stripeTokens)
	var row [maxHeadDim]float32
	for ; len(offs) > 0; offs = offs[stripeTiles:] {
		for t := int(a.lo); t < int(a.hi); t++ {
			l.keyRow(row[:d], a.tile(l, offs[t/TileTokens]), t%TileTokens)
			for r := range n {
				p[r*stripeTokens+t] = a.cap(dot(q[r*d:(r+1)*d], row[:d]))
			}
		}
		for r := range n {
			w := p[r*stripeTokens : (r+1)*stripeTokens]
			a.hide(w, r)
			weigh(w, &m[r], lanes[r*TileTokens:(r+1)*TileTokens], o[r*d:(r+1)*d])
		}
		for t := int(a.lo); t < int(a.hi); t++ {
			l.valueRow(row[:d], a.tile(l, offs[t/TileTokens])[l.KBytes:], t%TileTokens)
			for r := range n {
				addScaled(o[r*d:(r+1)*d], row[:d], p[r*stripeTokens+t])
			}
		}
	}
}

// weigh turns a stripe's scores into weights exp(s-m), adds them to the lane sums, and first moves the
// state to a new reference if a score outgrew the old one.
func weigh(s []float32, m *float32, lanes, o []float32) {
	top := float32(math.Inf(-1))
	for _, x := range s {
		top = max(top, x)
	}
	if math.IsInf(float64(top), -1) {
		clear(s) // nothing to see: -Inf - -Inf would be NaN
		return
	}
	if !(top-*m <= slack) {
		f := exp(*m - top)
		*m = top
		for i := range lanes {
			lanes[i] *= f
		}
		for i := range o {
			o[i] *= f
		}
	}
	for t := range s {
		s[t] = exp(s[t] - *m)
		lanes[t%TileTokens] += s[t]
	}
}

// hide gives the tokens that row r does not see the score of a mask. Outside [lo, hi) there is no score yet.
func (a *foldArgs) hide(s []float32, r int) {
	if a.mask == nil {
		return
	}
	mask := unsafe.Slice(a.mask, a.rows)[r]
	for t := range s {
		if mask>>t&1 == 0 {
			s[t] = float32(math.Inf(-1))
		}
	}
}

func (a *foldArgs) cap(s float32) float32 {
	if a.softcap == 0 {
		return s
	}
	return a.softcap * float32(math.Tanh(float64(s*a.invCap)))
}

func (a *foldArgs) tile(l Layout, off int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(a.base, off)), l.TileBytes)
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

func dot(x, y []float32) (s float32) {
	y = y[:len(x)]
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

func addScaled(dst, x []float32, s float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += s * x[i]
	}
}

func (l Layout) keyRow(dst []float32, k []byte, slot int) {
	for d := range dst {
		dst[d] = l.keyAt(k, slot, d)
	}
}

func (l Layout) valueRow(dst []float32, v []byte, slot int) {
	switch l.Type {
	case quant.F16:
		for d := range dst {
			dst[d] = quant.F16ToF32(u16At(v, slot*l.HeadDim+d))
		}
	default:
		for d := range dst {
			dst[d] = l.valueAt(v, slot, d)
		}
	}
}

// readGeneric reads every word of the tiles.
func readGeneric(l Layout, base unsafe.Pointer, off []int64) {
	var sum uint64
	for _, o := range off {
		for _, w := range unsafe.Slice((*uint64)(unsafe.Add(base, o)), l.TileBytes/8) {
			sum |= w
		}
	}
	sink(sum)
}

//go:noinline
func sink(uint64) {}
