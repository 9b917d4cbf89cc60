package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets in qgemm.packArgs.
const (
	packDst      = 0
	packSrc      = 8
	packRowBytes = 16
	packUnits    = 24
	packNext     = 32
)

// packer is a kernel being emitted that packs whole units of a whole strip, 8 rows at a time. It is AVX2 for
// both levels: 512-bit insertions and shuffles run at half the rate on Zen 4 and on one port on Intel, and
// the same code with them took 1.1 to 1.4 times as long.
type packer struct {
	dst   reg.GPVirtual
	rows  [4]reg.GPVirtual // rows 0, 4, 8 and 12 at the unit
	s, s3 reg.GPVirtual    // bytes of a row, of three
	next  reg.GPVirtual    // what to prefetch
	lines int              // of it not yet prefetched in this unit
	asked int
}

// packFormat is the file's side of a format.
type packFormat struct {
	name           string
	rowBytes, unit int                       // of a row in a unit; of a packed unit
	body           func(p *packer, half int) // rows 8·half..
}

var packFormats = []packFormat{
	{"F32", 64, 1024, func(p *packer, half int) { p.copyDwords(half, 0, 0, 4) }},
	{"F16", 32, 512, (*packer).halves},
	{"BF16", 32, 512, func(p *packer, half int) { p.copyDwords(half, 0, 0, 2) }},
	{"Q8_0", 68, 1088, (*packer).q8},
	{"Q4_0", 36, 576, func(p *packer, half int) { p.nibbles(half, 18, 2, false, false) }},
	{"Q4_1", 40, 640, func(p *packer, half int) { p.nibbles(half, 20, 4, true, false) }},
	{"Q5_0", 44, 704, func(p *packer, half int) { p.nibbles(half, 22, 6, false, true) }},
	{"Q5_1", 48, 768, func(p *packer, half int) { p.nibbles(half, 24, 8, true, true) }},
	{"Q4_K", 144, 2368, func(p *packer, half int) { p.super(half, false) }},
	{"Q5_K", 176, 2880, func(p *packer, half int) { p.super(half, true) }},
	{"Q6_K", 210, 3392, (*packer).q6},
}

