package qgemm

import (
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// tileGeneric is the plain Go body of the kernels: the products of some strips with one tile. The assembly
// kernels do the same in the same order for 16 rows at once.
func tileGeneric(t quant.Type, a *args) {
	l := layouts[t]
	height := int(a.step) / 64
	for s := range int(a.strips) {
		var y [maxTile]*[lanes]float32
		for m := range height {
			y[m] = (*[lanes]float32)(unsafe.Add(a.y[m], 64*s))
			if a.keep == 0 {
				*y[m] = [lanes]float32{}
			}
		}
		w := unsafe.Slice((*byte)(unsafe.Add(a.w, s*int(a.stripBytes))), int(a.units)*l.bytes)
		for u := range int(a.units) {
			unit := w[u*l.bytes:][:l.bytes]
			if l.float {
				mulFloats(t, unit, unsafe.Slice((*floatBlock)(unsafe.Add(a.x, u*height*64)), height), &y)
				continue
			}
			var blk block
			for b := range l.blocks() {
				blk.decode(t, unit, b)
				x := unsafe.Slice((*actBlock)(unsafe.Add(a.x, (u*l.blocks()+b)*height*64)), height)
				for m := range x {
					blk.mul(&x[m], y[m], t == quant.Q6_K)
				}
			}
		}
	}
}

// mulFloats adds the products of a unit of 16 columns with one float block of each row.
func mulFloats(t quant.Type, unit []byte, x []floatBlock, y *[maxTile]*[lanes]float32) {
	var w [16][lanes]float32 // [column][row]
	for k := range w {
		for r := range w[k] {
			switch t {
			case quant.F32:
				w[k][r] = fromBits(get32(unit[64*k+4*r:]))
			case quant.F16:
				w[k][r] = quant.F16ToF32(get16(unit[32*k+2*r:]))
			case quant.BF16:
				w[k][r] = quant.BF16ToF32(get16(unit[64*(k/2)+4*r+k%2*2:]))
			}
		}
	}
	for m := range x {
		for k, f := range &x[m] {
			for r := range y[m] {
				y[m][r] += w[k][r] * f
			}
		}
	}
}

// block is 32 columns of a strip, decoded: w = d·code + m.
type block struct {
	code [lanes][blockLen]int8
	d    [2][lanes]float32 // of the first and the last 16 columns
	m    [lanes]float32
}

// mul adds the products with one block of activations to y.
func (w *block) mul(x *actBlock, y *[lanes]float32, halves bool) {
	for r := range y {
		var dot [2]int32
		for i, q := range &w.code[r] {
			dot[i/16] += int32(q) * int32(x.q[i])
		}
		if halves {
			y[r] += w.d[0][r] * x.d * float32(dot[0])
			y[r] += w.d[1][r] * x.d * float32(dot[1])
		} else {
			y[r] += w.d[0][r] * x.d * float32(dot[0]+dot[1])
			y[r] += w.m[r] * x.sum
		}
	}
}

// decode reads block b of a unit; see the pack functions for the layouts.
func (w *block) decode(t quant.Type, unit []byte, b int) {
	switch t {
	case quant.Q8_0:
		for r := range lanes {
			w.d[0][r] = half(unit[32*b+2*r:])
			for i := range blockLen {
				w.code[r][i] = int8(unit[64+512*b+i/4*64+4*r+i%4] ^ 0x80)
			}
		}
	case quant.Q4_0:
		w.decodePair(unit, unit[64:], nil, b, 8)
	case quant.Q5_0:
		w.decodePair(unit, unit[192:], unit[64:], b, 16)
	case quant.Q4_1:
		w.decodePair(unit, unit[128:], nil, b, 0)
		w.decodeMins(unit[64:], b)
	case quant.Q5_1:
		w.decodePair(unit, unit[256:], unit[128:], b, 0)
		w.decodeMins(unit[64:], b)
	case quant.Q4_K:
		pair := unit[64+b/2*576:]
		w.decodePair(unit, pair[64:], nil, b%2, 0)
		w.decodeScales(unit, pair, b%2)
	case quant.Q5_K:
		pair := unit[64+b/2*704:]
		w.decodePair(unit, pair[192:], pair[64:], b%2, 0)
		w.decodeScales(unit, pair, b%2)
	case quant.Q6_K:
		w.decodeQ6K(unit, b)
	}
}

// decodePair reads d and the codes of the low (b = 0) or high (b = 1) nibbles, less offset.
func (w *block) decodePair(d, nibbles, fifth []byte, b int, offset int8) {
	for r := range lanes {
		w.d[0][r] = half(d[32*b+2*r:])
		for i := range blockLen {
			c, j := i/4, i%4
			code := int8(nibbles[64*c+4*r+j] >> (4 * b) & 15)
			if fifth != nil {
				code |= int8(fifth[64*b+4*r+j] >> c & 1 << 4)
			}
			w.code[r][i] = code - offset
		}
	}
}

func (w *block) decodeMins(m []byte, b int) {
	for r := range lanes {
		w.m[r] = half(m[32*b+2*r:])
	}
}

// decodeScales sets the scale and minimum of sub-block b of a pair from those of the super-block.
func (w *block) decodeScales(unit, pair []byte, b int) {
	for r := range lanes {
		w.d[0][r] = half(unit[2*r:]) * float32(pair[16*b+r])
		w.m[r] = -half(unit[32+2*r:]) * float32(pair[32+16*b+r])
	}
}

// decodeQ6K reads row b%4 of half b/4: see quant.Dequantize for the order of the codes.
func (w *block) decodeQ6K(unit []byte, b int) {
	low := unit[320+b/4*24*64+b%2*64:]
	pairs := unit[320+b/4*24*64+128:]
	for r := range lanes {
		d := half(unit[2*r:])
		for s := range 2 {
			w.d[s][r] = d * float32(int8(unit[64+16*(2*b+s)+r]))
		}
		for i := range blockLen {
			at := 192*(i/4) + 4*r + i%4
			code := low[at]>>(b%4/2*4)&15 | pairs[at]>>(b%4*2)&3<<4
			w.code[r][i] = int8(code) - 32
		}
	}
}
