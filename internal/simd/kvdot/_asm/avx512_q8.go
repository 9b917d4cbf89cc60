package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Prepared queries of a Q8_0 group, per block of 32 dimensions, 32-bit words:
//
//	[8 quads][R][2]  four dimensions' upper bytes, then their lower bytes, signed
//	[R]              -128·Σ of the block's 16-bit queries: undoes the offset of the key codes
//	[R]              the block's scale
const q8QuadWords = 2

// q8BlockBytes is what a block of 32 dimensions takes in half a tile: 16 scales and the codes. The scales
// lie apart, but to prefetch in address order only the amount matters.
const q8BlockBytes = 32 + 512

// scoresQ8 leaves p[r][64] = ⟨q_r, k⟩: per block of 32 dimensions an exact integer product with 16-bit
// queries, then one multiply-add with the scales of key and query.
func (f *folder512) scoresQ8() {
	R := f.R
	blockWords := 8*R*q8QuadWords + 2*R
	scales := q8ScaleBytes(f.a)
	t, p := GP64(), arg(f.a, argP)
	XORQ(t, t)
	tile, block := label("tile"), label("block")
	Label(tile)
	k, next := GP64(), GP64()
	MOVQ(Mem{Base: f.off, Index: t, Scale: 8}, k)
	nextHalf(f.a, f.ahead, t, 0, next)
	ADDQ(at(f.a, argBase), k)
	codes, q, left := GP64(), arg(f.a, argQ), arg(f.a, argDim)
	LEAQ(at2(k, scales, 0), codes)
	acc := make([]reg.VecVirtual, R)
	for r := range acc {
		acc[r] = ZMM()
		zero512(acc[r])
	}
	Label(block)
	upper, lower := make([]reg.VecVirtual, R), make([]reg.VecVirtual, R)
	for r := range upper {
		upper[r], lower[r] = ZMM(), ZMM()
		zero512(upper[r])
		VPBROADCASTD(at(q, 4*(8*R*q8QuadWords+r)), lower[r])
	}
	for quad := range 8 {
		prefetch(at(next, 64*quad))
		kv := ZMM()
		VMOVDQU32(at(codes, 64*quad), kv)
		for r := range upper {
			vpdpbusd(at(q, 4*(quad*R+r)*q8QuadWords), kv, upper[r])
			vpdpbusd(at(q, 4*(quad*R+r)*q8QuadWords+4), kv, lower[r])
		}
	}
	ks := ZMM()
	VCVTPH2PS(at(k, 0), ks)
	for r := range acc {
		VPSLLD(U8(8), upper[r], upper[r])
		VPADDD(lower[r], upper[r], upper[r])
		VCVTDQ2PS(upper[r], upper[r])
		VMULPS(ks, upper[r], upper[r])
		VFMADD231PS_BCST(at(q, 4*(8*R*q8QuadWords+R+r)), upper[r], acc[r])
	}
	ADDQ(U8(32), k)
	ADDQ(U32(512), codes)
	prefetch(at(next, 512))
	ADDQ(U32(q8BlockBytes), next)
	ADDQ(U32(4*blockWords), q)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
	for r := range acc {
		VMOVUPS(acc[r], at(p, rowBytes*r))
	}
	ADDQ(U8(tileScores), p)
	INCQ(t)
	CMPQ(t, U8(tiles))
	JL(LabelRef(tile))
}

// q8ScaleBytes returns the size of a tile's scales: one F16 per token and block, in whole lines.
func q8ScaleBytes(a reg.GPVirtual) reg.GPVirtual {
	n := arg(a, argDim)
	ADDQ(U8(63), n)
	ANDQ(I8(-64), n)
	return n
}

// scaleWeights leaves, after the weights, p[block][r][64] = weight·(the values' scale), so that the values
// themselves are integers.
func (f *folder512) scaleWeights() {
	scaleWeights(f.a, f.off, f.R, func(p, to, scale reg.GPVirtual) {
		s := ZMM()
		VCVTPH2PS(at(scale, 0), s)
		for r := range f.R {
			w := ZMM()
			VMULPS(at(p, rowBytes*r), s, w)
			VMOVUPS(w, at(to, rowBytes*r))
		}
	})
}

// scaleWeights walks the value scales of a stripe; do handles the 16 of a tile's block.
func scaleWeights(a, off reg.GPVirtual, rows int, do func(p, to, scale reg.GPVirtual)) {
	tile, block := label("tile"), label("scale")
	p, to, t := arg(a, argP), GP64(), GP64()
	XORQ(t, t)
	Label(tile)
	v, left := GP64(), arg(a, argDim)
	MOVQ(Mem{Base: off, Index: t, Scale: 8}, v)
	ADDQ(at(a, argBase), v)
	ADDQ(at(a, argVOff), v)
	LEAQ(at(p, rows*rowBytes), to)
	Label(block)
	do(p, to, v)
	ADDQ(U8(32), v)
	ADDQ(U32(rows*rowBytes), to)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
	ADDQ(U8(tileScores), p)
	INCQ(t)
	CMPQ(t, U8(tiles))
	JL(LabelRef(tile))
}

// vpdpbusd emits acc += Σ4 unsigned(k)·signed(q) per 32-bit lane, q one word for all lanes. avo does not
// know AVX512_VNNI, the Go assembler does: build the instruction by hand and tell the allocator what it
// reads and writes.
func vpdpbusd(q Mem, k, acc reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode:   "VPDPBUSD",
		Suffixes: []string{"BCST"},
		Operands: []Op{q, k, acc},
		Inputs:   []Op{q, k, acc},
		Outputs:  []Op{acc},
		ISA:      []string{"AVX512_VNNI"},
	})
}

// zero512 clears x. avo does not know that VPXORD of a register with itself reads nothing, and would keep
// the register alive around every outer loop.
func zero512(x reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode:           "VPXORD",
		Operands:         []Op{x, x, x},
		Inputs:           []Op{x, x},
		Outputs:          []Op{x},
		ISA:              []string{"AVX512F"},
		CancellingInputs: true,
	})
}
