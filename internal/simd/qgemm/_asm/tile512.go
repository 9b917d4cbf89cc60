package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kernel512 is an AVX-512 kernel being emitted: some strips of a format times one tile.
type kernel512 struct {
	format
	height int
	w, x   reg.GPVirtual    // the unit and its activation blocks
	acc    []reg.VecVirtual // one per row of the tile
	consts map[uint32]reg.VecVirtual
}

// prefetchBytes is how far ahead of the weights a kernel prefetches one line per unit or pair, into the second
// level cache: enough to take the hardware's own prefetching across pages. Share of a pure read that Q8_0, Q4_0,
// Q4_1, Q4_K and Q6_K reached on one Zen 4 core that reads 31 GB/s (1 GB, BenchmarkMemory): 102, 99, 90, 98 and
// 96 % so; 99, 96, 88, 94 and 95 at 8 KB; 101, 96, 88, 95 and 94 at 16 KB. Without prefetching Q8_0, Q4_1 and
// Q4_K reached 96, 80 and 93 %, with every line prefetched 77, 63 and 65.
const prefetchBytes = 12288

// tile512 emits the kernel for one format and tile height.
func tile512(f format, height int) {
	name := fmt.Sprintf("tile%sx%dAVX512", f.name, height)
	a := begin(name, fmt.Sprintf("%s multiplies strips of %s by %d rows of activations.", name, f.name, height))
	k := &kernel512{format: f, height: height, consts: map[uint32]reg.VecVirtual{}}
	k.constants()
	strip, strips, y := load64(at(a, argW)), load64(at(a, argStrips)), GP64()
	XORQ(y, y)
	keep := K()
	KMOVW(at(a, argKeep), keep)
	for range height {
		k.acc = append(k.acc, ZMM())
	}

	Label("strip")
	k.w, k.x = GP64(), load64(at(a, argX))
	MOVQ(strip, k.w)
	units := load64(at(a, argUnits))
	row := func(m int) Mem {
		p := load64(at(a, argY+8*m))
		return Mem{Base: p, Index: y, Scale: 1}
	}
	for m, acc := range k.acc {
		VMOVUPS_Z(row(m), keep, acc)
	}

	Label("unit")
	k.body(k)
	DECQ(units)
	JNZ(LabelRef("unit"))

	for m, acc := range k.acc {
		VMOVUPS(acc, row(m))
	}
	ADDQ(Imm(64), y)
	ADDQ(at(a, argStripBytes), strip)
	DECQ(strips)
	JNZ(LabelRef("strip"))
	VZEROUPPER()
	RET()
}

// constants loads the masks that the format's body uses.
func (k *kernel512) constants() {
	var masks []uint32
	switch {
	case k.name == "BF16":
		masks = []uint32{0xffff0000}
	case k.name == "Q6_K":
		masks = []uint32{0x0f0f0f0f, 0x30303030}
	case k.fifth:
		masks = []uint32{0x0f0f0f0f, 0x10101010}
	case k.unit > 0 && k.name[:2] == "Q4":
		masks = []uint32{0x0f0f0f0f, 0xf0f0f0f0, 0x3d800000} // 1/16
	}
	for _, v := range masks {
		r := ZMM()
		VPBROADCASTD(word(v), r)
		k.consts[v] = r
	}
}

// act is the memory of row m's block b, b counted from where k.x points.
func (k *kernel512) act(b, m, off int) Mem { return at(k.x, (b*k.height+m)*blkBytes+off) }

// prefetch asks for a line far ahead. With several rows the arithmetic hides the memory.
func (k *kernel512) prefetch() {
	if k.height <= 2 {
		PREFETCHT1(at(k.w, prefetchBytes))
	}
}

// dots returns one integer accumulator per row, started with the correction of block b.
func (k *kernel512) dots(b, offset int) []reg.VecVirtual {
	var dots []reg.VecVirtual
	for m := range k.height {
		d := ZMM()
		if offset == 0 {
			VPXORD(d, d, d)
		} else {
			VPBROADCASTD(k.act(b, m, offset), d)
		}
		dots = append(dots, d)
	}
	return dots
}

