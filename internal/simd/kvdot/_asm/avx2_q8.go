package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scoresQ8 leaves p[r][64] = ⟨q_r, k⟩, 8 tokens at a time: per block of 32 dimensions the same exact integer
// product with 16-bit queries as the AVX-512 body. The even, then the odd of four bytes widen to 16 bits by
// a mask or a shift; the two words of a prepared query hold dimensions 0 and 2, then 1 and 3.
func (f *folder2) scoresQ8() {
	R := f.R
	scales := q8ScaleBytes(f.a)
	i, p := GP64(), arg(f.a, argP)
	XORQ(i, i)
	half, block := label("half"), label("block")
	Label(half) // i counts halves of tiles
	k, next, codes := GP64(), GP64(), GP64()
	MOVQ(i, codes)
	SHRQ(U8(1), codes)
	MOVQ(Mem{Base: f.off, Index: codes, Scale: 8}, k)
	nextHalf(f.a, f.ahead, codes, 0, next)
	ADDQ(at(f.a, argBase), k)
	MOVQ(i, codes)
	ANDQ(U8(1), codes)
	SHLQ(U8(4), codes)
	ADDQ(codes, k)
	LEAQ(Mem{Base: k, Index: codes, Scale: 1}, codes)
	ADDQ(scales, codes)
	q, left := arg(f.a, argQ), arg(f.a, argDim)
	ADDQ(U8(4*R), q)
	acc, sum := make([]reg.VecVirtual, R), make([]reg.VecVirtual, R)
	for r := range acc {
		acc[r] = YMM()
		VXORPS(acc[r], acc[r], acc[r])
	}
	Label(block)
	for r := range sum {
		sum[r] = YMM()
		VPBROADCASTD(at(q, 4*(8*R*q8QuadWords+r)), sum[r])
	}
	for quad := range 8 {
		prefetch(at(next, 64*quad))
		x, even := YMM(), YMM()
		VMOVDQU(at(codes, 64*quad), x)
		VPAND(f.c(cEvenBytes), x, even)
		VPSRLW(U8(8), x, x)
		for r := range sum {
			for j, kv := range []reg.VecVirtual{even, x} {
				w := YMM()
				VPBROADCASTD(at(q, 4*((quad*R+r)*q8QuadWords+j)), w)
				VPMADDWD(kv, w, w)
				VPADDD(w, sum[r], sum[r])
			}
		}
	}
	ks := YMM()
	VCVTPH2PS(at(k, 0), ks)
	for r := range acc {
		VCVTDQ2PS(sum[r], sum[r])
		VFMADD231PS(ks, sum[r], acc[r])
	}
	ADDQ(U8(32), k)
	ADDQ(U32(512), codes)
	prefetch(at(next, 512))
	ADDQ(U32(q8BlockBytes), next)
	ADDQ(U32(4*(8*R*q8QuadWords+R)), q)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
	MOVQ(at(f.a, argQ), q)
	for r := range acc {
		qs := YMM()
		VBROADCASTSS(at(q, 4*r), qs)
		VMULPS(qs, acc[r], acc[r])
		VMOVUPS(acc[r], at(p, rowBytes*r))
	}
	ADDQ(U8(32), p)
	INCQ(i)
	CMPQ(i, U8(2*tiles))
	JL(LabelRef(half))
}

// quantiseWeights is folder512's with weights of 15 bits, since the integer product of AVX2 is signed. A row's
// lie as [4 tiles][2 quads][2 quads][2 pairs]: of four tokens 0 and 2, then 1 and 3.
func (f *folder2) quantiseWeights() {
	masked, done := label("masked"), label("quantised")
	f.normaliseWeights()
	mask := arg(f.a, argMask)
	TESTQ(mask, mask)
	JNZ(LabelRef(masked))
	eachBlock(f.a, f.off, f.R, func(to reg.GPVirtual, v []reg.GPVirtual) {
		s, top := f.valueScales(v, nil)
		for r := range f.R {
			f.quantiseRow(r, to, s, top)
		}
	})
	JMP(LabelRef(done))
	Label(masked)
	eachBlock(f.a, f.off, f.R, func(to reg.GPVirtual, v []reg.GPVirtual) {
		for r := range f.R {
			mask := arg(f.a, argMask)
			s, top := f.valueScales(v, func(half int) Mem { return at(mask, 8*r+half) })
			f.quantiseRow(r, to, s, top)
		}
	})
	Label(done)
}

// normaliseWeights is folder512's.
func (f *folder2) normaliseWeights() {
	p := arg(f.a, argP)
	for r := range f.R {
		x := func(half int) Mem { return at(p, rowBytes*r+32*half) }
		top, inverse := YMM(), YMM()
		VMOVUPS(x(0), top)
		for half := 1; half < 2*tiles; half++ {
			VPMAXUD(x(half), top, top)
		}
		f.maxLanes(top)
		VPMAXUD(f.c(cTinyWeight), top, top)
		VMOVSS(f.c(cMaxWeight), inverse.AsX())
		VDIVSS(top.AsX(), inverse.AsX(), inverse.AsX())
		VBROADCASTSS(inverse.AsX(), inverse)
		VMULSS(f.c(cPerWeight), top.AsX(), top.AsX())
		VMOVSS(top.AsX(), undo(p, f.R, r))
		for half := range 2 * tiles {
			VMULPS(x(half), inverse, top)
			VMOVUPS(top, x(half))
		}
	}
}

// maxLanes leaves the largest number of x, none of which is negative, in every lane.
func (f *folder2) maxLanes(x reg.VecVirtual) {
	t := YMM()
	VPERM2F128(U8(1), x, x, t)
	VPMAXUD(t, x, x)
	VPERMILPS(U8(0x4E), x, t)
	VPMAXUD(t, x, x)
	VPERMILPS(U8(0xB1), x, t)
	VPMAXUD(t, x, x)
}

