package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kernel2 is an AVX2 kernel being emitted. A strip is two halves of 8 rows. Masks are memory operands:
// there are 16 registers.
type kernel2 struct {
	format
	height int
	w, x   reg.GPVirtual // what is next in the strip; the next block of activations
	head   reg.GPVirtual // the scales of a super-block
	step   reg.GPVirtual // bytes from one block of activations to the next
	acc    [][2]reg.VecVirtual
}

// tile2 emits the kernel for one format and 1 or 2 rows, of a tile of any height.
func tile2(f format, height int) {
	name := fmt.Sprintf("tile%sx%dAVX2", f.name, height)
	a := begin(name, fmt.Sprintf("%s multiplies strips of %s by %d rows of activations.", name, f.name, height))
	k := &kernel2{format: f, height: height, step: load64(at(a, argStep))}
	strip, strips, y := load64(at(a, argW)), load64(at(a, argStrips)), GP64()
	XORQ(y, y)
	row := func(m, h int) Mem {
		return Mem{Base: load64(at(a, argY+8*m)), Index: y, Scale: 1, Disp: 32 * h}
	}
	for range height {
		k.acc = append(k.acc, [2]reg.VecVirtual{YMM(), YMM()})
	}

	Label("strip")
	k.w, k.x = GP64(), load64(at(a, argX))
	MOVQ(strip, k.w)
	units := load64(at(a, argUnits))
	for _, acc := range k.acc {
		VXORPS(acc[0], acc[0], acc[0])
		VXORPS(acc[1], acc[1], acc[1])
	}
	CMPQ(at(a, argKeep), Imm(0))
	JE(LabelRef("unit"))
	for m, acc := range k.acc {
		VMOVUPS(row(m, 0), acc[0])
		VMOVUPS(row(m, 1), acc[1])
	}

	Label("unit")
	switch {
	case f.float():
		k.floats()
	case f.name == "Q8_0":
		k.bytes()
	case f.name == "Q6_K":
		k.sixes()
	case f.super:
		k.supers()
	default:
		k.pair(func(b, h int) (d, m reg.VecVirtual) {
			d = YMM()
			VCVTPH2PS(at(k.w, 32*b+16*h), d)
			if f.min {
				m = YMM()
				VCVTPH2PS(at(k.w, 64+32*b+16*h), m)
			}
			return d, m
		})
		ADDQ(I32(int32(f.unit)), k.w)
	}
	DECQ(units)
	JNZ(LabelRef("unit"))

	for m, acc := range k.acc {
		VMOVUPS(acc[0], row(m, 0))
		VMOVUPS(acc[1], row(m, 1))
	}
	ADDQ(Imm(64), y)
	ADDQ(at(a, argStripBytes), strip)
	DECQ(strips)
	JNZ(LabelRef("strip"))
	VZEROUPPER()
	RET()
}

func (f format) float() bool {
	return strings.HasSuffix(f.name, "F32") || strings.HasSuffix(f.name, "F16")
}

// words8 is a read-only vector of 8 equal words.
func words8(v uint32) Mem {
	return table(fmt.Sprintf("words%08x", v), v, v, v, v, v, v, v, v)
}

func (k *kernel2) act(m, off int) Mem { return at(k.x, m*blkBytes+off) }

func (k *kernel2) prefetch() { PREFETCHT1(at(k.w, prefetchBytes)) }

// dots returns integer accumulators for each row and half.
func (k *kernel2) dots(offset int) [][2]reg.VecVirtual {
	var dots [][2]reg.VecVirtual
	for m := range k.height {
		d := [2]reg.VecVirtual{YMM(), YMM()}
		for _, v := range d {
			if offset == 0 {
				VPXOR(v, v, v)
			} else {
				VPBROADCASTD(k.act(m, offset), v)
			}
		}
		dots = append(dots, d)
	}
	return dots
}

// spread returns columns 4c.. of each row's activations in all lanes.
func (k *kernel2) spread(c int) (x []reg.VecVirtual) {
	for m := range k.height {
		v := YMM()
		VPBROADCASTD(k.act(m, 4*c), v)
		x = append(x, v)
	}
	return x
}

// scaled adds dots·scale·d and the minimum's part to the accumulators.
func (k *kernel2) scaled(dots [][2]reg.VecVirtual, scale func(h int) (d, m reg.VecVirtual)) {
	for h := range 2 {
		s, min := scale(h)
		for m := range dots {
			dot, t := dots[m][h], YMM()
			VCVTDQ2PS(dot, dot)
			VBROADCASTSS(k.act(m, blkD), t)
			VMULPS(s, t, t)
			VFMADD231PS(dot, t, k.acc[m][h])
			if min == nil {
				continue
			}
			VBROADCASTSS(k.act(m, blkSum), t)
			if k.super {
				VFNMADD231PS(t, min, k.acc[m][h])
			} else {
				VFMADD231PS(t, min, k.acc[m][h])
			}
		}
	}
}

