package qgemm

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// Pack rearranges strips [strip0, strip1) of a matrix in file order, src, into dst, which holds the whole
// packed matrix (PackedBytes). Callers may split the strips over workers.
func (k *Kernels) Pack(dst, src []byte, t quant.Type, rows, cols, strip0, strip1 int) {
	if need := PackedBytes(t, rows, cols); len(dst) < need {
		panic(fmt.Sprintf("qgemm: pack of %d x %d %v needs %d bytes, not %d", rows, cols, t, need, len(dst)))
	}
	l := layoutOf(t)
	units := l.units(cols)
	s := k.take()
	for i := strip0; i < strip1; i++ {
		k.packStrip(s, dst[i*units*l.bytes:][:units*l.bytes], src, t, rows, cols, i, 0, units)
	}
	k.give(s)
}

// packStrip writes units [u0, u1) of a strip to dst.
func (k *Kernels) packStrip(s *scratch, dst, src []byte, t quant.Type, rows, cols, strip, u0, u1 int) {
	l, rowBytes := layouts[t], t.RowBytes(cols)
	whole := min(u1, cols/l.cols) // units without padding
	if f := k.packs[t]; f != nil && (strip+1)*lanes <= rows && u0 < whole {
		colBytes := l.cols / t.BlockSize() * t.BlockBytes()
		first := strip*lanes*rowBytes + u0*colBytes
		_, _ = src[(strip+1)*lanes*rowBytes-1], dst[(whole-u0)*l.bytes-1]
		s.packArgs = packArgs{
			dst: unsafe.Pointer(&dst[0]), src: unsafe.Pointer(&src[first]),
			rowBytes: int64(rowBytes), units: int64(whole - u0), next: uintptr(unsafe.Pointer(&src[strip*lanes*rowBytes])) + uintptr(lanes*(rowBytes+u0*colBytes)),
		}
		f((*byte)(unsafe.Pointer(&s.packArgs)))
		dst, u0 = dst[(whole-u0)*l.bytes:], whole
	}
	if u0 < u1 {
		packUnits(dst, src[strip*lanes*rowBytes:min((strip+1)*lanes, rows)*rowBytes], t, rowBytes, u0, u1)
	}
}

// packArgs is what a packing kernel reads: whole units of 16 rows. Its offsets are known to the generator.
type packArgs struct {
	dst, src unsafe.Pointer
	rowBytes int64
	units    int64
	next     uintptr // what to prefetch, as many bytes as are packed: an address, maybe beyond the matrix
}

// packUnits is the generic body of packStrip: src is at most 16 rows of rowBytes bytes. Missing rows and
// columns become zeros.
func packUnits(dst, src []byte, t quant.Type, rowBytes, u0, u1 int) {
	l := layouts[t]
	srcBytes := l.cols / t.BlockSize() * t.BlockBytes() // of one row in a unit
	full := len(src) == lanes*rowBytes
	for u := u0; u < u1; u++ {
		unit := dst[(u-u0)*l.bytes:][:l.bytes]
		lo, hi := u*srcBytes, min((u+1)*srcBytes, rowBytes)
		if !full || hi-lo < srcBytes {
			clear(unit)
		}
		for r := 0; r*rowBytes < len(src); r++ {
			packRow(unit, src[r*rowBytes+lo:r*rowBytes+hi], t, r)
		}
	}
}

// packRow writes one row's part of a unit, row, into lane r of unit.
func packRow(unit, row []byte, t quant.Type, r int) {
	switch t {
	case quant.F32, quant.BF16:
		// F32 [16 columns][16 rows]; BF16 [8][16][2 columns].
		packDwords(unit[4*r:], row, 0)
	case quant.F16: // [16 columns][16 rows]
		for i := 0; i+1 < len(row); i += 2 {
			put16(unit[16*i+2*r:], get16(row[i:]))
		}
	case quant.Q8_0: // d [2][16], codes + 128 [2][8][16][4]
		for h := 0; len(row) >= 34; h++ {
			put16(unit[32*h+2*r:], get16(row))
			packDwords(unit[64+512*h+4*r:], row[2:34], 0x80808080)
			row = row[34:]
		}
	case quant.Q4_0:
		packNibbles(unit, row, r, false, false)
	case quant.Q4_1:
		packNibbles(unit, row, r, true, false)
	case quant.Q5_0:
		packNibbles(unit, row, r, false, true)
	case quant.Q5_1:
		packNibbles(unit, row, r, true, true)
	case quant.Q4_K:
		packK(unit, row, r, false)
	case quant.Q5_K:
		packK(unit, row, r, true)
	case quant.Q6_K:
		packQ6K(unit, row, r)
	}
}

// packDwords spreads the 32-bit words of row over the lines of out, XORed with flip. A 16-bit rest is
// padded with zeros.
func packDwords(out, row []byte, flip uint32) {
	for len(row) >= 4 {
		put32(out, get32(row)^flip)
		row = row[4:]
		if len(row) > 0 {
			out = out[64:]
		}
	}
	if len(row) == 2 {
		put32(out, uint32(get16(row)))
	}
}

