package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Prepared queries of a Q8_0 group: [R] scales, then per block of 32 dimensions, 32-bit words:
//
//	[8 quads][R][2]  four dimensions' upper bytes, then their lower bytes, signed
//	[R]              -128·Σ of the block's 16-bit queries: undoes the offset of the key codes
const q8QuadWords = 2

// q8BlockBytes is what a block of 32 dimensions takes in half a tile: 16 scales and the codes. The scales
// lie apart, but to prefetch in address order only the amount matters.
const q8BlockBytes = 32 + 512

// scoresQ8 leaves p[r][64] = ⟨q_r, k⟩: per block of 32 dimensions an exact integer product with 16-bit
// queries, then one multiply-add with the scales of the keys.
func (f *folder512) scoresQ8() {
	R := f.R
	blockWords := 8*R*q8QuadWords + R
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
	ADDQ(U8(4*R), q)
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
		VFMADD231PS(ks, upper[r], acc[r])
	}
	ADDQ(U8(32), k)
	ADDQ(U32(512), codes)
	prefetch(at(next, 512))
	ADDQ(U32(q8BlockBytes), next)
	ADDQ(U32(4*blockWords), q)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
	MOVQ(at(f.a, argQ), q)
	for r := range acc {
		VMULPS_BCST(at(q, 4*r), acc[r], acc[r])
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

// Integer weights of a Q8_0 group follow its scores, per block of 32 dimensions: for every row 128 bytes, and a
// scale in 64.
//
// A row's weights p become p·65535/max p. Times the value scales s over max s they are at most 65535, and are
// rounded: in steps of max p·max s/65535, which is the block's scale. Both maxima are over the tokens the row
// sees of a stripe, so that they do not depend on the rows beside it.
const q8RowBytes = 128 + 64

// quantiseWeights writes the integer weights of all rows and blocks.
func (f *folder512) quantiseWeights() {
	masked, done := label("masked"), label("quantised")
	f.normaliseWeights()
	mask, bits, all := arg(f.a, argMask), GP32(), K()
	f.odd, f.split = K(), ZMM()
	MOVL(U32(0xaaaaaaaa), bits)
	KMOVD(bits, f.odd)
	VBROADCASTI32X4(f.c(cSplitBytes), f.split)
	TESTQ(mask, mask)
	JNZ(LabelRef(masked))
	MOVL(U32(0xffff), bits)
	KMOVW(bits, all)
	seen := [tiles]reg.Register{all, all, all, all}
	eachBlock(f.a, f.off, f.R, func(to reg.GPVirtual, v []reg.GPVirtual) {
		s, top := f.valueScales(v, seen)
		for r := range f.R {
			f.quantiseRow(r, to, s, top)
		}
	})
	JMP(LabelRef(done))
	Label(masked)
	eachBlock(f.a, f.off, f.R, func(to reg.GPVirtual, v []reg.GPVirtual) {
		for r := range f.R {
			bits, mask := GP64(), arg(f.a, argMask)
			MOVQ(at(mask, 8*r), bits)
			for t := range seen {
				k := K()
				KMOVW(bits.As32(), k)
				SHRQ(U8(16), bits)
				seen[t] = k
			}
			s, top := f.valueScales(v, seen)
			f.quantiseRow(r, to, s, top)
		}
	})
	Label(done)
}

// undo is where normaliseWeights leaves by what to multiply a row's weights again: beside its first scale.
func undo(p reg.GPVirtual, rows, r int) Mem {
	return at(p, rows*rowBytes+r*q8RowBytes+128+4)
}

// normaliseWeights multiplies each row's weights so that the largest is 65535.
func (f *folder512) normaliseWeights() {
	p := arg(f.a, argP)
	for r := range f.R {
		var x [tiles]reg.VecVirtual
		for t := range x {
			x[t] = ZMM()
			VMOVUPS(at(p, rowBytes*r+tileScores*t), x[t])
		}
		top := maxLanes512(x)
		VPMAXUD_BCST(f.c(cTinyWeight), top, top)
		inverse := ZMM()
		VMOVSS(f.c(cMaxWeight), inverse.AsX())
		VDIVSS(top.AsX(), inverse.AsX(), inverse.AsX())
		VBROADCASTSS(inverse.AsX(), inverse)
		for t := range x {
			VMULPS(inverse, x[t], x[t])
			VMOVUPS(x[t], at(p, rowBytes*r+tileScores*t))
		}
		VMULSS(f.c(cPerWeight), top.AsX(), top.AsX())
		VMOVSS(top.AsX(), undo(p, f.R, r))
	}
}

// maxLanes512 returns the largest number of x in every lane. None is negative, so they compare as integers, and
// a NaN is the largest.
func maxLanes512(x [tiles]reg.VecVirtual) reg.VecVirtual {
	top, t := ZMM(), ZMM()
	VPMAXUD(x[0], x[1], top)
	VPMAXUD(x[2], x[3], t)
	VPMAXUD(t, top, top)
	VSHUFF32X4(U8(0x4E), top, top, t)
	VPMAXUD(t, top, top)
	VSHUFF32X4(U8(0xB1), top, top, t)
	VPMAXUD(t, top, top)
	VPERMILPS(U8(0x4E), top, t)
	VPMAXUD(t, top, top)
	VPERMILPS(U8(0xB1), top, t)
	VPMAXUD(t, top, top)
	return top
}

// valueScales returns the scales of the tokens that seen selects over the largest of them, and the largest.
func (f *folder512) valueScales(v []reg.GPVirtual, seen [tiles]reg.Register) (s [tiles]reg.VecVirtual, top reg.VecVirtual) {
	half, x, ones := YMM(), YMM(), XMM()
	for t := range s {
		s[t] = ZMM()
		VCVTPH2PS_Z(at(v[t], 0), seen[t], s[t])
		if t == 0 {
			VMOVDQU16_Z(at(v[t], 0), seen[t], half)
			continue
		}
		VMOVDQU16_Z(at(v[t], 0), seen[t], x)
		VPMAXUW(x, half, half)
	}
	top = XMM()
	tiny := XMM()
	VEXTRACTI128(U8(1), half, top)
	VPMAXUW(half.AsX(), top, top)
	VPCMPEQD(ones, ones, ones)
	VPXOR(ones, top, top)
	VPHMINPOSUW(top, top) // the only instruction that looks at all lanes
	VPXOR(ones, top, top)
	VCVTPH2PS(top, top)
	VMOVSS(f.c(cTinyScale), tiny)
	VMAXSS(top, tiny, top) // of a NaN and a number the first operand here
	inverse := ZMM()
	VMOVSS(f.c(cOne), inverse.AsX())
	VDIVSS(top, inverse.AsX(), inverse.AsX())
	VBROADCASTSS(inverse.AsX(), inverse)
	for t := range s {
		VMULPS(inverse, s[t], s[t])
	}
	return s, top
}

// quantiseRow writes row r's integer weights of a block: lower bytes as [4 quads][4 tiles][4 tokens], then upper
// bytes, and their scale. Added to 2²³ a weight is rounded and lies in the lower half of its word.
func (f *folder512) quantiseRow(r int, to reg.GPVirtual, s [tiles]reg.VecVirtual, top reg.VecVirtual) {
	p := arg(f.a, argP)
	var c [tiles]reg.VecVirtual
	for t := range c {
		c[t] = ZMM()
		VMOVUPS(at(p, rowBytes*r+tileScores*t), c[t])
		VFMADD213PS_BCST(f.c(cRound), s[t], c[t])
	}
	for i := 0; i < tiles; i += 2 {
		VPSLLD(U8(16), c[i+1], c[i+1])
		VPBLENDMW(c[i+1], c[i], f.odd, c[i]) // words of two tiles in turns
		VPSHUFB(f.split, c[i], c[i])         // and their bytes apart
	}
	lower, upper, scale := ZMM(), ZMM(), XMM()
	VPUNPCKLQDQ(c[2], c[0], lower)
	VPUNPCKHQDQ(c[2], c[0], upper)
	VMOVDQU32(lower, at(to, q8RowBytes*r))
	VMOVDQU32(upper, at(to, q8RowBytes*r+64))
	VMULSS(undo(p, f.R, r), top, scale)
	VMOVSS(scale, at(to, q8RowBytes*r+128))
}

// valuesQ8 adds the weighted values of tokens [lo, hi), in whole tiles, to o: per block of 32 dimensions an
// exact integer product, then one multiply-add.
func (f *folder512) valuesQ8() {
	block := label("block")
	o, w, left, col := arg(f.a, argO), arg(f.a, argP), arg(f.a, argDim), arg(f.a, argVOff)
	ADDQ(U32(f.R*rowBytes), w)
	ADDQ(q8ScaleBytes(f.a), col)
	next := beginNextValues(f.a, f.ahead, 1)
	Label(block)
	f.productQ8(o, w, col, next)
	ADDQ(U32(128), o)
	ADDQ(U32(512), col)
	ADDQ(U32(f.R*q8RowBytes), w)
	SUBQ(U8(32), left)
	JNZ(LabelRef(block))
}

// productQ8 does a block.
func (f *folder512) productQ8(o, w, col reg.GPVirtual, next nextValues) {
	acc := make([][2][2]reg.VecVirtual, f.R) // [lower, upper bytes][16 dimensions]
	for r := range acc {
		for i := range 4 {
			acc[r][i/2][i%2] = ZMM()
			zero512(acc[r][i/2][i%2])
		}
	}
	eachTile(f.a, f.off, col, func(v, t reg.GPVirtual) {
		wt := GP64()
		LEAQ(Mem{Base: w, Index: t, Scale: 4}, wt)
		for quad := range 4 {
			x := [2]reg.VecVirtual{ZMM(), ZMM()}
			for j := range x {
				VMOVDQU32(at(v, 128*quad+64*j), x[j])
			}
			for r := range acc {
				for half := range 2 {
					b := ZMM()
					VPBROADCASTD(at(wt, q8RowBytes*r+64*half+16*quad), b)
					for j := range x {
						vpdpbusd(x[j], b, acc[r][half][j])
					}
				}
			}
		}
		next.prefetch(q8BlockBytes)
	})
	ptr, stride := GP64(), arg(f.a, argDim)
	MOVQ(o, ptr)
	for r := range acc {
		for j := range 2 {
			x, y := acc[r][1][j], ZMM()
			VPSLLD(U8(8), x, x)
			VPADDD(acc[r][0][j], x, x)
			VCVTDQ2PS(x, x)
			VMOVUPS(at(ptr, 64*j), y)
			VFMADD231PS_BCST(at(w, q8RowBytes*r+128), x, y)
			VMOVUPS(y, at(ptr, 64*j))
		}
		LEAQ(Mem{Base: ptr, Index: stride, Scale: 4}, ptr)
	}
}

// vpdpbusd emits acc += Σ4 unsigned(k)·signed(q) per 32-bit lane, q a vector or one word in memory for all
// lanes. avo does not
// know AVX512_VNNI, the Go assembler does: build the instruction by hand and tell the allocator what it
// reads and writes.
func vpdpbusd(q Op, k, acc reg.VecVirtual) {
	var suffixes []string
	if _, ok := q.(Mem); ok {
		suffixes = []string{"BCST"}
	}
	Instruction(&ir.Instruction{
		Opcode:   "VPDPBUSD",
		Suffixes: suffixes,
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
