package quant

import "encoding/binary"

// unpackScales reads the 12 bytes that hold the eight 6-bit scales and eight 6-bit mins of a Q4_K or
// Q5_K super-block. As three little-endian words a, b, c: the low 6 bits of each byte of a are scales
// 0..3, of b mins 0..3; c holds the low 4 bits of scales 4..7 (low nibbles) and of mins 4..7 (high
// nibbles), whose upper 2 bits are the upper bits of a and b.
func unpackScales(p *[12]byte) (scales, mins [8]uint8) {
	a := binary.LittleEndian.Uint32(p[0:4])
	b := binary.LittleEndian.Uint32(p[4:8])
	c := binary.LittleEndian.Uint32(p[8:12])
	binary.LittleEndian.PutUint32(scales[0:4], a&0x3f3f3f3f)
	binary.LittleEndian.PutUint32(scales[4:8], c&0x0f0f0f0f|a>>2&0x30303030)
	binary.LittleEndian.PutUint32(mins[0:4], b&0x3f3f3f3f)
	binary.LittleEndian.PutUint32(mins[4:8], c>>4&0x0f0f0f0f|b>>2&0x30303030)
	return scales, mins
}

// dequantizeQ4_K reads super-blocks of d, dmin, scales and mins [12], codes [4][32]: sub-block 2k is in
// the low nibbles of codes[k], sub-block 2k+1 in the high ones. w = d·scale·code - dmin·min.
func dequantizeQ4_K(dst []float32, src []byte) {
	for len(dst) >= superLen && len(src) >= 144 {
		w, b := (*[superLen]float32)(dst), (*[144]byte)(src)
		d, dmin := half(b[0:2]), half(b[2:4])
		scales, mins := unpackScales((*[12]byte)(b[4:16]))
		for k := range 4 {
			codes := (*[32]byte)(b[16+32*k:])
			lo, hi := (*[32]float32)(w[64*k:]), (*[32]float32)(w[64*k+32:])
			dLo, mLo := d*float32(scales[2*k]), dmin*float32(mins[2*k])
			dHi, mHi := d*float32(scales[2*k+1]), dmin*float32(mins[2*k+1])
			for i, c := range codes {
				lo[i] = dLo*float32(c&15) - mLo
				hi[i] = dHi*float32(c>>4) - mHi
			}
		}
		dst, src = dst[superLen:], src[144:]
	}
}

// dequantizeQ5_K reads super-blocks of d, dmin, scales and mins [12], fifth bits [32], codes [4][32] as
// in Q4_K: bit s of fifth[i] belongs to weight i of sub-block s. w = d·scale·code - dmin·min.
func dequantizeQ5_K(dst []float32, src []byte) {
	for len(dst) >= superLen && len(src) >= 176 {
		w, b := (*[superLen]float32)(dst), (*[176]byte)(src)
		d, dmin := half(b[0:2]), half(b[2:4])
		scales, mins := unpackScales((*[12]byte)(b[4:16]))
		fifth := (*[32]byte)(b[16:48])
		for k := range 4 {
			codes := (*[32]byte)(b[48+32*k:])
			lo, hi := (*[32]float32)(w[64*k:]), (*[32]float32)(w[64*k+32:])
			dLo, mLo := d*float32(scales[2*k]), dmin*float32(mins[2*k])
			dHi, mHi := d*float32(scales[2*k+1]), dmin*float32(mins[2*k+1])
			for i, c := range codes {
				f := fifth[i] >> (2 * k)
				lo[i] = dLo*float32(c&15|f<<4&16) - mLo
				hi[i] = dHi*float32(c>>4|f<<3&16) - mHi
			}
		}
		dst, src = dst[superLen:], src[176:]
	}
}

// dequantizeQ6_K reads super-blocks of low nibbles [2][2][32], upper bit pairs [2][32], scales [16]int8,
// d. Each half of the super-block, 128 weights, is four rows of 32: rows 0 and 1 in the low nibbles of
// the half's two rows of bytes, rows 2 and 3 in the high ones, their upper bits in bits 2r, 2r+1 of the
// pairs. Scale 2r+i/16 of the half belongs to weight i of row r. w = d·scale·(code-32).
func dequantizeQ6_K(dst []float32, src []byte) {
	for len(dst) >= superLen && len(src) >= 210 {
		w, b := (*[superLen]float32)(dst), (*[210]byte)(src)
		d := half(b[208:210])
		for h := range 2 {
			low, pairs := (*[64]byte)(b[64*h:]), (*[32]byte)(b[128+32*h:])
			scales, out := (*[8]byte)(b[192+8*h:]), (*[128]float32)(w[128*h:])
			var ds [8]float32
			for s := range ds {
				ds[s] = d * float32(int8(scales[s]))
			}
			for i, p := range pairs {
				a, c, s := low[i], low[32+i], i/16
				out[i] = ds[s] * float32(int32(a&15|p<<4&48)-32)
				out[32+i] = ds[2+s] * float32(int32(c&15|p<<2&48)-32)
				out[64+i] = ds[4+s] * float32(int32(a>>4|p&48)-32)
				out[96+i] = ds[6+s] * float32(int32(c>>4|p>>2&48)-32)
			}
		}
		dst, src = dst[superLen:], src[210:]
	}
}
