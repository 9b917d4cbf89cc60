package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// maxRows2 is the group of the AVX2 bodies: 16 registers hold fewer accumulators.
const maxRows2 = 4

// fold2 emits the AVX2 body for a group of rows. It is fold512 with 8 lanes: the same chains in the same
// order. Only the exponentials differ, by a rounding, and weights below 2^-126, which are 0 here.
func fold2(e elem, R int) {
	a := beginFold(e, R, "AVX2")
	f := folder2{e: e, R: R, a: a, c: constants()}
	f.off, f.ahead = arg(a, argOff), arg(a, argAhead)
	stripe := label("stripe")
	Label(stripe)
	warm(a, f.ahead)
	if e.bytes == 1 {
		f.scoresQ8()
	} else {
		f.scores([]int{4, 2, 2, 1}[R-1])
	}
	f.softcap()
	f.hide()
	f.softmax()
	if e.bytes == 1 {
		f.quantiseWeights()
		f.valuesQ8()
	} else {
		f.values()
	}
	ADDQ(U8(8*tiles), f.off)
	ADDQ(U8(8*tiles), f.ahead)
	DECQ(at(a, argStripes))
	JNZ(LabelRef(stripe))
	VZEROUPPER()
	RET()
}

type folder2 struct {
	e          elem
	R          int
	a          reg.GPVirtual
	off, ahead reg.GPVirtual // this stripe's tile offsets
	c          func(int) Mem
}

// widen loads 8 elements as float32.
func (f *folder2) widen(m Mem) reg.VecVirtual {
	v := YMM()
	switch f.e.name {
	case "F16":
		VCVTPH2PS(m, v)
	case "BF16":
		VPMOVZXWD(m, v)
		VPSLLD(U8(16), v, v)
	case "F32":
		VMOVUPS(m, v)
	}
	return v
}

// scores leaves p[r][64] = ⟨q_r, k⟩ of the stripe's tokens, n tiles at a time.
func (f *folder2) scores(n int) {
	const unroll = 4
	first, p := GP64(), arg(f.a, argP)
	XORQ(first, first)
	group, loop := label("tiles"), label("dims")
	Label(group)
	tile := make([]reg.GPVirtual, n)
	for t := range tile {
		tile[t] = GP64()
		MOVQ(Mem{Base: f.off, Index: first, Scale: 8, Disp: 8 * t}, tile[t])
		ADDQ(at(f.a, argBase), tile[t])
	}
	next, second, middle := GP64(), GP64(), arg(f.a, argDim)
	nextHalf(f.a, f.ahead, first, 0, next)
	SHRQ(U8(1), middle)
	if n == tiles { // the only case in which a pass over the dimensions prefetches more than one tile
		MOVQ(at(f.ahead, 8), second)
		ADDQ(at(f.a, argBase), second)
	}
	q, left := arg(f.a, argQ), arg(f.a, argDim)
	acc := make([][]reg.VecVirtual, f.R)
	for r := range acc {
		for range 2 * n {
			x := YMM()
			VXORPS(x, x, x)
			acc[r] = append(acc[r], x)
		}
	}
	step := 16 * f.e.bytes // bytes of a dimension in a tile
	Label(loop)
	if n == tiles {
		CMPQ(left, middle)
		CMOVQEQ(second, next)
	}
	for u := range unroll {
		for line := u * n * step; line < (u+1)*n*step; line += 64 {
			if line%64 == 0 {
				prefetch(at(next, line))
			}
		}
		qv := make([]reg.VecVirtual, f.R)
		for r := range qv {
			qv[r] = YMM()
			VBROADCASTSS(at(q, 4*(u*f.R+r)), qv[r])
		}
		for t := range tile {
			for half := range 2 {
				kv := f.widen(at(tile[t], u*step+half*step/2))
				for r := range acc {
					VFMADD231PS(qv[r], kv, acc[r][2*t+half])
				}
			}
		}
	}
	ADDQ(U32(4*unroll*f.R), q)
	for t := range tile {
		ADDQ(U32(unroll*step), tile[t])
	}
	ADDQ(U32(unroll*n*step), next)
	SUBQ(U8(unroll), left)
	JNZ(LabelRef(loop))
	for r := range acc {
		for i, x := range acc[r] {
			VMOVUPS(x, at(p, rowBytes*r+tileScores/2*i))
		}
	}
	ADDQ(U32(tileScores*n), p)
	ADDQ(U8(n), first)
	CMPQ(first, U8(tiles))
	JL(LabelRef(group))
}

