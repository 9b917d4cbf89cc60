package kvdot

import (
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// Store writes one token's key and value, [HeadDim] each, into a slot of a tile. Values are rounded to
// nearest, ties to even; Q8_0 codes are those of quant.Quantize. Other slots stay as they are.
func (k *Kernels) Store(tile unsafe.Pointer, slot int, key, value []float32, s *Scratch) {
	l := k.layout
	if slot < 0 || slot >= TileTokens || len(key) != l.HeadDim || len(value) != l.HeadDim {
		panic(fmt.Sprintf("kvdot: store of key [%d] and value [%d] in slot %d of a tile of head dimension %d", len(key), len(value), slot, l.HeadDim))
	}
	b := unsafe.Slice((*byte)(tile), l.TileBytes)
	row := k.narrow(s.key[:], key)
	switch l.elemBytes() {
	case 4:
		scatter32(b[4*slot:l.KBytes], row)
	case 2:
		scatter16(b[2*slot:l.KBytes], row)
	default:
		scatterQ8Key(b[:l.KBytes], l.scaleBytes(), slot, row)
	}
	v := b[l.KBytes:]
	if l.Type == quant.Q8_0 {
		scatterQ8Value(v, l, slot, k.narrow(s.value[:], value))
		return
	}
	k.narrow(v[slot*l.HeadDim*l.elemBytes():], value)
}

// StoreTile writes 16 tokens at once: keys and values [16][HeadDim], row i in slot i, rows stride floats
// apart.
func (k *Kernels) StoreTile(tile unsafe.Pointer, keys, values []float32, stride int, s *Scratch) {
	d := k.layout.HeadDim
	for slot := range TileTokens {
		i := slot * stride
		k.Store(tile, slot, keys[i:i+d], values[i:i+d], s)
	}
}

// narrow writes x to dst in the layout's type and returns the bytes it wrote.
func (k *Kernels) narrow(dst []byte, x []float32) []byte {
	dst = dst[:k.layout.Type.RowBytes(len(x))]
	switch k.layout.Type {
	case quant.F16:
		k.vec.F32ToF16(dst, x)
	case quant.BF16:
		k.vec.F32ToBF16(dst, x)
	default:
		if err := quant.Quantize(k.layout.Type, dst, x); err != nil {
			panic(err) // the layout made sure of type and length
		}
	}
	return dst
}

// scatter16 writes the elements of row to dst, 16 elements apart.
func scatter16(dst, row []byte) {
	for len(row) >= 2 {
		dst[0], dst[1] = row[0], row[1]
		row = row[2:]
		dst = dst[min(2*TileTokens, len(dst)):]
	}
}

func scatter32(dst, row []byte) {
	for len(row) >= 4 {
		copy(dst[:4], row[:4])
		row = row[4:]
		dst = dst[min(4*TileTokens, len(dst)):]
	}
}

// scatterQ8Key spreads Q8_0 blocks (an F16 scale, 32 codes) over a key part.
func scatterQ8Key(dst []byte, codes, slot int, row []byte) {
	for i := 0; len(row) > 0; i++ {
		putU16(dst, i*TileTokens+slot, u16At(row, 0))
		for d := range blockDims {
			dst[codes+((i*blockDims+d)/4*TileTokens+slot)*4+d%4] = row[2+d] ^ 0x80
		}
		row = row[2+blockDims:]
	}
}

// scatterQ8Value spreads Q8_0 blocks over a value part.
func scatterQ8Value(dst []byte, l Layout, slot int, row []byte) {
	for i := 0; len(row) > 0; i++ {
		putU16(dst, i*TileTokens+slot, u16At(row, 0))
		codes := dst[l.valueCode(slot, i*blockDims):]
		for d, c := range row[2 : 2+blockDims] {
			codes[4*d] = c
		}
		row = row[2+blockDims:]
	}
}
