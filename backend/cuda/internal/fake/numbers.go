package fake

import (
	"encoding/binary"
	"math"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// format is how numbers are stored.
type format struct {
	bytes int
	read  func(b []byte) float32
	write func(b []byte, f float32)
}

var formats = map[string]format{
	"bf16": {2, func(b []byte) float32 { return quant.BF16ToF32(binary.LittleEndian.Uint16(b)) },
		func(b []byte, f float32) { binary.LittleEndian.PutUint16(b, quant.F32ToBF16(f)) }},
	"f16": {2, func(b []byte) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(b)) },
		func(b []byte, f float32) { binary.LittleEndian.PutUint16(b, quant.F32ToF16(f)) }},
	"e4m3": {1, func(b []byte) float32 { return E4M3(b[0]) }, nil},
}

// E4M3 is the number that a byte is in OCP FP8 E4M3: sign, 4 bits of exponent with bias 7, 3 of mantissa, no infinities.
func E4M3(b byte) float32 {
	exp, man := int(b>>3&15), float64(b&7)
	x := math.Ldexp(1+man/8, exp-7)
	switch {
	case exp == 0:
		x = math.Ldexp(man/8, -6)
	case exp == 15 && man == 7:
		x = math.NaN()
	}
	if b&0x80 != 0 {
		x = -x
	}
	return float32(x)
}

// decode converts stored numbers.
func (f format) decode(b []byte) []float32 {
	x := make([]float32, len(b)/f.bytes)
	for i := range x {
		x[i] = f.read(b[i*f.bytes:])
	}
	return x
}

// encode stores numbers.
func (f format) encode(x []float32) []byte {
	b := make([]byte, len(x)*f.bytes)
	for i, v := range x {
		f.write(b[i*f.bytes:], v)
	}
	return b
}