// scaled adds dots·scale·d to the accumulators, and the minimum's part.
func (k *kernel512) scaled(b int, dots []reg.VecVirtual, scale, min reg.VecVirtual) {
	for m, dot := range dots {
		VCVTDQ2PS(dot, dot)
		t := ZMM()
		VMULPS_BCST(k.act(b, m, blkD), scale, t)
		VFMADD231PS(dot, t, k.acc[m])
		if min == nil {
			continue
		}
		if k.super {
			VFNMADD231PS_BCST(k.act(b, m, blkSum), min, k.acc[m])
		} else {
			VFMADD231PS_BCST(k.act(b, m, blkSum), min, k.acc[m])
		}
	}
}

// product adds 4 columns, number c of block b, to the dot products.
func (k *kernel512) product(b, c int, w reg.VecVirtual, dots []reg.VecVirtual) {
	for m, dot := range dots {
		vpdpbusd(k.act(b, m, 4*c), w, dot)
	}
}

// bytes is the body of Q8_0.
func (k *kernel512) bytes() {
	for b := range 2 {
		scale := ZMM()
		VCVTPH2PS(at(k.w, 32*b), scale)
		if b == 0 {
			k.prefetch()
		}
		dots := k.dots(b, k.offset)
		even := dots
		if k.height == 1 { // two chains halve the latency of a block
			even = []reg.VecVirtual{ZMM()}
			VPXORD(even[0], even[0], even[0])
		}
		for c := range 8 {
			v := ZMM()
			VMOVDQU32(at(k.w, 64+512*b+64*c), v)
			if c%2 == 0 {
				k.product(b, c, v, even)
			} else {
				k.product(b, c, v, dots)
			}
		}
		if k.height == 1 {
			VPADDD(even[0], dots[0], dots[0])
		}
		k.scaled(b, dots, scale, nil)
	}
	k.advance(k.unit, 2)
}

func (k *kernel512) advance(bytes, blocks int) {
	ADDQ(I32(int32(bytes)), k.w)
	ADDQ(I32(int32(blocks*k.height*blkBytes)), k.x)
}

// pairs is the body of the formats of 4 and 5 bits: the low nibbles are one block, the high ones the next.
// High nibbles stay where they are: 16 times too large, which the scale makes good.
func (k *kernel512) pairs() {
	if !k.super {
		scale := func(b int) (d, m reg.VecVirtual) {
			d = ZMM()
			VCVTPH2PS(at(k.w, 32*b), d)
			if k.min {
				m = ZMM()
				VCVTPH2PS(at(k.w, 64+32*b), m)
			}
			return d, m
		}
		head := 64
		k.prefetch()
		if k.min {
			head = 128
		}
		k.pair(head, scale)
		k.advance(k.unit, 2)
		return
	}

	d, dmin := ZMM(), ZMM()
	VCVTPH2PS(at(k.w, 0), d)
	VCVTPH2PS(at(k.w, 32), dmin)
	ADDQ(Imm(64), k.w)
	n := GP64()
	MOVQ(U32(4), n)
	Label("pair")
	k.prefetch()
	k.pair(64, func(b int) (s, m reg.VecVirtual) {
		s, m = ZMM(), ZMM()
		VPMOVZXBD(at(k.w, 16*b), s)
		VCVTDQ2PS(s, s)
		VMULPS(d, s, s)
		VPMOVZXBD(at(k.w, 32+16*b), m)
		VCVTDQ2PS(m, m)
		VMULPS(dmin, m, m)
		return s, m
	})
	k.advance((k.unit-64)/4, 2)
	DECQ(n)
	JNZ(LabelRef("pair"))
}

