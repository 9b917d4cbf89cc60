package vec

import (
	"encoding/binary"
	"math"

	"github.com/flashdecode/flashdecode/weights/quant"
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
		dst[i] = quant.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func bf16ToF32Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func f32ToF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], quant.F32ToF16(v))
	}
}

func f32ToBF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], quant.F32ToBF16(v))
	}
}