// bytes is the body of Q8_0. VPMADDUBSW wants one unsigned operand and saturates, so the weights give their
// sign to the activations: 2·128·127 fits in 16 bits.
func (k *kernel2) bytes() {
	for b := range 2 {
		dots := k.dots(0)
		if b == 0 {
			k.prefetch()
		}
		for c := range 8 {
			x := k.spread(c)
			for h := range 2 {
				w, size := YMM(), YMM()
				VMOVDQU(at(k.w, 64+512*b+64*c+32*h), w)
				VPXOR(words8(0x80808080), w, w)
				VPABSB(w, size)
				for m := range dots {
					t := YMM()
					VPSIGNB(w, x[m], t)
					VPMADDUBSW(t, size, t)
					widen(t, dots[m][h])
				}
			}
		}
		k.scaled(dots, func(h int) (d, m reg.VecVirtual) {
			d = YMM()
			VCVTPH2PS(at(k.w, 32*b+16*h), d)
			return d, nil
		})
		ADDQ(k.step, k.x)
	}
	ADDQ(I32(int32(k.unit)), k.w)
}

// widen adds pairs of 16-bit sums to 32-bit ones.
func widen(t, dot reg.VecVirtual) {
	VPMADDWD(words8(0x00010001), t, t)
	VPADDD(t, dot, dot)
}

// supers is the body of Q4_K and Q5_K.
func (k *kernel2) supers() {
	k.head = GP64()
	MOVQ(k.w, k.head)
	ADDQ(Imm(64), k.w)
	n := GP64()
	MOVQ(U32(4), n)
	Label("pair")
	k.pair(func(b, h int) (s, m reg.VecVirtual) {
		s, m = YMM(), YMM()
		t := YMM()
		for i, v := range []reg.VecVirtual{s, m} {
			VPMOVZXBD(at(k.w, 32*i+16*b+8*h), v)
			VCVTDQ2PS(v, v)
			VCVTPH2PS(at(k.head, 32*i+16*h), t)
			VMULPS(t, v, v)
		}
		return s, m
	})
	ADDQ(I32(int32((k.unit-64)/4)), k.w)
	DECQ(n)
	JNZ(LabelRef("pair"))
}

// pair multiplies the two blocks of a pair at w.
func (k *kernel2) pair(scale func(b, h int) (d, m reg.VecVirtual)) {
	size := k.unit
	if k.super {
		size = (k.unit - 64) / 4
	}
	nibbles := size - 512
	k.prefetch()
	for b := range 2 {
		dots := k.dots(k.offset)
		sums := dots
		if !k.fifth { // 8·2·15·127 fits in 16 bits
			sums = k.dots(0)
		}
		for c := range 8 {
			x := k.spread(c)
			for h := range 2 {
				w := k.code(nibbles, b, c, h)
				for m := range dots {
					t := YMM()
					VPMADDUBSW(x[m], w, t)
					if k.fifth {
						widen(t, sums[m][h])
					} else {
						VPADDW(t, sums[m][h], sums[m][h])
					}
				}
			}
		}
		if !k.fifth {
			for m := range dots {
				widen(sums[m][0], dots[m][0])
				widen(sums[m][1], dots[m][1])
			}
		}
		k.scaled(dots, func(h int) (d, m reg.VecVirtual) { return scale(b, h) })
		ADDQ(k.step, k.x)
	}
}

// code extracts the codes of columns 4c.. of block b of a pair, half h.
func (k *kernel2) code(nibbles, b, c, h int) reg.VecVirtual {
	w := YMM()
	VMOVDQU(at(k.w, nibbles+64*c+32*h), w)
	if b == 1 {
		VPSRLD(Imm(4), w, w)
	}
	VPAND(words8(0x0f0f0f0f), w, w)
	if k.fifth {
		f := YMM()
		VMOVDQU(at(k.w, nibbles-128+64*b+32*h), f)
		shiftBits(f, 4-c)
		VPAND(words8(0x10101010), f, f)
		VPOR(f, w, w)
	}
	return w
}

// shiftBits moves the bits of every lane up by n places, or down if n is negative.
func shiftBits(v reg.VecVirtual, n int) {
	switch {
	case n > 0:
		VPSLLD(Imm(uint64(n)), v, v)
	case n < 0:
		VPSRLD(Imm(uint64(-n)), v, v)
	}
}

