package qgemm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// actBlock is 32 columns of a row of activations: x ≈ d·q. With Σ the sum of q, sum is d·Σ, which a
// block's minimum multiplies; the integers start a dot product so that weight codes may be unsigned.
// One cache line, read by the kernels at fixed offsets (see _asm/args.go).
type actBlock struct {
	q      [blockLen]int8
	d, sum float32
	off128 int32    // -128·Σ: Q8_0 codes are stored plus 128
	off16  int32    // -16·Σ: Q5_0
	off8   int32    // -8·Σ: Q4_0
	off32  [2]int32 // -32·Σ over each half: Q6_K
	_      int32
}

// floatBlock is 16 columns of a row of activations, unchanged.
type floatBlock [16]float32

// Acts holds M rows of K activations in the form that kernels read. Its memory is reused.
//
// Rows are grouped into tiles. The block of row r of a tile that starts at row t, for columns block b, is
// number t·blocks + b·height + r, as all tiles before it have maxTile rows.
type Acts struct {
	M, K   int
	memory []byte
	quants []actBlock
	floats []floatBlock
}

// Reset makes room for m rows of k columns. What was set before is lost.
func (a *Acts) Reset(m, k int) {
	if m < 0 || k < 0 {
		panic(fmt.Sprintf("qgemm: %d x %d activations", m, k))
	}
	a.M, a.K = m, k
	nq, nf := m*quantBlocks(k), m*floatBlocks(k)
	const line = int(unsafe.Sizeof(actBlock{}))
	if need := (nq+nf)*line + line; len(a.memory) < need {
		a.memory = make([]byte, need)
	}
	base := unsafe.Pointer(unsafe.SliceData(a.memory))
	base = unsafe.Add(base, -int(uintptr(base))&(line-1)) // a Go slice is not aligned to lines
	a.quants = unsafe.Slice((*actBlock)(base), nq)
	a.floats = unsafe.Slice((*floatBlock)(unsafe.Add(base, nq*line)), nf)
}

// quantBlocks returns the number of quantised blocks of a row, a whole number of pairs: a unit of weights
// faces at least two.
func quantBlocks(k int) int { return (k + 2*blockLen - 1) / (2 * blockLen) * 2 }

func floatBlocks(k int) int { return (k + 15) / 16 }

// at returns the number of the first block of row m in a matrix of blocks blocks a row, and the distance
// to its next one, which is the height of the row's tile.
func (a *Acts) at(m, blocks int) (first, height int) {
	t := m &^ (maxTile - 1)
	return t*blocks + m - t, min(a.M-t, maxTile)
}

// SetActs stores rows [m0, m1) of x, [M, K] with ldx columns from one row to the next, for products with
// weights of type t or of any other type of its class (quantised, or F32, F16, BF16). Both classes can be
// set. Callers may split the rows over workers.
//
// Quantising rounds to the nearest multiple of max|x|/127 over 32 columns. A NaN or infinity in a block
// makes its scale that, so it is not lost.
func (k *Kernels) SetActs(a *Acts, t quant.Type, x []float32, ldx, m0, m1 int) {
	if m0 < 0 || m1 > a.M || m0 > m1 {
		panic(fmt.Sprintf("qgemm: rows %d to %d of %d activations", m0, m1, a.M))
	}
	float := layoutOf(t).float
	for m := m0; m < m1; m++ {
		row := x[m*ldx:][:a.K]
		if float {
			a.setFloats(m, row)
		} else {
			k.setQuants(a, m, row)
		}
	}
}

func (a *Acts) setFloats(m int, row []float32) {
	i, height := a.at(m, floatBlocks(a.K))
	for ; len(row) > 0; i += height {
		n := copy(a.floats[i][:], row)
		clear(a.floats[i][n:])
		row = row[n:]
	}
}

func (k *Kernels) setQuants(a *Acts, m int, row []float32) {
	n := quantBlocks(a.K)
	i, height := a.at(m, n)
	last := i + n*height
	if full := len(row) / blockLen; full > 0 {
		k.quantize(a.quants[i:], height, row[:full*blockLen])
		i, row = i+full*height, row[full*blockLen:]
	}
	if len(row) > 0 {
		var rest [blockLen]float32
		copy(rest[:], row)
		quantizeGeneric(a.quants[i:], height, rest[:])
		i += height
	}
	for ; i < last; i += height {
		a.quants[i] = actBlock{}
	}
}

// quantizeGeneric stores whole blocks of x in every step-th block of dst.
func quantizeGeneric(dst []actBlock, step int, x []float32) {
	for b := 0; len(x) >= blockLen; b += step {
		dst[b].set((*[blockLen]float32)(x))
		x = x[blockLen:]
	}
}

// tinyBits is the float32 below which blocks become zeros: 127/max|x| must not overflow.
const tinyBits = 0x03800000 // 2^-120

func (b *actBlock) set(x *[blockLen]float32) {
	// As integers, magnitudes order like floats and NaN comes last: it survives a maximum.
	var top uint32
	for _, f := range x {
		top = max(top, math.Float32bits(f)&0x7fffffff)
	}
	if top < tinyBits {
		*b = actBlock{}
		return
	}
	inv := 127 / math.Float32frombits(top)
	var half [2]int32
	for i, f := range x {
		q := roundEven(f * inv)
		b.q[i] = int8(q)
		half[i/16] += int32(b.q[i])
	}
	sum := half[0] + half[1]
	b.d = math.Float32frombits(top) / 127
	b.sum = b.d * float32(sum)
	b.off128, b.off16, b.off8 = -128*sum, -16*sum, -8*sum
	b.off32 = [2]int32{-32 * half[0], -32 * half[1]}
}

// roundEven rounds |f| <= 127 to the nearest integer, ties to even: adding 1.5·2^23 leaves no room for a
// fraction. A NaN gives some integer.
func roundEven(f float32) int32 {
	const magic = 3 << 22
	return int32(math.Float32bits(f+magic)) - 0x4b400000
}
