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
func beginTokens(e elem, a, off, ahead, col reg.GPVirtual) tokenLoop {
	t := tokenLoop{
		tile: label("tile"), token: label("token"), count: arg(a, argLo), row: arg(a, argDim),
		v: GP64(), next: GP64(), left: GP64(), p: GP64(),
	}
	IMUL3Q(U32(e.bytes), t.row, t.row)
	Label(t.tile)
	i := GP64()
	MOVQ(t.count, i)
	SHRQ(U8(4), i)
	MOVQ(Mem{Base: off, Index: i, Scale: 8}, t.v)
	nextHalf(a, ahead, i, 2, t.next)
	MOVQ(col, t.p)
	SUBQ(at(a, argVOff), t.p)
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

// end closes it.
func (t tokenLoop) end(a reg.GPVirtual) {
	ADDQ(t.row, t.v)
	ADDQ(U8(4), t.p)
	DECQ(t.left)
	JNZ(LabelRef(t.token))
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

// nextValues walks what Q8_0's value product prefetches of the next stripe, in address order: tiles 2 and 3.
type nextValues struct{ p, second, left reg.GPVirtual }

// beginNextValues starts it; passes is how often the product walks the tiles for 32 dimensions.
func beginNextValues(a, ahead reg.GPVirtual, passes int) nextValues {
	n := nextValues{GP64(), GP64(), arg(a, argDim)}
	MOVQ(at(ahead, 16), n.p)
	MOVQ(at(ahead, 24), n.second)
	ADDQ(at(a, argBase), n.p)
	ADDQ(at(a, argBase), n.second)
	if passes == 1 {
		SHRQ(U8(4), n.left) // two halves of a tile, of dim/32 blocks each
	} else {
		SHRQ(U8(3), n.left)
	}
	return n
}

// prefetch fetches bytes more.
func (n nextValues) prefetch(bytes int) {
	for b := 0; b < bytes; b += 64 {
		prefetch(at(n.p, b))
	}
	ADDQ(U32(bytes), n.p)
	DECQ(n.left)
	CMOVQEQ(n.second, n.p)
}

// eachTile walks the tiles that hold tokens [lo, hi): do gets tile t's address, col bytes in.
func eachTile(a, off, col reg.GPVirtual, do func(v, t reg.GPVirtual)) {
	tile, t := label("tile"), arg(a, argLo)
	SHRQ(U8(4), t)
	Label(tile)
	v := GP64()
	MOVQ(Mem{Base: off, Index: t, Scale: 8}, v)
	ADDQ(at(a, argBase), v)
	ADDQ(col, v)
	do(v, t)
	INCQ(t)
	done := GP64()
	MOVQ(t, done)
	SHLQ(U8(4), done)
	CMPQ(done, at(a, argHi))
	JL(LabelRef(tile))
}

// eachBlock walks the blocks of 32 dimensions: where their integer weights go, and the value scales of a stripe.
func eachBlock(a, off reg.GPVirtual, rows int, do func(to reg.GPVirtual, v []reg.GPVirtual)) {
	block := label("block")
	v, vOff := tileAddrs(a, off, 0, tiles), arg(a, argVOff)
	to, left := arg(a, argP), arg(a, argDim)
	ADDQ(U32(rows*rowBytes), to)
	for _, p := range v {
		ADDQ(vOff, p)
	}
	Label(block)
	do(to, v)
	for _, p := range v {
		ADDQ(U8(32), p)
	}
	ADDQ(U32(rows*q8RowBytes), to)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
}

// warm fetches three lines of each tile, those where a page may begin, of the stripe behind the one that is prefetched.
// Pages in no order miss the translation cache; a walk that starts early holds up no other line.
func warm(a, ahead reg.GPVirtual) {
	for i := range tiles {
		p := GP64()
		MOVQ(at(ahead, 8*(tiles+i)), p)
		ADDQ(at(a, argBase), p)
		prefetch(at(p, 0))
		ADDQ(at(a, argVOff), p)
		prefetch(at(p, 0))
		ADDQ(at(a, argVOff), p)
		prefetch(at(p, -64))
	}
}