// pair multiplies two blocks whose fifth bits or nibbles begin at w+head.
func (k *kernel512) pair(head int, scale func(b int) (d, m reg.VecVirtual)) {
	nibbles := head
	if k.fifth {
		nibbles += 128
	}
	high := k.offset
	if high == blkOff8 {
		high = blkOff128 // 16 times as much
	}
	finish := func(b int, dots []reg.VecVirtual) {
		s, m := scale(b)
		if b == 1 && !k.fifth {
			VMULPS(k.consts[0x3d800000], s, s)
		}
		k.scaled(b, dots, s, m)
	}
	if k.height <= 4 {
		lo, hi := k.dots(0, k.offset), k.dots(1, high)
		f0, f1 := k.loadFifth(head, 0), k.loadFifth(head, 1)
		for c := range 8 {
			v := ZMM()
			VMOVDQU32(at(k.w, nibbles+64*c), v)
			k.product(0, c, k.code(v, f0, 0, c), lo)
			k.product(1, c, k.code(v, f1, 1, c), hi)
		}
		finish(0, lo)
		finish(1, hi)
		return
	}
	// Two dot products and a sum per row would take too many registers: one block after the other.
	for b, offset := range []int{k.offset, high} {
		dots := k.dots(b, offset)
		fifth := k.loadFifth(head, b)
		for c := range 8 {
			v := ZMM()
			VMOVDQU32(at(k.w, nibbles+64*c), v)
			k.product(b, c, k.code(v, fifth, b, c), dots)
		}
		finish(b, dots)
	}
}

func (k *kernel512) loadFifth(head, b int) reg.VecVirtual {
	if !k.fifth {
		return nil
	}
	f := ZMM()
	VMOVDQU32(at(k.w, head+64*b), f)
	return f
}

// code extracts the codes of columns 4c.. of block b from nibbles v and fifth bits f.
func (k *kernel512) code(v, f reg.VecVirtual, b, c int) reg.VecVirtual {
	w := ZMM()
	if f == nil {
		VPANDD(k.consts[[...]uint32{0x0f0f0f0f, 0xf0f0f0f0}[b]], v, w)
		return w
	}
	if b == 1 {
		VPSRLD(Imm(4), v, w)
		VPANDD(k.consts[0x0f0f0f0f], w, w)
	} else {
		VPANDD(k.consts[0x0f0f0f0f], v, w)
	}
	orBits(shift(f, 4-c), k.consts[0x10101010], w)
	return w
}

// shift moves the bits of every lane of v up by n places, or down if n is negative.
func shift(v reg.VecVirtual, n int) reg.VecVirtual {
	if n == 0 {
		return v
	}
	t := ZMM()
	if n > 0 {
		VPSLLD(Imm(uint64(n)), v, t)
	} else {
		VPSRLD(Imm(uint64(-n)), v, t)
	}
	return t
}

// orBits emits w |= v & mask.
func orBits(v, mask, w reg.VecVirtual) { VPTERNLOGD(U8(0xf8), mask, v, w) }

// sixes is the body of Q6_K: two halves of four blocks, each with a scale for either 16 columns. The first
// 16 columns of all four come first: a load of codes serves them all.
func (k *kernel512) sixes() {
	d := ZMM()
	VCVTPH2PS(at(k.w, 0), d)
	scales, n := GP64(), GP64()
	LEAQ(at(k.w, 64), scales)
	ADDQ(I32(320), k.w)
	MOVQ(U32(2), n)
	Label("half")
	finish := func(b, s int, dots []reg.VecVirtual) {
		scale := ZMM()
		VPMOVSXBD(at(scales, 16*(2*b+s)), scale)
		VCVTDQ2PS(scale, scale)
		VMULPS(d, scale, scale)
		k.scaled(b, dots, scale, nil)
	}
	for s := range 2 {
		k.prefetch()
		if k.height > 4 { // registers for one block at a time
			for b := range 4 {
				dots := k.dots(b, blkOff32+4*s)
				for c := 4 * s; c < 4*s+4; c++ {
					k.product(b, c, k.six(b, k.sixLines(c)), dots)
				}
				finish(b, s, dots)
			}
			continue
		}
		var dots [4][]reg.VecVirtual
		for b := range dots {
			dots[b] = k.dots(b, blkOff32+4*s)
		}
		for c := 4 * s; c < 4*s+4; c++ {
			lines := k.sixLines(c)
			for b := range dots {
				k.product(b, c, k.six(b, lines), dots[b])
			}
		}
		for b := range dots {
			finish(b, s, dots[b])
		}
	}
	ADDQ(I32(128), scales)
	k.advance(24*64, 4)
	DECQ(n)
	JNZ(LabelRef("half"))
}

