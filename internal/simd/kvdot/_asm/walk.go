package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tokenLoop is the walk over the values of a stripe's tokens [lo, hi), tile by tile.
type tokenLoop struct {
	tile, token string // labels
	count, left reg.GPVirtual
	row         reg.GPVirtual
	v           reg.GPVirtual // this token's values, from column col on
	next        reg.GPVirtual // bytes from v to what to prefetch meanwhile
	p           reg.GPVirtual // the first row's weight of this token, rows are rowBytes apart
}

// beginTokens opens the loop body.
func beginTokens(e elem, rows int, a, off, ahead, col, wcol reg.GPVirtual) tokenLoop {
	t := tokenLoop{
		tile: label("tile"), token: label("token"), count: arg(a, argLo), row: arg(a, argDim),
		v: GP64(), next: GP64(), left: GP64(), p: GP64(),
	}
	if e.bytes > 1 {
		IMUL3Q(U32(e.bytes), t.row, t.row)
	}
	Label(t.tile)
	i := GP64()
	MOVQ(t.count, i)
	SHRQ(U8(4), i)
	MOVQ(Mem{Base: off, Index: i, Scale: 8}, t.v)
	nextHalf(a, ahead, i, 2, t.next)
	MOVQ(col, t.p)
	SUBQ(at(a, argVOff), t.p)
	if e.bytes == 1 {
		SUBQ(q8ScaleBytes(a), t.p)
	}
	if e.bytes == 1 { // 16 codes, 2 bytes of scales a block, have 17 bytes for every byte of a token
		ADDQ(t.p, t.next)
	}
	SHLQ(U8(4), t.p)
	ADDQ(t.p, t.next)
	ADDQ(at(a, argBase), t.v)
	ADDQ(col, t.v)
	MOVQ(t.count, i)
	ANDQ(U8(15), i)
	MOVQ(U32(16), t.left)
	SUBQ(i, t.left)
	IMULQ(t.row, i)
	ADDQ(i, t.v)
	MOVQ(at(a, argHi), i)
	SUBQ(t.count, i)
	CMPQ(t.left, i)
	CMOVQGT(i, t.left)
	MOVQ(at(a, argP), t.p)
	if e.bytes == 1 { // the weights scaled for this block follow the plain ones
		ADDQ(wcol, t.p)
		ADDQ(U32(rows*rowBytes), t.p)
	}
	LEAQ(Mem{Base: t.p, Index: t.count, Scale: 4}, t.p)
	ADDQ(t.left, t.count)
	Label(t.token)
	return t
}

// prefetch fetches what is bytes of a token more of the next stripe.
func (t tokenLoop) prefetch(bytes int) {
	for b := 0; b < bytes; b += 64 {
		prefetch(at(t.next, b))
	}
	ADDQ(U32(bytes), t.next)
}

// end closes it; bytes is what prefetch was given.
func (t tokenLoop) end(e elem, a reg.GPVirtual, bytes int) {
	ADDQ(t.row, t.v)
	ADDQ(U8(4), t.p)
	DECQ(t.left)
	JNZ(LabelRef(t.token))
	if e.bytes == 1 {
		t.prefetch(bytes) // the seventeenth
	}
	CMPQ(t.count, at(a, argHi))
	JL(LabelRef(t.tile))
}

// readTiles emits a reader with vectors of size bytes; or emits s |= m.
func readTiles(name string, size int, or func(m Mem, s reg.VecVirtual)) {
	a := begin(name, fmt.Sprintf("%s reads n tiles of size bytes, a multiple of 128: base, off, n, size.", name))
	base, off, n := arg(a, 0), arg(a, 8), arg(a, 16)
	var s []reg.VecVirtual
	for range 128 / size {
		x := YMM()
		VXORPS(x, x, x)
		if size == 64 {
			x = ZMM()
			zero512(x)
		}
		s = append(s, x)
	}
	Label("tile")
	p, left := GP64(), GP64()
	MOVQ(at(off, 0), p)
	ADDQ(base, p)
	MOVQ(at(a, 24), left)
	Label("line")
	for i := range s {
		or(at(p, size*i), s[i])
	}
	SUBQ(I8(-128), p)
	ADDQ(I8(-128), left)
	JNZ(LabelRef("line"))
	ADDQ(U8(8), off)
	DECQ(n)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// nextHalf sets next to the tile half to prefetch while tile i of the stripe is worked on: keys, then values
// of two tiles, from the first-th on.
func nextHalf(a, ahead, i reg.GPVirtual, first int, next reg.GPVirtual) {
	odd := GP64()
	MOVQ(i, odd)
	SHRQ(U8(1), odd)
	MOVQ(Mem{Base: ahead, Index: odd, Scale: 8, Disp: 8 * first}, next)
	ADDQ(at(a, argBase), next)
	MOVQ(i, odd)
	ANDQ(U8(1), odd)
	IMULQ(at(a, argVOff), odd)
	ADDQ(odd, next)
}
