//go:build amd64 && !noasm

package kvdot

import "math"

// q8QueryWords is the size of one row's 32 dimensions prepared for a Q8_0 body: two words for every four
// dimensions, a correction, a scale.
const q8QueryWords = blockDims/4*2 + 2

// q8QueryMax is the largest 16-bit query. It is a multiple of 256, so that the upper byte does not overflow
// when a negative lower byte borrows from it.
const q8QueryMax = 127 << 8

// prepareQ8 writes q, [rows][dim], as 16-bit integers with a scale per 32 dimensions. Eight bits would add
// as much error as Q8_0 keys have themselves; sixteen are off by at most scale/2, 2⁻¹⁶ of the block's
// largest query. dst holds per block [8][rows][2] words of four dimensions, [rows] corrections -128·Σq and
// [rows] scales.
func prepareQ8(dst, q []float32, rows int, split func([4]int16) [2]uint32) {
	dim := len(q) / rows
	for b := 0; b < dim; b += blockDims {
		out := dst[b/blockDims*rows*q8QueryWords:][:rows*q8QueryWords]
		for r := range rows {
			x := q[r*dim+b : r*dim+b+blockDims]
			scale, inverse := q8Scale(x)
			var sum int32
			for i := 0; i < blockDims; i += 4 {
				var c [4]int16
				for j := range c {
					c[j] = int16(math.RoundToEven(float64(x[i+j] * inverse)))
					sum += int32(c[j])
				}
				w := split(c)
				to := out[(i/4*rows+r)*2:]
				to[0], to[1] = math.Float32frombits(w[0]), math.Float32frombits(w[1])
			}
			out[blockDims/4*2*rows+r] = math.Float32frombits(uint32(-128 * sum))
			out[(blockDims/4*2+1)*rows+r] = scale
		}
	}
}

// q8Scale returns the step of a block's 16-bit queries and its inverse, 0 for a block of zeros.
func q8Scale(x []float32) (scale, inverse float32) {
	var top float32
	for _, v := range x {
		top = max(top, float32(math.Abs(float64(v))))
	}
	if top < math.SmallestNonzeroFloat32*(1<<23)*q8QueryMax {
		return 0, 0 // the inverse might overflow; such a query gives scores of 0
	}
	return top / q8QueryMax, q8QueryMax / top
}

// splitQuery512 gives the upper bytes of four queries, then the lower ones, all signed.
func splitQuery512(q [4]int16) (w [2]uint32) {
	for i, x := range q {
		lower := int8(x)
		upper := (int32(x) - int32(lower)) >> 8
		w[0] |= uint32(uint8(upper)) << (8 * i)
		w[1] |= uint32(uint8(lower)) << (8 * i)
	}
	return w
}

// splitQuery2 gives queries 0 and 2, then 1 and 3, as 16-bit halves.
func splitQuery2(q [4]int16) [2]uint32 {
	pair := func(a, b int16) uint32 { return uint32(uint16(a)) | uint32(uint16(b))<<16 }
	return [2]uint32{pair(q[0], q[2]), pair(q[1], q[3])}
}
