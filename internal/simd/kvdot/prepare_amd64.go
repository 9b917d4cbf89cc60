//go:build amd64 && !noasm

package kvdot

import (
	"math"

	"github.com/flashdecode/flashdecode/internal/simd"
)

// q8QueryWords is the size of one row's 32 dimensions prepared for a Q8_0 body: two words for every four
// dimensions, and a correction.
const q8QueryWords = blockDims/4*2 + 1

// q8QueryMax is the largest 16-bit query. It is a multiple of 256, so that the upper byte does not overflow
// when a negative lower byte borrows from it.
const q8QueryMax = 127 << 8

// prepareQ8 writes q, [rows][dim], as 16-bit integers with a scale a row. Eight bits would add as much error as
// Q8_0 keys have themselves; sixteen are off by at most scale/2, 2⁻¹⁶ of the row's largest query. dst holds the
// [rows] scales, then per block of 32 dimensions [8][rows][2] words of four dimensions and [rows] corrections
// -128·Σq. It runs once an item and is as much as a stripe or two: hence the rounding by addition.
func prepareQ8(dst, q []float32, rows int, level simd.Level) {
	const round = 3 << 22 // adding it leaves no bits for a fraction
	dim := len(q) / rows
	for r := range rows {
		scale, inverse := q8Scale(q[r*dim : (r+1)*dim])
		dst[r] = scale
		for b := 0; b < dim; b += blockDims {
			out := dst[rows+b/blockDims*rows*q8QueryWords:][:rows*q8QueryWords]
			var c [blockDims]int32
			var sum int32
			for i, v := range (*[blockDims]float32)(q[r*dim+b:]) {
				c[i] = int32(math.Float32bits(float32(v*inverse)+round) - math.Float32bits(round))
				sum += c[i]
			}
			if level == simd.AVX512 { // not a func value, to which c would escape
				splitQuery512(out[2*r:], 2*rows, &c)
			} else {
				splitQuery2(out[2*r:], 2*rows, &c)
			}
			out[blockDims/4*2*rows+r] = math.Float32frombits(uint32(-128 * sum))
		}
	}
}

// q8Scale returns the step of a row's 16-bit queries and its inverse, 0 for a row of zeros.
func q8Scale(x []float32) (scale, inverse float32) {
	var top uint32 // numbers without a sign compare as integers
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	t := math.Float32frombits(top)
	if t < math.SmallestNonzeroFloat32*(1<<23)*q8QueryMax {
		return 0, 0 // the inverse might overflow; such a query gives scores of 0
	}
	return t / q8QueryMax, q8QueryMax / t
}

// splitQuery512 writes a block's 16-bit queries as two words for every four, stride apart: the upper bytes,
// then the lower ones, all signed.
func splitQuery512(dst []float32, stride int, c *[blockDims]int32) {
	for i := 0; i < blockDims; i += 4 {
		x := (*[4]int32)(c[i:])
		lower := x[0]&255 | x[1]&255<<8 | x[2]&255<<16 | x[3]<<24
		upper := (x[0]+128)>>8&255 | (x[1]+128)&^255&0xffff | (x[2]+128)>>8&255<<16 | (x[3]+128)>>8<<24
		to := (*[2]float32)(dst[i/4*stride:])
		to[0], to[1] = math.Float32frombits(uint32(upper)), math.Float32frombits(uint32(lower))
	}
}

// splitQuery2 writes queries 0 and 2, then 1 and 3, as 16-bit halves.
func splitQuery2(dst []float32, stride int, c *[blockDims]int32) {
	for i := 0; i < blockDims; i += 4 {
		x, to := (*[4]int32)(c[i:]), (*[2]float32)(dst[i/4*stride:])
		to[0] = math.Float32frombits(uint32(x[0]&0xffff | x[2]<<16))
		to[1] = math.Float32frombits(uint32(x[1]&0xffff | x[3]<<16))
	}
}