// softcap replaces every score by softcap·tanh(score/softcap), if there is one.
func (f *folder2) softcap() {
	done, loop := label("uncapped"), label("cap")
	CMPL(at(f.a, argSoftcap), U8(0))
	JE(LabelRef(done))
	p, n := arg(f.a, argP), GP64()
	MOVQ(U32(2*tiles*f.R), n)
	Label(loop)
	u, x, sign, small := YMM(), YMM(), YMM(), YMM()
	VBROADCASTSS(at(f.a, argInvCap), u)
	VMULPS(at(p, 0), u, u)
	VANDPS(f.c(cMagnitude), u, x)
	VANDPS(f.c(cSign), u, sign)
	VCMPPS(U8(17), f.c(cTanhCut), x, small) // x < cut
	VMINPS(f.c(cTanhMax), x, x)
	VADDPS(x, x, x)
	e := f.exp(x) // tanh(x) = 1 - 2/(e^2x + 1)
	VADDPS(f.c(cOne), e, e)
	t, one := YMM(), YMM()
	VMOVUPS(f.c(cTwo), t)
	VDIVPS(e, t, t)
	VMOVUPS(f.c(cOne), one)
	VSUBPS(t, one, t)
	VORPS(sign, t, t)
	z, y := YMM(), YMM() // and u + u³·p(u²) near 0, where that cancels
	VMULPS(u, u, z)
	VMOVUPS(f.c(cTanh), y)
	for i := 1; i < 5; i++ {
		VFMADD213PS(f.c(cTanh+i), z, y)
	}
	VMULPS(u, z, z)
	VFMADD213PS(u, z, y)
	VBLENDVPS(small, y, t, t)
	limit := YMM()
	VBROADCASTSS(at(f.a, argSoftcap), limit)
	VMULPS(limit, t, t)
	VMOVUPS(t, at(p, 0))
	ADDQ(U8(32), p)
	DECQ(n)
	JNZ(LabelRef(loop))
	Label(done)
}

// hide gives tokens that a row does not see the score -Inf.
func (f *folder2) hide() {
	done, loop := label("unmasked"), label("hide")
	mask := arg(f.a, argMask)
	TESTQ(mask, mask)
	JZ(LabelRef(done))
	p, i, bit, ninf := arg(f.a, argP), GP64(), YMM(), YMM()
	VMOVUPS(f.c(cLaneBit), bit)
	VMOVUPS(f.c(cNegInf), ninf)
	XORQ(i, i)
	Label(loop) // a byte of the masks is 8 tokens, as a vector
	b, x, seen := GP32(), YMM(), YMM()
	MOVBLZX(at2(mask, i, 0), b)
	VMOVD(b, seen.AsX())
	VPBROADCASTD(seen.AsX(), seen)
	VPAND(bit, seen, seen)
	VPCMPEQD(bit, seen, seen)
	VMOVUPS(at(p, 0), x)
	VBLENDVPS(seen, x, ninf, x)
	VMOVUPS(x, at(p, 0))
	ADDQ(U8(32), p)
	INCQ(i)
	CMPQ(i, U8(8*f.R))
	JL(LabelRef(loop))
	Label(done)
}

// softmax turns the scores into weights exp(s-m) and adds them to l. When a score exceeds m by more than
// the slack, or m is -Inf, the state moves to the largest score first.
func (f *folder2) softmax() {
	row, weights, next := label("row"), label("weights"), label("next")
	m, l, o, p := arg(f.a, argM), arg(f.a, argL), arg(f.a, argO), arg(f.a, argP)
	stride, n := arg(f.a, argDim), GP64()
	SHLQ(U8(2), stride)
	MOVQ(U32(f.R), n)
	Label(row)
	ref, top, over, test := YMM(), YMM(), YMM(), GP32()
	VBROADCASTSS(at(m, 0), ref)
	VMOVUPS(at(p, 0), top)
	for i := 1; i < 2*tiles; i++ {
		VMAXPS(at(p, 32*i), top, top)
	}
	VSUBPS(ref, top, over)
	VCMPPS(U8(22), f.c(cSlack), over, over) // not ≤: true for NaN, which -Inf - -Inf is
	VMOVMSKPS(over, test)
	TESTL(test, test)
	JZ(LabelRef(weights))
	f.rescale(m, l, o, p, stride, ref, top, next)
	Label(weights)
	for half := range 2 { // lanes 0..7 and 8..15 of l
		var pair, sum reg.VecVirtual
		for t := range tiles {
			x := YMM()
			VMOVUPS(at(p, tileScores*t+32*half), x)
			VSUBPS(ref, x, x)
			w := f.exp(x)
			VMOVUPS(w, at(p, tileScores*t+32*half))
			switch t {
			case 0, 2:
				pair = w
			case 1:
				sum = pair
				VADDPS(w, sum, sum)
			case 3:
				VADDPS(w, pair, pair)
				VADDPS(pair, sum, sum)
			}
		}
		VADDPS(at(l, 32*half), sum, sum)
		VMOVUPS(sum, at(l, 32*half))
	}
	Label(next)
	ADDQ(U8(4), m)
	ADDQ(U8(64), l)
	ADDQ(U32(rowBytes), p)
	ADDQ(stride, o)
	DECQ(n)
	JNZ(LabelRef(row))
}