// packNibbles packs two blocks of a 4 or 5 bit format, the second of which may be missing.
//
//	d [2][16], if hasMin m [2][16], if hasFifth fifth bits [2][16][4], nibbles [8][16][4]
//
// The low nibbles are those of the first block, the high ones those of the second; both in column order,
// unlike the file's. In the fifth bits of a lane, bit c of byte j belongs to column 4c+j.
func packNibbles(unit, row []byte, r int, hasMin, hasFifth bool) {
	head, size := 64, 18
	if hasMin {
		head, size = head+64, size+2
	}
	fifth := head
	if hasFifth {
		head, size = head+128, size+4
	}
	for h := 0; len(row) >= size; h++ {
		in := row[:size]
		put16(unit[32*h+2*r:], get16(in))
		in = in[2:]
		if hasMin {
			put16(unit[64+32*h+2*r:], get16(in))
			in = in[2:]
		}
		if hasFifth {
			put32(unit[fifth+64*h+4*r:], spreadFifth(get32(in)))
			in = in[4:]
		}
		for c := range 4 {
			v := get32(in[4*c:])
			lo, hi := unit[head+64*c+4*r:], unit[head+256+64*c+4*r:]
			if h == 0 {
				put32(lo, v&0x0f0f0f0f)
				put32(hi, v>>4&0x0f0f0f0f)
			} else {
				put32(lo, get32(lo)|v<<4&0xf0f0f0f0)
				put32(hi, get32(hi)|v&0xf0f0f0f0)
			}
		}
		row = row[size:]
	}
}

// spreadFifth moves bit 4c+j to bit c of byte j. The number of a bit has five digits, c2 c1 c0 j1 j0; four
// exchanges of digits make them j1 j0 c2 c1 c0.
func spreadFifth(v uint32) uint32 {
	v = swapBits(v, 0x0000cccc, 14)
	v = swapBits(v, 0x00aa00aa, 7)
	v = swapBits(v, 0x0c0c0c0c, 2)
	return swapBits(v, 0x22222222, 1)
}

// swapBits exchanges the bits of v under mask with those n places above them.
func swapBits(v, mask uint32, n uint) uint32 {
	t := (v ^ v>>n) & mask
	return v ^ t ^ t<<n
}

// packK packs a super-block of Q4_K or Q5_K (hasFifth).
//
//	d [16], dmin [16], then for each of 4 pairs of sub-blocks:
//	scales [2][16], mins [2][16], if hasFifth fifth bits [2][16][4], nibbles [8][16][4]
//
// as in packNibbles. The file's nibbles are in this order already.
func packK(unit, row []byte, r int, hasFifth bool) {
	put16(unit[2*r:], get16(row))
	put16(unit[32+2*r:], get16(row[2:]))
	scales, mins := unpackScales(row[4:16])
	pair, codes := 64+8*64, row[16:]
	if hasFifth {
		pair, codes = pair+128, row[48:]
	}
	for j := range 4 {
		out := unit[64+j*pair:][:pair]
		for i := range 2 {
			out[16*i+r], out[32+16*i+r] = scales[2*j+i], mins[2*j+i]
			if hasFifth {
				put32(out[64+64*i+4*r:], gatherFifth(row[16:48], uint(2*j+i)))
			}
		}
		packDwords(out[pair-512+4*r:], codes[32*j:32*j+32], 0)
	}
}

// gatherFifth collects bit b of 32 bytes: that of byte 4c+j becomes bit c of byte j.
func gatherFifth(bytes []byte, b uint) (v uint32) {
	for c := range 8 {
		v |= get32(bytes[4*c:]) >> b & 0x01010101 << c
	}
	return v
}

// unpackScales separates the 6-bit scales and mins of a Q4_K or Q5_K super-block.
func unpackScales(p []byte) (scales, mins [8]uint8) {
	a, b, c := get32(p), get32(p[4:]), get32(p[8:])
	put32(scales[0:], a&0x3f3f3f3f)
	put32(scales[4:], c&0x0f0f0f0f|a>>2&0x30303030)
	put32(mins[0:], b&0x3f3f3f3f)
	put32(mins[4:], c>>4&0x0f0f0f0f|b>>2&0x30303030)
	return scales, mins
}

// packQ6K packs a super-block of Q6_K.
//
//	d [16], 32 bytes unused, scales [16][16], then for each half of 128 columns
//	8 times: low nibbles [2][16][4] of rows 0 and 2, and of 1 and 3, upper bit pairs [16][4]
//
// The bits of a byte are those of the file, whose "rows" are blocks of 32 columns here; all that holds
// columns 4c.. of the four blocks of a half lies together.
func packQ6K(unit, row []byte, r int) {
	put16(unit[2*r:], get16(row[208:]))
	put16(unit[32+2*r:], 0)
	for s := range 16 {
		unit[64+16*s+r] = row[192+s]
	}
	for h := range 2 {
		low, pairs, out := row[64*h:64*h+64], row[128+32*h:], unit[320+h*24*64+4*r:]
		for c := range 8 {
			put32(out[192*c:], get32(low[4*c:]))
			put32(out[192*c+64:], get32(low[32+4*c:]))
			put32(out[192*c+128:], get32(pairs[4*c:]))
		}
	}
}

func get16(b []byte) uint16    { return binary.LittleEndian.Uint16(b) }
func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
