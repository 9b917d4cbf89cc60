package vec

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/internal/simd"
)

// Kernels is the set of leaves of one instruction level. It holds no state: any number of goroutines may
// use it.
type Kernels struct {
	level simd.Level
	leaf  leaves
}

// leaves are the bodies behind the checked methods. A body trusts its lengths.
type leaves struct {
	add         func(dst, x []float32)
	addScaled   func(dst, x []float32, s float32)
	scale       func(dst []float32, s float32)
	mulScaled   func(dst, x, w []float32, s float32)
	sumSquares  func(x []float32) float32
	dot         func(x, y []float32) float32
	max         func(x []float32) float32
	index       func(x []float32, v float32) int
	exp         func(dst, x []float32)
	siluMul     func(dst, gate, up []float32)
	geluTanhMul func(dst, gate, up []float32)
	softcap     func(x []float32, limit, inverse float32)
	ropePairs   func(x, cos, sin []float32)
	ropeHalf    func(lo, hi, cos, sin []float32)
	f16ToF32    func(dst []float32, src []byte)
	bf16ToF32   func(dst []float32, src []byte)
	f32ToF16    func(dst []byte, src []float32)
	f32ToBF16   func(dst []byte, src []float32)
}

// New returns the leaves of level. It panics if this machine or build cannot run it: ask simd.Detect.
func New(level simd.Level) *Kernels {
	if level > simd.Detect() {
		panic(fmt.Sprintf("vec: this machine or build has no %v instructions", level))
	}
	return &Kernels{level, leavesOf(level)}
}

// Level is the instruction level New was asked for.
func (k *Kernels) Level() simd.Level { return k.level }

// Add computes dst += x, rounded once.
func (k *Kernels) Add(dst, x []float32) { k.leaf.add(dst, x[:len(dst)]) }

// AddScaled computes dst += s·x; the product may or may not be rounded before the sum.
func (k *Kernels) AddScaled(dst, x []float32, s float32) { k.leaf.addScaled(dst, x[:len(dst)], s) }

// Scale computes x *= s, rounded once.
func (k *Kernels) Scale(x []float32, s float32) { k.leaf.scale(x, s) }

// Dot returns Σ x[i]·y[i]. |error| ≤ (n/8+8)·eps·Σ|x[i]·y[i]|.
func (k *Kernels) Dot(x, y []float32) float32 { return k.leaf.dot(x, y[:len(x)]) }

// RMSNorm computes dst[i] = x[i]·w[i]/√(mean(x²)+eps), [n] each. The squares are summed in float32, in
// lanes, so it needs Σx² < 3.4e38. Relative error ≤ (n/16+8)·eps: half of the sum's, by the root.
func (k *Kernels) RMSNorm(dst, x, w []float32, eps float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	x, w = x[:n], w[:n]
	mean := float64(k.leaf.sumSquares(x)) / float64(n)
	k.leaf.mulScaled(dst, x, w, float32(1/math.Sqrt(mean+float64(eps))))
}

// Max returns the largest element that is not NaN, -Inf if there is none. Which of +0 and -0 is
// unspecified.
func (k *Kernels) Max(x []float32) float32 { return k.leaf.max(x) }

// ArgMax returns the lowest index of the largest element. A NaN never wins; -1 means that there was
// nothing else.
func (k *Kernels) ArgMax(x []float32) int { return k.leaf.index(x, k.leaf.max(x)) }

// Exp computes dst[i] = e^x[i], relative error ≤ 4·eps, and half the smallest subnormal besides. It
// overflows to +Inf and underflows to 0; e^NaN is NaN.
func (k *Kernels) Exp(dst, x []float32) { k.leaf.exp(dst, x[:len(dst)]) }

// SiluMul computes dst[i] = up[i]·g/(1+e⁻ᵍ), g = gate[i], relative error ≤ 8·eps for g > -87; below, where
// e⁻ᵍ overflows, the factor is 0 instead of less than 1e-35. A gate of -Inf gives NaN.
func (k *Kernels) SiluMul(dst, gate, up []float32) {
	k.leaf.siluMul(dst, gate[:len(dst)], up[:len(dst)])
}

// GeluTanhMul computes dst[i] = up[i]·gelu(gate[i]) with the tanh approximation
//
//	gelu(g) = g/2·(1+tanh(u)) = g/(1+e⁻²ᵘ)      u = √(2/π)·(g + 0.044715·g³)
//
// in the second form, which does not cancel for negative g. The exponent amplifies rounding: relative
// error ≤ (8+8·|u|)·eps while e⁻²ᵘ is finite, 0 beyond.
func (k *Kernels) GeluTanhMul(dst, gate, up []float32) {
	k.leaf.geluTanhMul(dst, gate[:len(dst)], up[:len(dst)])
}

// Softcap computes x[i] = limit·tanh(x[i]/limit), limit > 0: ±Inf gives ±limit, nothing exceeds limit.
// Relative error ≤ 8·eps.
func (k *Kernels) Softcap(x []float32, limit float32) { k.leaf.softcap(x, limit, 1/limit) }

// RopeInterleaved turns the neighbouring pairs (x[2i], x[2i+1]) of one head by the angle whose cosine and
// sine are cos[i] and sin[i], as llama's GGUF weights want. len(x) is even; cos and sin have [len(x)/2].
// |error| ≤ 2·eps·(|x[2i]|+|x[2i+1]|).
func (k *Kernels) RopeInterleaved(x, cos, sin []float32) {
	n := pairs(x)
	k.leaf.ropePairs(x, cos[:n], sin[:n])
}

// RopeHalf turns the pairs (x[i], x[i+n/2]) of one head, the order of NeoX, Qwen and Gemma; otherwise as
// RopeInterleaved.
func (k *Kernels) RopeHalf(x, cos, sin []float32) {
	n := pairs(x)
	k.leaf.ropeHalf(x[:n], x[n:], cos[:n], sin[:n])
}

func pairs(x []float32) int {
	if len(x)%2 != 0 {
		panic(fmt.Sprintf("vec: rope over %d elements, want an even number", len(x)))
	}
	return len(x) / 2
}

// F16ToF32 widens len(dst) little-endian halves, exactly. A signalling NaN comes out quiet.
func (k *Kernels) F16ToF32(dst []float32, src []byte) { k.leaf.f16ToF32(dst, src[:2*len(dst)]) }

// BF16ToF32 widens len(dst) little-endian bfloat16 numbers, exactly.
func (k *Kernels) BF16ToF32(dst []float32, src []byte) { k.leaf.bf16ToF32(dst, src[:2*len(dst)]) }

// F32ToF16 narrows src to little-endian halves, to nearest, ties to even. NaN stays NaN.
func (k *Kernels) F32ToF16(dst []byte, src []float32) { k.leaf.f32ToF16(dst[:2*len(src)], src) }

// F32ToBF16 narrows src to little-endian bfloat16, to nearest, ties to even. NaN stays NaN.
func (k *Kernels) F32ToBF16(dst []byte, src []float32) { k.leaf.f32ToBF16(dst[:2*len(src)], src) }