// rescale moves a row's reference to its largest score and scales l and o to it. A row that sees nothing
// and never has keeps its state; its weights are 0.
func (f *folder2) rescale(m, l, o, p, stride reg.GPVirtual, ref, top reg.VecVirtual, next string) {
	some, loop := label("some"), label("o")
	x := YMM()
	VPERM2F128(U8(1), top, top, x)
	VMAXPS(x, top, top)
	VPERMILPS(U8(0x4E), top, x)
	VMAXPS(x, top, top)
	VPERMILPS(U8(0xB1), top, x)
	VMAXPS(x, top, top)
	VMAXPS(ref, top, top)
	ninf := XMM()
	VMOVSS(f.c(cNegInf), ninf)
	VUCOMISS(ninf, top.AsX())
	JP(LabelRef(some)) // NaN
	JNE(LabelRef(some))
	zero := YMM()
	VXORPS(zero, zero, zero)
	for i := range 2 * tiles {
		VMOVUPS(zero, at(p, 32*i))
	}
	JMP(LabelRef(next))

	Label(some)
	VMOVSS(top.AsX(), at(m, 0))
	VSUBPS(top, ref, ref)
	scale := f.exp(ref)
	VMOVAPS(top, ref)
	for half := range 2 {
		VMULPS(at(l, 32*half), scale, x)
		VMOVUPS(x, at(l, 32*half))
	}
	i := GP64()
	XORQ(i, i)
	Label(loop)
	VMULPS(at2(o, i, 0), scale, x)
	VMOVUPS(x, at2(o, i, 0))
	ADDQ(U8(32), i)
	CMPQ(i, stride)
	JL(LabelRef(loop))
}

// exp returns e^x (x is overwritten), x ≤ 88: 2^floor(y)·2^(y-floor(y)), y = x·log2 e. Below 2^-126 it is 0.
func (f *folder2) exp(x reg.VecVirtual) reg.VecVirtual {
	n, p := YMM(), YMM()
	VMULPS(f.c(cLog2e), x, x)
	VMOVUPS(f.c(cMinExp), n)
	VMAXPS(x, n, x) // of a NaN and a number the first operand here, so NaN stays
	VROUNDPS(U8(9), x, n)
	VSUBPS(n, x, x)
	VMOVUPS(f.c(cPoly), p)
	for i := 1; i < polyLen; i++ {
		VFMADD213PS(f.c(cPoly+i), x, p)
	}
	VCVTTPS2DQ(n, n)
	VPADDD(f.c(cBias), n, n)
	VPSLLD(U8(23), n, n)
	VMULPS(n, p, p)
	return p
}

// values adds the weighted values of tokens [lo, hi) to o, as many vectors of 8 dimensions at a time as the
// accumulators allow.
func (f *folder2) values() {
	o, left := arg(f.a, argO), arg(f.a, argDim)
	col := arg(f.a, argVOff) // bytes of the dimensions done, in a token's values
	widths := [][]int{{8, 4, 1}, {4, 1}, {4, 1}, {2, 1}}[f.R-1]
	for _, w := range widths {
		loop, skip := label("cols"), label("narrower")
		Label(loop)
		CMPQ(left, U32(8*w))
		JL(LabelRef(skip))
		f.valueCols(o, col, w)
		ADDQ(U32(32*w), o)
		ADDQ(U32(8*w*f.e.bytes), col)
		SUBQ(U32(8*w), left)
		JMP(LabelRef(loop))
		Label(skip)
	}
}

// valueCols does w vectors of dimensions.
func (f *folder2) valueCols(o, col reg.GPVirtual, w int) {
	acc := make([][]reg.VecVirtual, f.R)
	eachRow := func(do func(r int, row reg.GPVirtual)) {
		ptr, stride := GP64(), arg(f.a, argDim)
		MOVQ(o, ptr)
		for r := range acc {
			do(r, ptr)
			if r < f.R-1 {
				LEAQ(Mem{Base: ptr, Index: stride, Scale: 4}, ptr)
			}
		}
	}
	eachRow(func(r int, row reg.GPVirtual) {
		for j := range w {
			acc[r] = append(acc[r], YMM())
			VMOVUPS(at(row, 32*j), acc[r][j])
		}
	})
	f.tokens(acc, col, w)
	eachRow(func(r int, row reg.GPVirtual) {
		for j := range w {
			VMOVUPS(acc[r][j], at(row, 32*j))
		}
	})
}

// tokens adds tokens [lo, hi) to the accumulators, tile by tile.
func (f *folder2) tokens(acc [][]reg.VecVirtual, col reg.GPVirtual, w int) {
	t := beginTokens(f.e, f.a, f.off, f.ahead, col)
	bytes := 8 * w * f.e.bytes
	t.prefetch(bytes)
	wt := make([]reg.VecVirtual, f.R)
	for r := range wt {
		wt[r] = YMM()
		VBROADCASTSS(at(t.p, rowBytes*r), wt[r])
	}
	for i := range w {
		x := f.widen(at(t.v, 8*f.e.bytes*i))
		for r := range acc {
			VFMADD231PS(wt[r], x, acc[r][i])
		}
	}
	t.end(f.a)
}

func read2() {
	readTiles("readAVX2", 32, func(m Mem, s reg.VecVirtual) { VORPS(m, s, s) })
}
