package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets in qgemm.packArgs.
const (
	packDst      = 0
	packSrc      = 8
	packRowBytes = 16
	packUnits    = 24
	packAhead    = 32
)

// packer is a kernel being emitted that packs whole units of a whole strip.
type packer struct {
	dst    reg.GPVirtual
	rows   [4]reg.GPVirtual // rows 0, 4, 8 and 12 at the unit
	s, s3  reg.GPVirtual    // bytes of a row, of three
	ahead  reg.GPVirtual
	consts map[uint32]reg.VecVirtual
}

// packFormat is the file's side of a format.
type packFormat struct {
	name           string
	rowBytes, unit int // of a row in a unit; of a packed unit
	masks          []uint32
	body           func(p *packer)
}

var packFormats = []packFormat{
	{"F32", 64, 1024, nil, func(p *packer) { p.copyDwords(0, 0, 4) }},
	{"F16", 32, 512, nil, (*packer).halves},
	{"BF16", 32, 512, nil, func(p *packer) { p.copyDwords(0, 0, 2) }},
	{"Q8_0", 68, 1088, []uint32{0x80808080}, (*packer).q8},
	{"Q4_0", 36, 576, []uint32{0x0f0f0f0f}, func(p *packer) { p.nibbles(18, 2, false, false) }},
	{"Q4_1", 40, 640, []uint32{0x0f0f0f0f}, func(p *packer) { p.nibbles(20, 4, true, false) }},
	{"Q5_0", 44, 704, []uint32{0x0f0f0f0f}, func(p *packer) { p.nibbles(22, 6, false, true) }},
	{"Q5_1", 48, 768, []uint32{0x0f0f0f0f}, func(p *packer) { p.nibbles(24, 8, true, true) }},
	{"Q4_K", 144, 2368, []uint32{0x3f3f3f3f, 0x0f0f0f0f, 0x30303030}, func(p *packer) { p.super(false) }},
	{"Q5_K", 176, 2880, []uint32{0x3f3f3f3f, 0x0f0f0f0f, 0x30303030}, func(p *packer) { p.super(true) }},
	{"Q6_K", 210, 3392, nil, (*packer).q6},
}

