package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets in qgemm.quantArgs.
const (
	quantDst    = 0
	quantStep   = 8
	quantX      = 16
	quantBlocks = 24
)

// quantizeAVX2 emits qgemm.quantizeGeneric for AVX2; the AVX-512 level uses it too.
func quantizeAVX2() {
	a := begin("quantizeAVX2", "quantizeAVX2 stores blocks of 32 activations as int8 in every step-th byte of dst.")
	dst, step, x, n := load64(at(a, quantDst)), load64(at(a, quantStep)), load64(at(a, quantX)), load64(at(a, quantBlocks))
	abs, ones, ones16, order := YMM(), YMM(), YMM(), YMM()
	VPBROADCASTD(word(0x7fffffff), abs)
	VPBROADCASTD(word(0x01010101), ones)
	VPBROADCASTD(word(0x00010001), ones16)
	VMOVDQU(table("packedOrder", 0, 4, 1, 5, 2, 6, 3, 7), order)
	c127 := XMM()
	VMOVSS(word(0x42fe0000), c127) // 127

	Label("block")
	var f [4]reg.VecVirtual
	top, t := YMM(), YMM()
	for i := range f {
		f[i] = YMM()
		VMOVUPS(at(x, 32*i), f[i])
		if i == 0 {
			VPAND(abs, f[i], top)
		} else {
			VPAND(abs, f[i], t)
			VPMAXUD(t, top, top)
		}
	}
	m, u := XMM(), XMM()
	VEXTRACTI128(U8(1), top, u)
	VPMAXUD(u, top.AsX(), m)
	VPSHUFD(U8(0x4e), m, u)
	VPMAXUD(u, m, m)
	VPSHUFD(U8(0xb1), m, u)
	VPMAXUD(u, m, m)
	bits := GP32()
	VMOVD(m, bits)
	CMPL(bits, U32(0x03800000)) // tinyBits
	JB(LabelRef("zero"))

	inv, d := XMM(), XMM()
	VDIVSS(m, c127, inv)
	VDIVSS(c127, m, d)
	invs := YMM()
	VBROADCASTSS(inv, invs)
	for _, v := range f {
		VMULPS(invs, v, v)
		VCVTPS2DQ(v, v)
	}
	VPACKSSDW(f[1], f[0], f[0])
	VPACKSSDW(f[3], f[2], f[2])
	VPACKSSWB(f[2], f[0], f[0])
	VPERMD(f[0], order, f[0])
	VMOVDQU(f[0], at(dst, 0))

	// The sums of either half, in all lanes of its 128 bits.
	sums := YMM()
	VPMADDUBSW(f[0], ones, sums)
	VPMADDWD(ones16, sums, sums)
	VPSHUFD(U8(0x4e), sums, t)
	VPADDD(t, sums, sums)
	VPSHUFD(U8(0xb1), sums, t)
	VPADDD(t, sums, sums)
	lo, hi, all := GP32(), GP32(), GP32()
	VMOVD(sums.AsX(), lo)
	VEXTRACTI128(U8(1), sums, u)
	VMOVD(u, hi)
	LEAL(Mem{Base: lo, Index: hi, Scale: 1}, all)
	sum := XMM()
	VCVTSI2SSL(all, d, sum)
	VMULSS(d, sum, sum)
	VMOVSS(d, at(dst, blkD))
	VMOVSS(sum, at(dst, blkSum))
	NEGL(all)
	SHLL(U8(3), all)
	MOVL(all, at(dst, blkOff8))
	SHLL(U8(1), all)
	MOVL(all, at(dst, blkOff16))
	SHLL(U8(3), all)
	MOVL(all, at(dst, blkOff128))
	for i, r := range []reg.GPVirtual{lo, hi} {
		NEGL(r)
		SHLL(U8(5), r)
		MOVL(r, at(dst, blkOff32+4*i))
	}
	MOVL(U32(0), at(dst, 60))

	Label("next")
	ADDQ(step, dst)
	ADDQ(Imm(128), x)
	DECQ(n)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()

	Label("zero")
	zero := YMM()
	VPXOR(zero, zero, zero)
	VMOVDQU(zero, at(dst, 0))
	VMOVDQU(zero, at(dst, 32))
	JMP(LabelRef("next"))
}
