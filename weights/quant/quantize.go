package quant

import (
	"encoding/binary"
	"math"
)

// Quantize writes the weights of src to dst in format t. It allocates nothing. len(src) must be a whole
// number of blocks of t and dst exactly their bytes; otherwise dst is untouched.
//
// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 give the same bytes as the published reference
// quantisers. The K formats search for scales of small squared error (see searchScaleMin), which is the
// reference's aim but not its bytes.
//
// Finite weights whose scale overflows a half (beyond about 65504 times the largest code) give an
// infinite scale, and a block with a NaN or an infinity has unspecified codes, as in the reference.
func Quantize(t Type, dst []byte, src []float32) error {
	if err := checkLens("quantize", t, len(src), len(dst)); err != nil {
		return err
	}
	switch t {
	case F32:
		for i, f := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case F16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(f))
		}
	case BF16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(f))
		}
	case Q8_0:
		eachBlock(dst, src, blockLen, 34, quantizeQ8_0)
	case Q4_0:
		eachBlock(dst, src, blockLen, 18, quantizeQ4_0)
	case Q4_1:
		eachBlock(dst, src, blockLen, 20, quantizeQ4_1)
	case Q5_0:
		eachBlock(dst, src, blockLen, 22, quantizeQ5_0)
	case Q5_1:
		eachBlock(dst, src, blockLen, 24, quantizeQ5_1)
	case Q4_K:
		eachBlock(dst, src, superLen, 144, quantizeQ4_K)
	case Q5_K:
		eachBlock(dst, src, superLen, 176, quantizeQ5_K)
	case Q6_K:
		eachBlock(dst, src, superLen, 210, quantizeQ6_K)
	}
	return nil
}

// eachBlock calls f for every block of dst with its weights.
func eachBlock(dst []byte, src []float32, weights, bytes int, f func([]byte, []float32)) {
	for len(src) >= weights {
		f(dst[:bytes:bytes], src[:weights:weights])
		dst, src = dst[bytes:], src[weights:]
	}
}

func putHalf(b []byte, f float32) { binary.LittleEndian.PutUint16(b, F32ToF16(f)) }

// inverse returns 1/d, or 0 for a block whose scale is 0: all its codes then stand for 0.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// clampCode truncates x to a code in 0..top. Only NaN and the neighbours of the range need the clamp;
// it makes them the same on every machine.
func clampCode(x float32, top int32) uint8 {
	if !(x > 0) {
		return 0
	}
	if x >= float32(top) {
		return uint8(top)
	}
	return uint8(x)
}

// farthest returns the weight of largest magnitude with its sign, the first of several.
func farthest(w []float32) float32 {
	var far, mag float32
	for _, v := range w {
		if a := abs(v); a > mag {
			far, mag = v, a
		}
	}
	return far
}

// extremes returns the smallest and the largest weight.
func extremes(w []float32) (lo, hi float32) {
	lo, hi = math.MaxFloat32, -math.MaxFloat32
	for _, v := range w {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	return lo, hi
}

func abs(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }

// quantizeQ8_0: the scale maps the largest magnitude to ±127; codes round half away from zero.
func quantizeQ8_0(b []byte, w []float32) {
	d := abs(farthest(w)) / 127
	inv := inverse(d)
	putHalf(b, d)
	for i, v := range w {
		b[2+i] = uint8(int8(roundAway(v * inv)))
	}
}

// roundAway rounds to the nearest integer in -128..127, halves away from zero; NaN gives 0. The sum in
// float64 is exact, so 0.49999997 does not become 1.
func roundAway(x float32) int32 {
	switch {
	case x >= 127:
		return 127
	case x <= -128:
		return -128
	case x != x:
		return 0
	default:
		return int32(float64(x) + math.Copysign(0.5, float64(x)))
	}
}

// quantizeQ4_0: the scale, of either sign, maps the weight of largest magnitude to code 0, that is -8.
func quantizeQ4_0(b []byte, w []float32) {
	d := farthest(w) / -8
	inv := inverse(d)
	putHalf(b, d)
	for i := range 16 {
		lo := clampCode(float32(w[i]*inv)+8.5, 15)
		hi := clampCode(float32(w[16+i]*inv)+8.5, 15)
		b[2+i] = lo | hi<<4
	}
}

// quantizeQ4_1: codes 0..15 span smallest to largest.
func quantizeQ4_1(b []byte, w []float32) {
	m, top := extremes(w)
	d := (top - m) / 15
	inv := inverse(d)
	putHalf(b, d)
	putHalf(b[2:], m)
	for i := range 16 {
		lo := clampCode(float32((w[i]-m)*inv)+0.5, 15)
		hi := clampCode(float32((w[16+i]-m)*inv)+0.5, 15)
		b[4+i] = lo | hi<<4
	}
}

// quantizeQ5_0 is quantizeQ4_0 with 32 codes.
func quantizeQ5_0(b []byte, w []float32) {
	d := farthest(w) / -16
	inv := inverse(d)
	putHalf(b, d)
	var fifth uint32
	for i := range 16 {
		lo := clampCode(float32(w[i]*inv)+16.5, 31)
		hi := clampCode(float32(w[16+i]*inv)+16.5, 31)
		b[6+i] = lo&15 | hi<<4
		fifth |= uint32(lo>>4)<<i | uint32(hi>>4)<<(16+i)
	}
	binary.LittleEndian.PutUint32(b[2:], fifth)
}

// quantizeQ5_1 is quantizeQ4_1 with 32 codes.
func quantizeQ5_1(b []byte, w []float32) {
	m, top := extremes(w)
	d := (top - m) / 31
	inv := inverse(d)
	putHalf(b, d)
	putHalf(b[2:], m)
	var fifth uint32
	for i := range 16 {
		lo := clampCode(float32((w[i]-m)*inv)+0.5, 31)
		hi := clampCode(float32((w[16+i]-m)*inv)+0.5, 31)
		b[8+i] = lo&15 | hi<<4
		fifth |= uint32(lo>>4)<<i | uint32(hi>>4)<<(16+i)
	}
	binary.LittleEndian.PutUint32(b[4:], fifth)
}