func pack(f packFormat) {
	name := "pack" + f.name + "AVX2"
	a := begin(name, name+" packs whole units of the 16 rows of a strip of "+f.name+".")
	p := &packer{dst: load64(at(a, packDst)), s: load64(at(a, packRowBytes)), s3: GP64()}
	units := load64(at(a, packUnits))
	p.next = load64(at(a, packNext))
	LEAQ(Mem{Base: p.s, Index: p.s, Scale: 2}, p.s3)
	p.rows[0] = load64(at(a, packSrc))
	for i := 1; i < 4; i++ {
		p.rows[i] = GP64()
		LEAQ(Mem{Base: p.rows[i-1], Index: p.s, Scale: 4}, p.rows[i])
	}
	Label("unit")
	p.lines = 16 * f.rowBytes / 64
	f.body(p, 0)
	f.body(p, 1)
	p.prefetch(p.lines)
	ADDQ(I32(int32(16*f.rowBytes)), p.next)
	ADDQ(I32(int32(f.unit)), p.dst)
	for _, r := range p.rows {
		ADDQ(I32(int32(f.rowBytes)), r)
	}
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

// row is the memory at off in row r of the unit.
func (p *packer) row(r, off int) Mem {
	m := at(p.rows[r/4], off)
	switch r % 4 {
	case 1:
		m.Index, m.Scale = p.s, 1
	case 2:
		m.Index, m.Scale = p.s, 2
	case 3:
		m.Index, m.Scale = p.s3, 1
	}
	return m
}

// prefetch asks for up to n more lines of the next strip. In file order a strip is contiguous; its 16 rows
// are too many streams for the hardware to follow, so it is fetched in the order of its bytes, a strip ahead.
func (p *packer) prefetch(n int) {
	for range min(n, p.lines-p.asked) {
		PREFETCHT1(at(p.next, 64*p.asked))
		p.asked++
	}
}

// group transposes 16 bytes at off of 8 rows: each vector holds one 32-bit word of every row.
func (p *packer) group(half, off int) []reg.VecVirtual {
	p.prefetch(2)
	var x, t, out [4]reg.VecVirtual
	for j := range 4 {
		low := XMM()
		VMOVDQU(p.row(8*half+j, off), low)
		x[j] = join(low, p.row(8*half+j+4, off))
	}
	for i := range 4 {
		t[i], out[i] = YMM(), YMM()
	}
	VPUNPCKLDQ(x[1], x[0], t[0])
	VPUNPCKLDQ(x[3], x[2], t[1])
	VPUNPCKHDQ(x[1], x[0], t[2])
	VPUNPCKHDQ(x[3], x[2], t[3])
	VPUNPCKLQDQ(t[1], t[0], out[0])
	VPUNPCKHQDQ(t[1], t[0], out[1])
	VPUNPCKLQDQ(t[3], t[2], out[2])
	VPUNPCKHQDQ(t[3], t[2], out[3])
	return out[:]
}

// word returns the 32-bit word at off of 8 rows.
func (p *packer) word(half, off int) reg.VecVirtual {
	x := [2]reg.VecVirtual{XMM(), XMM()}
	for i, x := range x {
		VMOVD(p.row(8*half+4*i, off), x)
		for j := 1; j < 4; j++ {
			VPINSRD(U8(uint8(j)), p.row(8*half+4*i+j, off), x, x)
		}
	}
	return join(x[0], x[1])
}

// join returns lo and above it hi. Made by hand: avo would take the unwritten upper part of lo for an input,
// and keep its register alive from the start of the function.
func join(lo reg.VecVirtual, hi Op) reg.VecVirtual {
	v := YMM()
	Instruction(&ir.Instruction{
		Opcode:   "VINSERTI128",
		Operands: []Op{U8(1), hi, lo.AsY(), v},
		Inputs:   []Op{hi, lo},
		Outputs:  []Op{v},
		ISA:      []string{"AVX2"},
	})
	return v
}

// copyDwords writes n groups from off to lines from dst.
func (p *packer) copyDwords(half, off, dst, n int) {
	for g := range n {
		for c, v := range p.group(half, off+16*g) {
			VMOVDQU(v, at(p.dst, dst+64*(4*g+c)+32*half))
		}
	}
}

// words copies a 16-bit value of 8 rows. Collecting them costs less than 8 stores.
func (p *packer) words(half, off, dst int) {
	v := XMM()
	VPXOR(v, v, v)
	for r := range 8 {
		VPINSRW(U8(uint8(r)), p.row(8*half+r, off), v, v)
	}
	VMOVDQU(v, at(p.dst, dst+16*half))
}

// split writes the low and the high halves of words to lo and hi.
func (p *packer) split(half int, v reg.VecVirtual, lo, hi int) {
	const a, b, c, d = 0x05040100, 0x0d0c0908, 0x07060302, 0x0f0e0b0a
	VPSHUFB(table("splitWords", a, b, c, d, a, b, c, d), v, v)
	VPERMQ(U8(0xd8), v, v)
	VMOVDQU(v.AsX(), at(p.dst, lo+16*half))
	VEXTRACTI128(U8(1), v, at(p.dst, hi+16*half))
}

func (p *packer) halves(half int) {
	for g := range 2 {
		for c, v := range p.group(half, 16*g) {
			p.split(half, v, 64*(4*g+c), 64*(4*g+c)+32)
		}
	}
}

func (p *packer) q8(half int) {
	for b := range 2 {
		p.words(half, 34*b, 32*b)
		for g := range 2 {
			for c, v := range p.group(half, 34*b+2+16*g) {
				VPXOR(words8(0x80808080), v, v)
				VMOVDQU(v, at(p.dst, 64+512*b+64*(4*g+c)+32*half))
			}
		}
	}
}

// nibbles packs two blocks of size bytes whose nibbles begin at codes.
func (p *packer) nibbles(half, size, codes int, min, fifth bool) {
	head := 64
	for b := range 2 {
		if min {
			p.split(half, p.word(half, size*b), 32*b, 64+32*b)
		} else {
			p.words(half, size*b, 32*b)
		}
	}
	if min {
		head = 128
	}
	if fifth {
		for b := range 2 {
			v := p.word(half, size*b+codes-4)
			for _, s := range []struct {
				mask uint32
				n    int
			}{{0x0000cccc, 14}, {0x00aa00aa, 7}, {0x0c0c0c0c, 2}, {0x22222222, 1}} {
				swapBits(v, v, s.mask, s.n)
			}
			VMOVDQU(v, at(p.dst, head+64*b+32*half))
		}
		head += 128
	}
	first, second := p.group(half, codes), p.group(half, size+codes)
	low := words8(0x0f0f0f0f)
	high := words8(0xf0f0f0f0)
	for c := range 4 {
		q, r, t := first[c], second[c], YMM()
		lo := YMM()
		VPAND(low, q, lo)
		VPSLLD(U8(4), r, t)
		VPAND(high, t, t)
		VPOR(t, lo, lo)
		VMOVDQU(lo, at(p.dst, head+64*c+32*half))
		VPSRLD(U8(4), q, q)
		VPAND(low, q, q)
		VPAND(high, r, r)
		VPOR(r, q, q)
		VMOVDQU(q, at(p.dst, head+256+64*c+32*half))
	}
}

// swapBits exchanges the bits of lo under mask with those of hi n places above them; both may be one vector.
func swapBits(lo, hi reg.VecVirtual, mask uint32, n int) {
	t := YMM()
	VPSRLD(U8(uint8(n)), hi, t)
	VPXOR(lo, t, t)
	VPAND(words8(mask), t, t)
	VPXOR(t, lo, lo)
	VPSLLD(U8(uint8(n)), t, t)
	VPXOR(t, hi, hi)
}

// super packs a super-block of Q4_K or Q5_K.
func (p *packer) super(half int, fifth bool) {
	head := p.group(half, 0)
	p.split(half, head[0], 0, 32)
	a, b, c := head[1], head[2], head[3]
	upper := func(low, high reg.VecVirtual) reg.VecVirtual { // low & 15 | high>>2 & 48
		t, u := YMM(), YMM()
		VPAND(words8(0x0f0f0f0f), low, u)
		VPSRLD(U8(2), high, t)
		VPAND(words8(0x30303030), t, t)
		VPOR(t, u, u)
		return u
	}
	scale4 := upper(c, a)
	VPSRLD(U8(4), c, c)
	min4 := upper(c, b)
	VPAND(words8(0x3f3f3f3f), a, a)
	VPAND(words8(0x3f3f3f3f), b, b)
	pair, codes := 576, 16
	if fifth {
		pair, codes = 704, 48
	}
	for i, v := range []reg.VecVirtual{a, b, scale4, min4} {
		dst := 64 + i/2*2*pair + i%2*32
		p.byteRows(half, v, dst, dst+16, dst+pair, dst+pair+16)
	}
	if fifth {
		p.fifths(half, pair)
	}
	for j := range 4 {
		p.copyDwords(half, codes+32*j, 64+j*pair+pair-512, 2)
	}
}

// byteRows writes byte i of 8 lanes to dst[i].
func (p *packer) byteRows(half int, v reg.VecVirtual, dst ...int) {
	const a, b, c, d = 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703
	VPSHUFB(table("bytesInLane", a, b, c, d, a, b, c, d), v, v)
	order := YMM()
	VMOVDQU(table("wordsInRow", 0, 4, 1, 5, 2, 6, 3, 7), order)
	VPERMD(v, order, v)
	upper := XMM()
	VEXTRACTI128(U8(1), v, upper)
	for i, x := range []reg.Register{v.AsX(), upper} {
		VMOVQ(x, at(p.dst, dst[2*i]+8*half))
		VMOVHPS(x, at(p.dst, dst[2*i+1]+8*half))
	}
}

// fifths transposes the fifth bits of a super-block: bit b of byte 4c+j becomes bit c of byte j of word b.
func (p *packer) fifths(half, pair int) {
	v := append(p.group(half, 16), p.group(half, 32)...)
	for _, s := range []struct {
		mask uint32
		n    int
	}{{0x0f0f0f0f, 4}, {0x33333333, 2}, {0x55555555, 1}} {
		for i := range v {
			if i&s.n == 0 {
				// Bits n.. of word i change places with bits 0.. of word i+n.
				swapBits(v[i+s.n], v[i], s.mask, s.n)
			}
		}
	}
	for b, w := range v {
		VMOVDQU(w, at(p.dst, 64+b/2*pair+64+b%2*64+32*half))
	}
}

func (p *packer) q6(half int) {
	if half == 0 {
		zero := YMM()
		VPXOR(zero, zero, zero)
		VMOVDQU(zero, at(p.dst, 32))
	}
	p.words(half, 208, 0)
	for i, v := range p.group(half, 192) {
		p.byteRows(half, v, 64+64*i, 64+64*i+16, 64+64*i+32, 64+64*i+48)
	}
	for h := range 2 {
		out := 320 + h*24*64 + 32*half
		for g := range 4 {
			for c, v := range p.group(half, 64*h+16*g) {
				i := 4*g + c
				VMOVDQU(v, at(p.dst, out+192*(i%8)+64*(i/8)))
			}
		}
		for g := range 2 {
			for c, v := range p.group(half, 128+32*h+16*g) {
				VMOVDQU(v, at(p.dst, out+192*(4*g+c)+128))
			}
		}
	}
}
