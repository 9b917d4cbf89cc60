package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Weights in a block of the simple formats and in a super-block of the K formats.
const (
	blockLen = 32
	superLen = 256
)

// Dequantize writes the len(dst) weights stored in src to dst. It allocates nothing. len(dst) must be a
// whole number of blocks of t and src exactly their bytes; otherwise dst is untouched.
//
// Every bit pattern is a valid block: one whose scale is infinite or NaN gives infinities and NaNs.
func Dequantize(t Type, dst []float32, src []byte) error {
	if err := checkLens("dequantize", t, len(dst), len(src)); err != nil {
		return err
	}
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Q8_0:
		dequantizeQ8_0(dst, src)
	case Q4_0:
		dequantizeQ4_0(dst, src)
	case Q4_1:
		dequantizeQ4_1(dst, src)
	case Q5_0:
		dequantizeQ5_0(dst, src)
	case Q5_1:
		dequantizeQ5_1(dst, src)
	case Q4_K:
		dequantizeQ4_K(dst, src)
	case Q5_K:
		dequantizeQ5_K(dst, src)
	case Q6_K:
		dequantizeQ6_K(dst, src)
	}
	return nil
}

// checkLens is the door of Dequantize and Quantize: behind it, slices fit each other exactly.
func checkLens(what string, t Type, weights, bytes int) error {
	if !t.Valid() {
		return fmt.Errorf("quant: %s: %w %v (supported: %s)", what, ErrType, t, Supported())
	}
	l := layout[t]
	if weights%l.weights != 0 {
		return fmt.Errorf("quant: %s: %d weights are not a whole number of %v blocks of %d", what, weights, t, l.weights)
	}
	if want := weights / l.weights * l.bytes; bytes != want {
		return fmt.Errorf("quant: %s: %d weights of %v take %d bytes, not %d", what, weights, t, want, bytes)
	}
	return nil
}

// half returns the half stored in the first two bytes of b.
func half(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

// dequantizeQ8_0 reads blocks of d, codes [32]int8: w = d·code.
func dequantizeQ8_0(dst []float32, src []byte) {
	for len(dst) >= blockLen && len(src) >= 34 {
		w, b := (*[blockLen]float32)(dst), (*[34]byte)(src)
		d := half(b[0:2])
		for i := range w {
			w[i] = d * float32(int8(b[2+i]))
		}
		dst, src = dst[blockLen:], src[34:]
	}
}

// dequantizeQ4_0 reads blocks of d, codes [16]: weight i in the low nibble of byte i, weight 16+i in the
// high one. w = d·(code-8).
func dequantizeQ4_0(dst []float32, src []byte) {
	for len(dst) >= blockLen && len(src) >= 18 {
		w, b := (*[blockLen]float32)(dst), (*[18]byte)(src)
		d := half(b[0:2])
		for i, c := range b[2:18] {
			w[i] = d * float32(int32(c&15)-8)
			w[16+i] = d * float32(int32(c>>4)-8)
		}
		dst, src = dst[blockLen:], src[18:]
	}
}

// dequantizeQ4_1 reads blocks of d, m, codes [16] as in Q4_0: w = d·code + m.
func dequantizeQ4_1(dst []float32, src []byte) {
	for len(dst) >= blockLen && len(src) >= 20 {
		w, b := (*[blockLen]float32)(dst), (*[20]byte)(src)
		d, m := half(b[0:2]), half(b[2:4])
		for i, c := range b[4:20] {
			w[i] = d*float32(c&15) + m
			w[16+i] = d*float32(c>>4) + m
		}
		dst, src = dst[blockLen:], src[20:]
	}
}

// dequantizeQ5_0 reads blocks of d, fifth bits [32 bits], low nibbles [16] as in Q4_0: w = d·(code-16).
// Bit i of the fifth bits belongs to weight i.
func dequantizeQ5_0(dst []float32, src []byte) {
	for len(dst) >= blockLen && len(src) >= 22 {
		w, b := (*[blockLen]float32)(dst), (*[22]byte)(src)
		d, fifth := half(b[0:2]), binary.LittleEndian.Uint32(b[2:6])
		for i, c := range b[6:22] {
			lo := uint32(c&15) | fifth<<4&16
			hi := uint32(c>>4) | fifth>>12&16
			w[i] = d * float32(int32(lo)-16)
			w[16+i] = d * float32(int32(hi)-16)
			fifth >>= 1
		}
		dst, src = dst[blockLen:], src[22:]
	}
}

// dequantizeQ5_1 reads blocks of d, m, fifth bits and low nibbles as in Q5_0: w = d·code + m.
func dequantizeQ5_1(dst []float32, src []byte) {
	for len(dst) >= blockLen && len(src) >= 24 {
		w, b := (*[blockLen]float32)(dst), (*[24]byte)(src)
		d, m, fifth := half(b[0:2]), half(b[2:4]), binary.LittleEndian.Uint32(b[4:8])
		for i, c := range b[8:24] {
			lo := uint32(c&15) | fifth<<4&16
			hi := uint32(c>>4) | fifth>>12&16
			w[i] = d*float32(int32(lo)) + m
			w[16+i] = d*float32(int32(hi)) + m
			fifth >>= 1
		}
		dst, src = dst[blockLen:], src[24:]
	}
}
