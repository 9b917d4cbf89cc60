package kvdot

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Elements of little-endian arrays, by index.

func u16At(b []byte, i int) uint16     { return binary.LittleEndian.Uint16(b[2*i:]) }
func putU16(b []byte, i int, x uint16) { binary.LittleEndian.PutUint16(b[2*i:], x) }

func f32At(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }

// alignedFloats returns n zeros whose first lies at a multiple of 64 bytes. Go's heap does not move objects.
func alignedFloats(n int) []float32 {
	const line = 64
	f := make([]float32, n+line/4-1)
	skip := int(-uintptr(unsafe.Pointer(&f[0]))%line) / 4
	return f[skip : skip+n : skip+n]
}