func pack512(f packFormat) {
	name := "pack" + f.name + "AVX512"
	a := begin(name, name+" packs whole units of the 16 rows of a strip of "+f.name+".")
	p := &packer{dst: load64(at(a, packDst)), s: load64(at(a, packRowBytes)), s3: GP64(), consts: map[uint32]reg.VecVirtual{}}
	units := load64(at(a, packUnits))
	p.ahead = load64(at(a, packAhead))
	LEAQ(Mem{Base: p.s, Index: p.s, Scale: 2}, p.s3)
	p.rows[0] = load64(at(a, packSrc))
	for i := 1; i < 4; i++ {
		p.rows[i] = GP64()
		LEAQ(Mem{Base: p.rows[i-1], Index: p.s, Scale: 4}, p.rows[i])
	}
	for _, v := range f.masks {
		r := ZMM()
		VPBROADCASTD(word(v), r)
		p.consts[v] = r
	}
	Label("unit")
	for line := 0; line < f.rowBytes; line += 64 {
		p.prefetch(line)
	}
	f.body(p)
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

// prefetch asks for what the packing of all rows will need next.
func (p *packer) prefetch(off int) {
	next := GP64()
	for i, r := range p.rows {
		LEAQ(Mem{Base: r, Index: p.ahead, Scale: 1}, next)
		for j := range 4 {
			m := p.row(4*i+j, off)
			m.Base = next
			PREFETCHT0(m)
		}
	}
}

// group transposes 16 bytes at off of every row: the first want vectors hold one 32-bit word of each row.
func (p *packer) group(off, want int) []reg.VecVirtual {
	var x, t, out [4]reg.VecVirtual
	for j := range 4 {
		x[j] = ZMM()
		VBROADCASTI32X4(p.row(j, off), x[j]) // writes all of x[j]; a load of its lower part would leave the rest live
		for q := 1; q < 4; q++ {
			VINSERTI32X4(U8(uint8(q)), p.row(j+4*q, off), x[j], x[j])
		}
	}
	for i := range 4 {
		t[i], out[i] = ZMM(), ZMM()
	}
	VPUNPCKLDQ(x[1], x[0], t[0])
	VPUNPCKLDQ(x[3], x[2], t[1])
	VPUNPCKLQDQ(t[1], t[0], out[0])
	if want > 1 {
		VPUNPCKHQDQ(t[1], t[0], out[1])
	}
	if want > 2 {
		VPUNPCKHDQ(x[1], x[0], t[2])
		VPUNPCKHDQ(x[3], x[2], t[3])
		VPUNPCKLQDQ(t[3], t[2], out[2])
		VPUNPCKHQDQ(t[3], t[2], out[3])
	}
	return out[:want]
}

// copyDwords writes n groups from off to lines from dst.
func (p *packer) copyDwords(off, dst, n int) {
	for g := range n {
		for c, v := range p.group(off+16*g, 4) {
			VMOVDQU32(v, at(p.dst, dst+64*(4*g+c)))
		}
	}
}

// words copies a 16-bit value of every row.
func (p *packer) words(off, dst int) {
	for r := range 16 {
		t := GP32()
		MOVWLZX(p.row(r, off), t)
		MOVW(t.As16(), at(p.dst, dst+2*r))
	}
}

// split writes the low and the high halves of words.
func (p *packer) split(v reg.VecVirtual, lo, hi int) {
	VPMOVDW(v, at(p.dst, lo))
	VPSRLD(U8(16), v, v)
	VPMOVDW(v, at(p.dst, hi))
}

func (p *packer) halves() {
	for g := range 2 {
		for c, v := range p.group(16*g, 4) {
			p.split(v, 32*2*(4*g+c), 32*(2*(4*g+c)+1))
		}
	}
}

func (p *packer) q8() {
	for b := range 2 {
		p.words(34*b, 32*b)
		for g := range 2 {
			for c, v := range p.group(34*b+2+16*g, 4) {
				VPXORD(p.consts[0x80808080], v, v)
				VMOVDQU32(v, at(p.dst, 64+512*b+64*(4*g+c)))
			}
		}
	}
}

// nibbles packs two blocks of size bytes whose nibbles begin at codes.
func (p *packer) nibbles(size, codes int, min, fifth bool) {
	head := 64
	for b := range 2 {
		p.words(size*b, 32*b)
		if min {
			p.words(size*b+2, 64+32*b)
		}
	}
	if min {
		head = 128
	}
	if fifth {
		for b := range 2 {
			v := p.group(size*b+codes-4, 1)[0]
			for _, s := range []struct {
				mask uint32
				n    int
			}{{0x0000cccc, 14}, {0x00aa00aa, 7}, {0x0c0c0c0c, 2}, {0x22222222, 1}} {
				swapBits(v, v, s.mask, s.n)
			}
			VMOVDQU32(v, at(p.dst, head+64*b))
		}
		head += 128
	}
	first, second := p.group(codes, 4), p.group(size+codes, 4)
	low := p.consts[0x0f0f0f0f]
	for c := range 4 {
		q, r := first[c], second[c]
		t := ZMM()
		VPSLLD(U8(4), r, t)
		selectBits(low, q, t)
		VMOVDQU32(t, at(p.dst, head+64*c))
		VPSRLD(U8(4), q, q)
		selectBits(low, q, r)
		VMOVDQU32(r, at(p.dst, head+256+64*c))
	}
}

// selectBits emits b = mask ? a : b for every bit.
func selectBits(mask, a, b reg.VecVirtual) { VPTERNLOGD(U8(0xd8), mask, a, b) }

// swapBits exchanges the bits of lo under mask with those of hi n places above them; both may be one vector.
func swapBits(lo, hi reg.VecVirtual, mask uint32, n int) {
	t := ZMM()
	VPSRLD(U8(uint8(n)), hi, t)
	VPXORD(lo, t, t)
	VPANDD_BCST(word(mask), t, t)
	VPXORD(t, lo, lo)
	VPSLLD(U8(uint8(n)), t, t)
	VPXORD(t, hi, hi)
}

// super packs a super-block of Q4_K or Q5_K.
func (p *packer) super(fifth bool) {
	head := p.group(0, 4)
	p.split(head[0], 0, 32)
	a, b, c := head[1], head[2], head[3]
	m3f, m0f, m30 := p.consts[0x3f3f3f3f], p.consts[0x0f0f0f0f], p.consts[0x30303030]
	scale4, min4 := ZMM(), ZMM()
	upper := func(low, high, out reg.VecVirtual) { // low & 15 | high>>2 & 48
		t := ZMM()
		VPANDD(m0f, low, out)
		VPSRLD(U8(2), high, t)
		orBits(t, m30, out)
	}
	upper(c, a, scale4)
	VPSRLD(U8(4), c, c)
	upper(c, b, min4)
	VPANDD(m3f, a, a)
	VPANDD(m3f, b, b)
	pair, codes := 576, 16
	if fifth {
		pair, codes = 704, 48
	}
	for i, v := range []reg.VecVirtual{a, b, scale4, min4} {
		p.byteRows(v)
		dst := 64 + i/2*2*pair + i%2*32
		VMOVDQU32(v.AsY(), at(p.dst, dst))
		VEXTRACTI64X4(U8(1), v, at(p.dst, dst+pair))
	}
	if fifth {
		p.fifths(pair)
	}
	for j := range 4 {
		p.copyDwords(codes+32*j, 64+j*pair+pair-512, 2)
	}
}

// byteRows turns 16 lanes of 4 bytes into 4 rows of 16 bytes.
func (p *packer) byteRows(v reg.VecVirtual) {
	order := ZMM()
	VBROADCASTI32X4(table("bytesInLane", 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703), order)
	VPSHUFB(order, v, v)
	VMOVDQU32(table("lanesInRow", 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), order)
	VPERMD(v, order, v)
}

// fifths transposes the fifth bits of a super-block: bit b of byte 4c+j becomes bit c of byte j of word b.
func (p *packer) fifths(pair int) {
	v := append(p.group(16, 4), p.group(32, 4)...)
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
		VMOVDQU32(w, at(p.dst, 64+b/2*pair+64+b%2*64))
	}
}

func (p *packer) q6() {
	zero := YMM()
	VPXOR(zero, zero, zero)
	VMOVDQU(zero, at(p.dst, 32))
	p.words(208, 0)
	for i, v := range p.group(192, 4) {
		p.byteRows(v)
		VMOVDQU32(v, at(p.dst, 64+64*i))
	}
	for h := range 2 {
		p.copyDwords(64*h, 320+h*24*64, 4)
		p.copyDwords(128+32*h, 320+h*24*64+16*64, 2)
	}
}
