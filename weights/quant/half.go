package quant

import "math"

// F16ToF32 returns the value of an IEEE 754 half. Every half is exactly a float32. A NaN keeps its sign
// and payload and becomes quiet, as the hardware conversions do.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag >= 0x7c00: // infinity or NaN
		b := sign | 0x7f800000 | (mag&0x3ff)<<13
		if mag > 0x7c00 {
			b |= 1 << 22
		}
		return math.Float32frombits(b)
	case mag >= 0x0400: // normal: only the exponent bias differs, 127-15
		return math.Float32frombits(sign | (mag<<13 + (127-15)<<23))
	default: // zero or subnormal: mag·2^-24, an exact product
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
}

// F32ToF16 returns the half nearest to f, ties to even. Values that round beyond 65504 become infinite.
// A NaN keeps its sign and the upper bits of its payload and becomes quiet.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	mag := b & 0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 | uint16(mag>>13&0x3ff)
	case mag >= 0x477ff000: // 65520, halfway between the largest half and the next power of two
		return sign | 0x7c00
	case mag >= 0x38800000: // 2^-14, the smallest normal half
		// A carry out of the mantissa moves to the next exponent, which is what rounding up means there.
		mag -= (127 - 15) << 23
		return sign | uint16((mag+0xfff+mag>>13&1)>>13)
	default:
		// Adding 2^-1 to a magnitude below 2^-14 leaves the count of 2^-24 steps in the sum's low bits,
		// rounded to even by the addition itself. A carry gives 0x400, the smallest normal half.
		sum := math.Float32frombits(mag) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
}

// BF16ToF32 returns the value of a bfloat16, which is the upper half of a float32.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 returns the bfloat16 nearest to f, ties to even. A NaN keeps its sign and the upper bits of
// its payload and becomes quiet.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 1<<6
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