// valueScales returns the scales of the tokens whose bits are set in the bytes that seen names, or of all, over
// the largest of them, and the largest.
func (f *folder2) valueScales(v []reg.GPVirtual, seen func(half int) Mem) (s [2 * tiles]reg.VecVirtual, top reg.VecVirtual) {
	top = YMM()
	for i := range s {
		s[i] = YMM()
		VCVTPH2PS(at(v[i/2], i%2*16), s[i])
		if seen != nil {
			b, m := GP32(), YMM()
			MOVBLZX(seen(i), b)
			VMOVD(b, m.AsX())
			VPBROADCASTD(m.AsX(), m)
			VPAND(f.c(cLaneBit), m, m)
			VPCMPEQD(f.c(cLaneBit), m, m)
			VPAND(m, s[i], s[i])
		}
		if i == 0 {
			VMOVAPS(s[i], top)
		} else {
			VPMAXUD(s[i], top, top)
		}
	}
	f.maxLanes(top)
	VPMAXUD(f.c(cTinyScale), top, top)
	inverse := YMM()
	VMOVSS(f.c(cOne), inverse.AsX())
	VDIVSS(top.AsX(), inverse.AsX(), inverse.AsX())
	VBROADCASTSS(inverse.AsX(), inverse)
	for i := range s {
		VMULPS(inverse, s[i], s[i])
	}
	return s, top
}

// quantiseRow writes row r's integer weights of a block and their scale.
func (f *folder2) quantiseRow(r int, to reg.GPVirtual, s [2 * tiles]reg.VecVirtual, top reg.VecVirtual) {
	p := arg(f.a, argP)
	for t := range tiles {
		c := [2]reg.VecVirtual{YMM(), YMM()}
		for half := range c {
			VMULPS(at(p, rowBytes*r+tileScores*t+32*half), s[2*t+half], c[half])
			VCVTPS2DQ(c[half], c[half])
		}
		VPACKUSDW(c[1], c[0], c[0]) // quads 0 and 2, 1 and 3
		VPSHUFLW(U8(0xD8), c[0], c[0])
		VPSHUFHW(U8(0xD8), c[0], c[0])
		VMOVDQU(c[0], at(to, q8RowBytes*r+32*t))
	}
	scale := XMM()
	VMULSS(undo(p, f.R, r), top.AsX(), scale)
	VMOVSS(scale, at(to, q8RowBytes*r+128))
}

// valuesQ8 adds the weighted values of tokens [lo, hi), in whole tiles, to o, as folder512 does. The even, then
// the odd of four bytes widen to 16 bits by shifts.
func (f *folder2) valuesQ8() {
	block := label("block")
	width := []int{4, 4, 2, 2}[f.R-1] // vectors at once
	o, w, left, col := arg(f.a, argO), arg(f.a, argP), arg(f.a, argDim), arg(f.a, argVOff)
	ADDQ(U32(f.R*rowBytes), w)
	ADDQ(q8ScaleBytes(f.a), col)
	next := beginNextValues(f.a, f.ahead, 4/width)
	Label(block)
	for range 4 / width {
		f.productQ8(o, w, col, next, width)
		ADDQ(U32(32*width), o)
		ADDQ(U32(32*width), col)
	}
	ADDQ(U32(512-128), col)
	ADDQ(U32(f.R*q8RowBytes), w)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
}

// productQ8 does width vectors of 8 dimensions.
func (f *folder2) productQ8(o, w, col reg.GPVirtual, next nextValues, width int) {
	acc := make([][]reg.VecVirtual, f.R)
	for r := range acc {
		for j := range width {
			acc[r] = append(acc[r], YMM())
			VPXOR(acc[r][j], acc[r][j], acc[r][j])
		}
	}
	eachTile(f.a, f.off, col, func(v, t reg.GPVirtual) {
		wt := GP64()
		MOVQ(t, wt)
		SHLQ(U8(5), wt)
		ADDQ(w, wt)
		for quad := range 4 {
			for _, j := range span(width, 2) {
				var x [2][2]reg.VecVirtual // [vector][even, odd]
				for i := range x {
					x[i] = [2]reg.VecVirtual{YMM(), YMM()}
					even, odd := x[i][0], x[i][1]
					VMOVDQU(at(v, 128*quad+32*(j+i)), odd)
					VPSLLW(U8(8), odd, even)
					VPSRAW(U8(8), even, even)
					VPSRAW(U8(8), odd, odd)
				}
				for r := range acc {
					for pair := range 2 {
						b := YMM()
						VPBROADCASTD(at(wt, q8RowBytes*r+16*(quad%2)+8*(quad/2)+4*pair), b)
						for i := range x {
							y := YMM()
							VPMADDWD(x[i][pair], b, y)
							VPADDD(y, acc[r][j+i], acc[r][j+i])
						}
					}
				}
			}
		}
		next.prefetch(width * q8BlockBytes / 4)
	})
	ptr, stride := GP64(), arg(f.a, argDim)
	MOVQ(o, ptr)
	for r := range acc {
		scale := YMM()
		VBROADCASTSS(at(w, q8RowBytes*r+128), scale)
		for j, x := range acc[r] {
			y := YMM()
			VCVTDQ2PS(x, x)
			VMOVUPS(at(ptr, 32*j), y)
			VFMADD231PS(scale, x, y)
			VMOVUPS(y, at(ptr, 32*j))
		}
		LEAQ(Mem{Base: ptr, Index: stride, Scale: 4}, ptr)
	}
}

// span is 0, step, 2·step … below n.
func span(n, step int) (at []int) {
	for i := 0; i < n; i += step {
		at = append(at, i)
	}
	return at
}
