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
	ks, qs := YMM(), YMM()
	VCVTPH2PS(at(k, 0), ks)
	for r := range acc {
		VCVTDQ2PS(sum[r], sum[r])
		VMULPS(ks, sum[r], sum[r])
		VBROADCASTSS(at(q, 4*(8*R*q8QuadWords+R+r)), qs)
		VFMADD231PS(qs, sum[r], acc[r])
	}
	ADDQ(U8(32), k)
	ADDQ(U32(512), codes)
	prefetch(at(next, 512))
	ADDQ(U32(q8BlockBytes), next)
	ADDQ(U32(4*(8*R*q8QuadWords+2*R)), q)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
	for r := range acc {
		VMOVUPS(acc[r], at(p, rowBytes*r))
	}
	ADDQ(U8(32), p)
	INCQ(i)
	CMPQ(i, U8(2*tiles))
	JL(LabelRef(half))
}

// scaleWeights is folder512's in halves.
func (f *folder2) scaleWeights() {
	scaleWeights(f.a, f.off, f.R, func(p, to, scale reg.GPVirtual) {
		for half := range 2 {
			s := YMM()
			VCVTPH2PS(at(scale, 16*half), s)
			for r := range f.R {
				w := YMM()
				VMULPS(at(p, rowBytes*r+32*half), s, w)
				VMOVUPS(w, at(to, rowBytes*r+32*half))
			}
		}
	})
}