// sixLines loads what holds columns 4c.. of the four blocks of a half: nibbles of blocks 0 and 2, of 1 and 3,
// and the upper pairs of bits.
func (k *kernel512) sixLines(c int) (lines [3]reg.VecVirtual) {
	for i := range lines {
		lines[i] = ZMM()
		VMOVDQU32(at(k.w, 192*c+64*i), lines[i])
	}
	return lines
}

// six extracts the codes of block b of a half.
func (k *kernel512) six(b int, lines [3]reg.VecVirtual) reg.VecVirtual {
	w := ZMM()
	if b < 2 {
		VPANDD(k.consts[0x0f0f0f0f], lines[b], w)
	} else {
		VPSRLD(Imm(4), lines[b-2], w)
		VPANDD(k.consts[0x0f0f0f0f], w, w)
	}
	orBits(shift(lines[2], 4-2*b), k.consts[0x30303030], w)
	return w
}

// floats is the body of F32, F16 and BF16. The sums of even and odd columns of a unit are two chains that
// start afresh in every unit, so that units overlap.
func (k *kernel512) floats() {
	var sum [2][]reg.VecVirtual
	for i := range 2 {
		for range k.height {
			sum[i] = append(sum[i], ZMM())
		}
	}
	for i := range 16 {
		w := k.column(i)
		if i == 0 {
			k.prefetch()
		}
		for m, s := range sum[i%2] {
			if i < 2 {
				VMULPS_BCST(k.act(0, m, 4*i), w, s)
			} else {
				VFMADD231PS_BCST(k.act(0, m, 4*i), w, s)
			}
		}
	}
	for m, s := range sum[0] {
		VADDPS(sum[1][m], s, s)
		VADDPS(s, k.acc[m], k.acc[m])
	}
	k.advance(k.unit, 1)
}

// column returns column i of a unit of floats as float32.
func (k *kernel512) column(i int) reg.VecVirtual {
	w := ZMM()
	switch {
	case k.name == "F32":
		VMOVUPS(at(k.w, 64*i), w)
	case k.name == "F16":
		VCVTPH2PS(at(k.w, 32*i), w)
	case i%2 == 0:
		VPSLLD(Imm(16), at(k.w, 32*i), w)
	default:
		VPANDD(at(k.w, 32*(i-1)), k.consts[0xffff0000], w)
	}
	return w
}

// read512 emits a loop that only loads: what memory allows.
func read512() {
	a := begin("readAVX512", "readAVX512 loads n bytes at p, whole lines: the bandwidth that products are measured against.")
	p, n := load64(at(a, 0)), load64(at(a, 8))
	var s [4]reg.VecVirtual
	for i := range s {
		s[i] = ZMM()
		VPXORD(s[i], s[i], s[i])
	}
	Label("loop")
	for i := range 8 {
		VPORD(at(p, 64*i), s[i%4], s[i%4])
	}
	ADDQ(I32(512), p)
	SUBQ(I32(512), n)
	JNZ(LabelRef("loop"))
	for i := 1; i < 4; i++ {
		VPORD(s[i], s[0], s[0])
	}
	r := GP64()
	VMOVQ(s[0].AsX(), r)
	MOVQ(r, at(a, 16))
	VZEROUPPER()
	RET()
}
