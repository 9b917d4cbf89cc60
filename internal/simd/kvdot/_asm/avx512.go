package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// maxRows512 is the group of the AVX-512 bodies: 24 accumulators and room to convert.
const maxRows512 = 6

// fold512 emits the body for a group of rows: for every stripe scores, softmax, values.
//
// Scores: a lane is a token; each (row, tile) has one accumulator, summed over the dimensions in order.
// Values: a lane is a dimension; each (row, 16 dimensions) has one accumulator over the stripe's tokens.
// Four tiles and four vectors of values at a time give R·4 independent chains, which hide the latency of
// the multiply-add and spread each conversion over R of them.
func fold512(e elem, R int) {
	a := beginFold(e, R, "AVX512")
	f := folder512{e: e, R: R, a: a, c: constants()}
	f.off, f.ahead = arg(a, argOff), arg(a, argAhead)
	stripe := label("stripe")
	Label(stripe)
	warm(a, f.ahead)
	if e.bytes == 1 {
		f.scoresQ8()
	} else {
		f.scores()
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

type folder512 struct {
	e          elem
	R          int
	a          reg.GPVirtual
	off, ahead reg.GPVirtual // this stripe's tile offsets
	c          func(int) Mem

	odd   reg.OpmaskVirtual // Q8_0: of 16-bit words
	split reg.VecVirtual    // a shuffle
}

// widen loads 16 elements as float32.
func (f *folder512) widen(m Mem) reg.VecVirtual {
	v := ZMM()
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

// widenMasked loads the elements that mask selects, 0 for others; nothing else is read.
func (f *folder512) widenMasked(m Mem, mask reg.Register) reg.VecVirtual {
	v := ZMM()
	switch f.e.name {
	case "F16":
		VCVTPH2PS_Z(m, mask, v)
	case "BF16":
		VPMOVZXWD_Z(m, mask, v)
		VPSLLD(U8(16), v, v)
	case "F32":
		VMOVUPS_Z(m, mask, v)
	}
	return v
}

// scores leaves p[r][64] = ⟨q_r, k⟩ of the stripe's tokens.
func (f *folder512) scores() {
	unroll := 8
	if f.R > 3 {
		unroll = 4
	}
	tile := tileAddrs(f.a, f.off, 0, tiles)
	next := tileAddrs(f.a, f.ahead, 0, 2)
	q, idx, end, half := arg(f.a, argQ), GP64(), arg(f.a, argDim), GP64()
	XORQ(idx, idx)
	step := 16 * f.e.bytes // bytes of a dimension in a tile
	IMUL3Q(U32(step), end, end)
	// Prefetched meanwhile: two tiles, in address order. The second starts when half of the dimensions are done.
	MOVQ(end, half)
	SHRQ(U8(1), half)
	SUBQ(end, next[1])
	SUBQ(end, next[1])
	acc := make([][tiles]reg.VecVirtual, f.R)
	for r := range acc {
		for t := range acc[r] {
			acc[r][t] = ZMM()
			zero512(acc[r][t])
		}
	}
	loop := label("dims")
	Label(loop)
	CMPQ(idx, half)
	CMOVQGE(next[1], next[0])
	for u := range unroll {
		for line := u * 4 * step; line < (u+1)*4*step; line += 64 {
			prefetch(Mem{Base: next[0], Index: idx, Scale: 4, Disp: line})
		}
		for t := range tiles {
			kv := f.widen(at2(tile[t], idx, u*step))
			for r := range acc {
				VFMADD231PS_BCST(at(q, 4*(u*f.R+r)), kv, acc[r][t])
			}
		}
	}
	ADDQ(U32(4*unroll*f.R), q)
	ADDQ(U32(unroll*step), idx)
	CMPQ(idx, end)
	JL(LabelRef(loop))
	p := arg(f.a, argP)
	for r := range acc {
		for t := range acc[r] {
			VMOVUPS(acc[r][t], at(p, rowBytes*r+tileScores*t))
		}
	}
}

// softcap replaces every score by softcap·tanh(score/softcap), if there is one.
func (f *folder512) softcap() {
	done, loop := label("uncapped"), label("cap")
	CMPL(at(f.a, argSoftcap), U8(0))
	JE(LabelRef(done))
	p, n := arg(f.a, argP), GP64()
	MOVQ(U32(tiles*f.R), n)
	Label(loop)
	u, x, sign := ZMM(), ZMM(), ZMM()
	VMOVUPS(at(p, 0), u)
	VMULPS_BCST(at(f.a, argInvCap), u, u)
	VPANDD_BCST(f.c(cMagnitude), u, x)
	VPANDD_BCST(f.c(cSign), u, sign)
	k := K()
	VCMPPS_BCST(U8(17), f.c(cTanhCut), x, k) // x < cut
	VMINPS_BCST(f.c(cTanhMax), x, x)
	VADDPS(x, x, x)
	e := f.exp(x) // tanh(x) = 1 - 2/(e^2x + 1)
	VADDPS_BCST(f.c(cOne), e, e)
	t := ZMM()
	VBROADCASTSS(f.c(cTwo), t)
	VDIVPS(e, t, t)
	one := ZMM()
	VBROADCASTSS(f.c(cOne), one)
	VSUBPS(t, one, t)
	VPORD(sign, t, t)
	z, y := ZMM(), ZMM() // and u + u³·p(u²) near 0, where that cancels
	VMULPS(u, u, z)
	VBROADCASTSS(f.c(cTanh), y)
	for i := 1; i < 5; i++ {
		VFMADD213PS_BCST(f.c(cTanh+i), z, y)
	}
	VMULPS(u, z, z)
	VFMADD213PS(u, z, y)
	VMOVAPS(y, k, t)
	VMULPS_BCST(at(f.a, argSoftcap), t, t)
	VMOVUPS(t, at(p, 0))
	ADDQ(U8(64), p)
	DECQ(n)
	JNZ(LabelRef(loop))
	Label(done)
}

// hide gives tokens that a row does not see the score -Inf.
func (f *folder512) hide() {
	done := label("unmasked")
	mask := arg(f.a, argMask)
	TESTQ(mask, mask)
	JZ(LabelRef(done))
	p, ninf := arg(f.a, argP), ZMM()
	VBROADCASTSS(f.c(cNegInf), ninf)
	for r := range f.R {
		bits := GP64()
		MOVQ(at(mask, 8*r), bits)
		NOTQ(bits)
		for t := range tiles {
			k := K()
			KMOVW(bits.As32(), k)
			VMOVUPS(ninf, k, at(p, rowBytes*r+tileScores*t))
			SHRQ(U8(16), bits)
		}
	}
	Label(done)
}

// softmax turns the scores into weights exp(s-m) and adds them to l. When a score exceeds m by more than
// the slack, or m is -Inf, the state moves to the largest score first.
func (f *folder512) softmax() {
	row, weights, next := label("row"), label("weights"), label("next")
	m, l, o, p := arg(f.a, argM), arg(f.a, argL), arg(f.a, argO), arg(f.a, argP)
	stride, n := arg(f.a, argDim), GP64()
	SHLQ(U8(2), stride)
	MOVQ(U32(f.R), n)
	Label(row)
	x, top := make([]reg.VecVirtual, tiles), ZMM()
	ref := ZMM()
	VBROADCASTSS(at(m, 0), ref)
	for t := range x {
		x[t] = ZMM()
		VMOVUPS(at(p, tileScores*t), x[t])
		VSUBPS(ref, x[t], x[t])
	}
	t0 := ZMM()
	VMAXPS(x[0], x[1], top)
	VMAXPS(x[2], x[3], t0)
	VMAXPS(t0, top, top)
	k := K()
	VCMPPS_BCST(U8(22), f.c(cSlack), top, k) // not ≤: true for NaN, which -Inf - -Inf is
	KORTESTW(k, k)
	JZ(LabelRef(weights))
	f.rescale(m, l, o, p, stride, ref, x, next)
	Label(weights)
	var sum reg.VecVirtual
	var pair reg.VecVirtual
	for t := range x {
		w := f.exp(x[t])
		VMOVUPS(w, at(p, tileScores*t))
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
	VADDPS(at(l, 0), sum, sum)
	VMOVUPS(sum, at(l, 0))
	Label(next)
	ADDQ(U8(4), m)
	ADDQ(U8(64), l)
	ADDQ(U32(rowBytes), p)
	ADDQ(stride, o)
	DECQ(n)
	JNZ(LabelRef(row))
}

// rescale moves a row's reference to its largest score, scales l and o to it, and leaves the new s-m in x.
// A row that sees nothing and never has keeps its state; its weights are 0.
func (f *folder512) rescale(m, l, o, p, stride reg.GPVirtual, ref reg.VecVirtual, x []reg.VecVirtual, next string) {
	some, loop := label("some"), label("o")
	top, t := ZMM(), ZMM()
	VMOVUPS(at(p, 0), top)
	for i := 1; i < tiles; i++ {
		VMAXPS(at(p, tileScores*i), top, top)
	}
	VSHUFF32X4(U8(0x4E), top, top, t)
	VMAXPS(t, top, top)
	VSHUFF32X4(U8(0xB1), top, top, t)
	VMAXPS(t, top, top)
	VPERMILPS(U8(0x4E), top, t)
	VMAXPS(t, top, top)
	VPERMILPS(U8(0xB1), top, t)
	VMAXPS(t, top, top)
	VMAXPS(ref, top, top)
	ninf := XMM()
	VMOVSS(f.c(cNegInf), ninf)
	VUCOMISS(ninf, top.AsX())
	JP(LabelRef(some)) // NaN
	JNE(LabelRef(some))
	zero := ZMM()
	zero512(zero)
	for i := range tiles {
		VMOVUPS(zero, at(p, tileScores*i))
	}
	JMP(LabelRef(next))

	Label(some)
	VMOVSS(top.AsX(), at(m, 0))
	VSUBPS(top, ref, ref)
	scale := f.exp(ref)
	VMULPS(at(l, 0), scale, t)
	VMOVUPS(t, at(l, 0))
	i := GP64()
	XORQ(i, i)
	Label(loop)
	y := YMM()
	VMULPS(at2(o, i, 0), scale.AsY(), y)
	VMOVUPS(y, at2(o, i, 0))
	ADDQ(U8(32), i)
	CMPQ(i, stride)
	JL(LabelRef(loop))
	for i := range x {
		VMOVUPS(at(p, tileScores*i), x[i])
		VSUBPS(top, x[i], x[i])
	}
}

// exp returns e^x (x is overwritten): 2^y = 2^floor(y)·2^(y-floor(y)), y = x·log2 e. -Inf gives 0.
func (f *folder512) exp(x reg.VecVirtual) reg.VecVirtual {
	r, p := ZMM(), ZMM()
	VMULPS_BCST(f.c(cLog2e), x, x)
	VREDUCEPS(U8(1), x, r) // y - floor(y); 0 for an infinity
	VBROADCASTSS(f.c(cPoly), p)
	for i := 1; i < polyLen; i++ {
		VFMADD213PS_BCST(f.c(cPoly+i), r, p)
	}
	VSCALEFPS(x, p, p) // uses floor(y)
	return p
}

// values adds the weighted values of tokens [lo, hi) to o, as many vectors of 16 dimensions at a time as
// the accumulators allow.
func (f *folder512) values() {
	o, left := arg(f.a, argO), arg(f.a, argDim)
	col := GP64() // bytes of the dimensions done, in a token's values
	MOVQ(at(f.a, argVOff), col)
	widths := []int{8, 4, 2, 1}
	if f.R > 3 {
		widths = widths[1:]
	}
	for _, w := range widths {
		loop, skip := label("cols"), label("narrower")
		Label(loop)
		if w > 1 {
			CMPQ(left, U32(16*w))
			JL(LabelRef(skip))
		} else {
			TESTQ(left, left)
			JLE(LabelRef(skip))
		}
		f.valueCols(o, left, col, w)
		ADDQ(U32(64*w), o)
		ADDQ(U32(16*w*f.e.bytes), col)
		SUBQ(U32(16*w), left)
		JMP(LabelRef(loop))
		Label(skip)
	}
}

// valueCols does w vectors of dimensions. The last vector may be half full: w = 1 is masked.
func (f *folder512) valueCols(o, left, col reg.GPVirtual, w int) {
	var mask reg.Register
	if w == 1 {
		k, bits, half := K(), GP32(), label("whole")
		MOVL(U32(0xffff), bits)
		CMPQ(left, U8(16))
		JGE(LabelRef(half))
		MOVL(U32(0xff), bits)
		Label(half)
		KMOVW(bits, k)
		mask = k
	}
	stride := arg(f.a, argDim)
	acc := make([][]reg.VecVirtual, f.R)
	ptr := GP64()
	MOVQ(o, ptr)
	for r := range acc {
		for j := range w {
			acc[r] = append(acc[r], ZMM())
			if mask != nil {
				VMOVUPS_Z(at(ptr, 0), mask, acc[r][j])
			} else {
				VMOVUPS(at(ptr, 64*j), acc[r][j])
			}
		}
		if r < f.R-1 {
			LEAQ(Mem{Base: ptr, Index: stride, Scale: 4}, ptr)
		}
	}
	f.tokens(acc, col, mask, w)
	MOVQ(o, ptr)
	for r := range acc {
		for j := range w {
			if mask != nil {
				VMOVUPS(acc[r][j], mask, at(ptr, 0))
			} else {
				VMOVUPS(acc[r][j], at(ptr, 64*j))
			}
		}
		if r < f.R-1 {
			stride := arg(f.a, argDim)
			LEAQ(Mem{Base: ptr, Index: stride, Scale: 4}, ptr)
		}
	}
}

// tokens adds tokens [lo, hi) to the accumulators, tile by tile.
func (f *folder512) tokens(acc [][]reg.VecVirtual, col reg.GPVirtual, mask reg.Register, w int) {
	t := beginTokens(f.e, f.a, f.off, f.ahead, col)
	bytes := 16 * w * f.e.bytes
	t.prefetch(bytes)
	for i := range w {
		var x reg.VecVirtual
		if m := at(t.v, 16*f.e.bytes*i); mask != nil {
			x = f.widenMasked(m, mask)
		} else {
			x = f.widen(m)
		}
		for r := range f.R {
			VFMADD231PS_BCST(at(t.p, rowBytes*r), x, acc[r][i])
		}
	}
	t.end(f.a)
}

func read512() {
	readTiles("readAVX512", 64, func(m Mem, s reg.VecVirtual) { VPORD(m, s, s) })
}