// sixes is the body of Q6_K.
func (k *kernel2) sixes() {
	k.head = GP64()
	scales, n := GP64(), GP64()
	MOVQ(k.w, k.head)
	LEAQ(at(k.w, 64), scales)
	ADDQ(I32(320), k.w)
	MOVQ(U32(2), n)
	Label("half")
	k.prefetch()
	for b := range 4 {
		for s := range 2 {
			dots := k.dots(blkOff32 + 4*s)
			for c := 4 * s; c < 4*s+4; c++ {
				x := k.spread(c)
				for h := range 2 {
					w := k.six(b, c, h)
					for m := range dots {
						t := YMM()
						VPMADDUBSW(x[m], w, t)
						widen(t, dots[m][h])
					}
				}
			}
			k.scaled(dots, func(h int) (d, m reg.VecVirtual) {
				d = YMM()
				t := YMM()
				VPMOVSXBD(at(scales, 16*(2*b+s)+8*h), d)
				VCVTDQ2PS(d, d)
				VCVTPH2PS(at(k.head, 16*h), t)
				VMULPS(t, d, d)
				return d, nil
			})
		}
		ADDQ(k.step, k.x)
	}
	ADDQ(I32(128), scales)
	ADDQ(I32(24*64), k.w)
	DECQ(n)
	JNZ(LabelRef("half"))
}

func (k *kernel2) six(b, c, h int) reg.VecVirtual {
	w, pairs := YMM(), YMM()
	VMOVDQU(at(k.w, 192*c+b%2*64+32*h), w)
	if b >= 2 {
		VPSRLD(Imm(4), w, w)
	}
	VPAND(words8(0x0f0f0f0f), w, w)
	VMOVDQU(at(k.w, 192*c+128+32*h), pairs)
	shiftBits(pairs, 4-2*b)
	VPAND(words8(0x30303030), pairs, pairs)
	VPOR(pairs, w, w)
	return w
}

// floats is the body of F32, F16 and BF16, in the order of the AVX-512 kernels.
func (k *kernel2) floats() {
	var sum [2][][2]reg.VecVirtual // [column parity][row][half]
	for i := range sum {
		for range k.height {
			sum[i] = append(sum[i], [2]reg.VecVirtual{YMM(), YMM()})
		}
	}
	for i := range 16 {
		if i == 0 {
			k.prefetch()
		}
		var x []reg.VecVirtual
		for m := range k.height {
			v := YMM()
			VBROADCASTSS(k.act(m, 4*i), v)
			x = append(x, v)
		}
		for h := range 2 {
			w := k.column(i, h)
			for m := range k.height {
				if i < 2 {
					VMULPS(w, x[m], sum[i][m][h])
				} else {
					VFMADD231PS(w, x[m], sum[i%2][m][h])
				}
			}
		}
	}
	for m, acc := range k.acc {
		for h := range 2 {
			VADDPS(sum[1][m][h], sum[0][m][h], sum[0][m][h])
			VADDPS(sum[0][m][h], acc[h], acc[h])
		}
	}
	ADDQ(I32(int32(k.unit)), k.w)
	ADDQ(k.step, k.x)
}

func (k *kernel2) column(i, h int) reg.VecVirtual {
	w := YMM()
	switch {
	case k.name == "F32":
		VMOVUPS(at(k.w, 64*i+32*h), w)
	case k.name == "F16":
		VCVTPH2PS(at(k.w, 32*i+16*h), w)
	default:
		VMOVDQU(at(k.w, 64*(i/2)+32*h), w)
		if i%2 == 0 {
			VPSLLD(Imm(16), w, w)
		} else {
			VPAND(words8(0xffff0000), w, w)
		}
	}
	return w
}

// read2 is read512 with 256-bit loads.
func read2() {
	a := begin("readAVX2", "readAVX2 loads n bytes at p, a multiple of 512.")
	p, n := load64(at(a, 0)), load64(at(a, 8))
	var s [4]reg.VecVirtual
	for i := range s {
		s[i] = YMM()
		VPXOR(s[i], s[i], s[i])
	}
	Label("loop")
	for i := range 16 {
		VPOR(at(p, 32*i), s[i%4], s[i%4])
	}
	ADDQ(I32(512), p)
	SUBQ(I32(512), n)
	JNZ(LabelRef("loop"))
	for i := 1; i < 4; i++ {
		VPOR(s[i], s[0], s[0])
	}
	r := GP64()
	VMOVQ(s[0].AsX(), r)
	MOVQ(r, at(a, 16))
	VZEROUPPER()
	RET()
}
