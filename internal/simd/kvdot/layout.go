package kvdot

import (
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// Sizes of the walk, in tokens and tiles.
const (
	TileTokens   = 16
	stripeTiles  = 4
	stripeTokens = stripeTiles * TileTokens
)

const (
	maxHeadDim = 512
	blockDims  = 32 // dimensions that share a Q8_0 scale
)

// Layout says where things are in a tile. Keys lie first, values KBytes later; both parts are padded to a
// multiple of 64 bytes, and tiles should start at one.
//
//	F32, F16, BF16:  keys   [dim][16 tokens]
//	                 values [16 tokens][dim]
//	Q8_0:            keys   scales [dim/32][16 tokens] of F16, padded to 64 bytes,
//	                        codes+128 [dim/4][16 tokens][4 dims] of uint8
//	                 values scales [dim/32][16 tokens] of F16, padded to 64 bytes,
//	                        codes [16 tokens][dim] of int8
//
// With the tokens of a key side by side a vector lane is a token, and no sum crosses lanes. Key codes are
// stored unsigned because the integer dot product of the processors wants one unsigned operand.
type Layout struct {
	Type      quant.Type
	HeadDim   int
	KBytes    int // of the key part, and so the offset of the values
	VBytes    int
	TileBytes int // KBytes+VBytes
}

// NewLayout returns the layout of tiles of type t. headDim is a multiple of 8 (of 32 for Q8_0), at most 512.
func NewLayout(t quant.Type, headDim int) (Layout, error) {
	multiple := 8
	switch t {
	case quant.F32, quant.F16, quant.BF16:
	case quant.Q8_0:
		multiple = blockDims
	default:
		return Layout{}, fmt.Errorf("kvdot: %w %v for a KV cache (use F32, F16, BF16 or Q8_0)", quant.ErrType, t)
	}
	if headDim < 1 || headDim > maxHeadDim || headDim%multiple != 0 {
		return Layout{}, fmt.Errorf("kvdot: head dimension %d with %v keys, want a multiple of %d up to %d", headDim, t, multiple, maxHeadDim)
	}
	l := Layout{Type: t, HeadDim: headDim}
	part := l.scaleBytes() + TileTokens*headDim*l.elemBytes()
	l.KBytes = (part + 63) &^ 63
	l.VBytes = l.KBytes
	l.TileBytes = l.KBytes + l.VBytes
	return l, nil
}

// elemBytes is the size of one element without its share of a scale.
func (l Layout) elemBytes() int {
	switch l.Type {
	case quant.F32:
		return 4
	case quant.Q8_0:
		return 1
	}
	return 2
}

// scaleBytes is the size of the scales before the codes, keys' or values'.
func (l Layout) scaleBytes() int {
	if l.Type != quant.Q8_0 {
		return 0
	}
	return (l.HeadDim/blockDims*TileTokens*2 + 63) &^ 63
}

// Load reads one token's key and value back, as float32: for tests and for moving a cache to another type.
func (l Layout) Load(tile unsafe.Pointer, slot int, key, value []float32) {
	b := unsafe.Slice((*byte)(tile), l.TileBytes)
	k, v := b[:l.KBytes], b[l.KBytes:]
	for d := range l.HeadDim {
		key[d] = l.keyAt(k, slot, d)
		value[d] = l.valueAt(v, slot, d)
	}
}

func (l Layout) keyAt(k []byte, slot, d int) float32 {
	i := d*TileTokens + slot
	switch l.Type {
	case quant.F32:
		return f32At(k, i)
	case quant.F16:
		return quant.F16ToF32(u16At(k, i))
	case quant.BF16:
		return quant.BF16ToF32(u16At(k, i))
	}
	code := k[l.scaleBytes()+(d/4*TileTokens+slot)*4+d%4]
	return quant.F16ToF32(u16At(k, d/blockDims*TileTokens+slot)) * float32(int(code)-128)
}

// valueCode is where the code of a Q8_0 value lies in the value part.
func (l Layout) valueCode(slot, d int) int {
	block := l.scaleBytes() + d/blockDims*blockDims*TileTokens
	return block + (slot/4*blockDims+d%blockDims)*4 + slot%4
}

func (l Layout) valueAt(v []byte, slot, d int) float32 {
	i := slot*l.HeadDim + d
	switch l.Type {
	case quant.F32:
		return f32At(v, i)
	case quant.F16:
		return quant.F16ToF32(u16At(v, i))
	case quant.BF16:
		return quant.BF16ToF32(u16At(v, i))
	}
	code := int8(v[l.valueCode(slot, d)])
	return quant.F16ToF32(u16At(v, d/blockDims*TileTokens+slot)) * float32(code)
}
