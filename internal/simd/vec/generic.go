package vec

import (
	"encoding/binary"
	"math"
)

var generic = leaves{
	add:         addGeneric,
	addScaled:   addScaledGeneric,
	scale:       scaleGeneric,
	mulScaled:   mulScaledGeneric,
	sumSquares:  sumSquaresGeneric,
	dot:         dotGeneric,
	max:         maxGeneric,
	index:       indexGeneric,
	exp:         expGeneric,
	siluMul:     siluMulGeneric,
	geluTanhMul: geluTanhMulGeneric,
	softcap:     softcapGeneric,
	ropePairs:   ropePairsGeneric,
	ropeHalf:    ropeHalfGeneric,
	f16ToF32:    f16ToF32Generic,
	bf16ToF32:   bf16ToF32Generic,
	f32ToF16:    f32ToF16Generic,
	f32ToBF16:   f32ToBF16Generic,
}

func addGeneric(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}

func addScaledGeneric(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] += s * x[i]
	}
}

func scaleGeneric(dst []float32, s float32) {
	for i := range dst {
		dst[i] *= s
	}
}

func mulScaledGeneric(dst, x, w []float32, s float32) {
	for i := range dst {
		dst[i] = x[i] * s * w[i]
	}
}

func sumSquaresGeneric(x []float32) float32 { return dotGeneric(x, x) }

// dotGeneric keeps eight sums: the additions overlap, and the error grows with n/8.
func dotGeneric(x, y []float32) float32 {
	var s [8]float32
	n := len(x) &^ 7
	for i := 0; i < n; i += 8 {
		a, b := x[i:i+8:i+8], y[i:i+8:i+8]
		for j := range s {
			s[j] += a[j] * b[j]
		}
	}
	for i := n; i < len(x); i++ {
		s[i-n] += x[i] * y[i]
	}
	return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]))
}

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m { // false for NaN
			m = v
		}
	}
	return m
}

func indexGeneric(x []float32, v float32) int {
	for i := range x {
		if x[i] == v {
			return i
		}
	}
	return -1
}

func expGeneric(dst, x []float32) {
	for i := range dst {
		dst[i] = float32(math.Exp(float64(x[i])))
	}
}

func siluMulGeneric(dst, gate, up []float32) {
	for i := range dst {
		g := gate[i]
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}

// Constants of the tanh form of gelu: e⁻²ᵘ = exp(g·(geluLinear + geluCubic·g²)).
const (
	geluLinear = -2 * 0.7978845608028654 // -2·√(2/π)
	geluCubic  = geluLinear * 0.044715
)

func geluTanhMulGeneric(dst, gate, up []float32) {
	for i := range dst {
		g := gate[i]
		dst[i] = g / (1 + exp32(g*(geluLinear+geluCubic*g*g))) * up[i]
	}
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

func softcapGeneric(x []float32, limit, inverse float32) {
	for i := range x {
		x[i] = limit * float32(math.Tanh(float64(x[i]*inverse)))
	}
}

func ropePairsGeneric(x, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x[2*i], x[2*i+1], sin[i]
		x[2*i], x[2*i+1] = a*c-b*s, b*c+a*s
	}
}

func ropeHalfGeneric(lo, hi, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := lo[i], hi[i], sin[i]
		lo[i], hi[i] = a*c-b*s, b*c+a*s
	}
}

func f16ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = widenF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func bf16ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func f32ToF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], narrowF16(v))
	}
}

func f32ToBF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], narrowBF16(v))
	}
}

// widenF16 moves exponent and mantissa into place and lets one exact product fix the exponent's bias; that
// also normalises subnormals.
func widenF16(h uint16) float32 {
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	if rest >= 0x7c00<<13 { // Inf, NaN
		quiet := uint32(0)
		if rest > 0x7c00<<13 {
			quiet = 1 << 22
		}
		return math.Float32frombits(sign | 0x7f800000 | rest | quiet)
	}
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*0x1p112))
}

func narrowF16(v float32) uint16 {
	b := math.Float32bits(v)
	sign, a := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case a > 0x7f800000: // keep what fits of a NaN's payload, quiet
		return sign | 0x7e00 | uint16(a>>13)&0x3ff
	case a >= 0x477ff000: // 65520 and more round to Inf
		return sign | 0x7c00
	case a < 0x38800000: // below 2⁻¹⁴: adding 1/2 leaves the subnormal in the low bits, rounded by the unit
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-0x3f000000)
	}
	a += 0xfff + a>>13&1 // to nearest, ties to even
	return sign | uint16((a-0x38000000)>>13)
}

func narrowBF16(v float32) uint16 {
	b := math.Float32bits(v)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
