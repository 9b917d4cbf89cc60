package qgemm

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// levels lists the sets of bodies to test. FLASHDECODE_ALL_IMPLS=1 makes a missing one a failure.
func levels() []simd.Level {
	ls := simd.Levels()
	if os.Getenv("FLASHDECODE_ALL_IMPLS") == "1" && ls[len(ls)-1] != simd.AVX512 {
		panic("this machine or build lacks " + simd.AVX512.String())
	}
	return ls
}

// eachLevel runs f for every set of bodies that this machine has.
func eachLevel(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, l := range levels() {
		t.Run(l.String(), func(t *testing.T) { f(t, New(l)) })
	}
}

func eachType(t *testing.T, f func(t *testing.T, typ quant.Type)) {
	for _, typ := range quant.Types() {
		t.Run(typ.String(), func(t *testing.T) { f(t, typ) })
	}
}

// randomWeights returns rows·cols weights in file order: any codes, any small scales, and scales and minima
// of size 2^-9..2^-2 with both signs. Behind them lie bytes that no product may use: 0x7f.. is a NaN scale.
func randomWeights(rng *rand.Rand, t quant.Type, rows, cols int) []byte {
	n := rows * t.RowBytes(cols)
	b := make([]byte, n+256)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for i := range b[n:] {
		b[n+i] = 0x7f
	}
	for off := 0; off < n; off += t.BlockBytes() {
		blk := b[off:][:t.BlockBytes()]
		switch t {
		case quant.F32:
			binary.LittleEndian.PutUint32(blk, math.Float32bits(float32(rng.NormFloat64())))
		case quant.BF16:
			binary.LittleEndian.PutUint16(blk, quant.F32ToBF16(float32(rng.NormFloat64())))
		case quant.Q6_K:
			smallHalf(rng, blk[208:])
		case quant.Q4_1, quant.Q5_1, quant.Q4_K, quant.Q5_K:
			smallHalf(rng, blk[2:])
			fallthrough
		default:
			smallHalf(rng, blk)
		}
	}
	return b[:n]
}

func smallHalf(rng *rand.Rand, b []byte) {
	h := uint16(rng.Uint32())&0x83ff | uint16(6+rng.IntN(8))<<10
	binary.LittleEndian.PutUint16(b, h)
}

// randomActs returns rows of normal numbers whose size changes by block.
func randomActs(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	size := 1.0
	for i := range x {
		if i%blockLen == 0 {
			size = math.Exp(2 * rng.NormFloat64())
		}
		x[i] = float32(size * rng.NormFloat64())
	}
	return x
}

func pack(k *Kernels, t quant.Type, src []byte, rows, cols int) *Matrix {
	m := &Matrix{Type: t, Rows: rows, Cols: cols, Packed: true, Data: make([]byte, PackedBytes(t, rows, cols))}
	for i := range m.Data {
		m.Data[i] = 0x7f // padding must be written too
	}
	k.Pack(m.Data, src, t, rows, cols, 0, Strips(rows))
	return m
}

// value returns the activation that kernels see in row m, column i.
func (a *Acts) value(float bool, m, i int) float64 {
	if float {
		first, step := a.at(m, floatBlocks(a.K))
		return float64(a.floats[first+i/16*step][i%16])
	}
	first, step := a.at(m, quantBlocks(a.K))
	b := &a.quants[first+i/blockLen*step]
	return float64(b.d) * float64(b.q[i%blockLen])
}

// reference holds float64 products of dequantised weights with the activations as the kernels see them,
// and the sizes of their terms, to which errors are relative.
type reference struct {
	want, size [][]float64 // [m][n]
}

func newReference(t *testing.T, typ quant.Type, src []byte, rows, cols int, a *Acts) reference {
	t.Helper()
	var ref reference
	w, term := make([]float32, cols), termSizes(typ, src, rows, cols)
	xs := make([][]float64, a.M)
	for m := range xs {
		ref.want = append(ref.want, make([]float64, rows))
		ref.size = append(ref.size, make([]float64, rows))
		for i := range cols {
			xs[m] = append(xs[m], a.value(layouts[typ].float, m, i))
		}
	}
	for n := range rows {
		if err := quant.Dequantize(typ, w, src[n*typ.RowBytes(cols):][:typ.RowBytes(cols)]); err != nil {
			t.Fatal(err)
		}
		for m, x := range xs {
			var want, size float64
			for i, f := range w {
				want += float64(f) * x[i]
				size += term[n*cols+i] * math.Abs(x[i])
			}
			ref.want[m][n], ref.size[m][n] = want, size
		}
	}
	return ref
}

// termSizes returns |d·code| + |m| of every weight, which exceeds |w| where the two cancel.
func termSizes(typ quant.Type, src []byte, rows, cols int) []float64 {
	size := make([]float64, rows*cols)
	l := layouts[typ]
	if l.float {
		w := make([]float32, rows*cols)
		if err := quant.Dequantize(typ, w, src); err != nil {
			panic(err)
		}
		for i, f := range w {
			size[i] = math.Abs(float64(f))
		}
		return size
	}
	unit := make([]byte, l.bytes)
	rowBytes := typ.RowBytes(cols)
	for s := range Strips(rows) {
		for u := range l.units(cols) {
			packUnits(unit, src[s*lanes*rowBytes:min((s+1)*lanes, rows)*rowBytes], typ, rowBytes, u, u+1)
			for b := range l.blocks() {
				var blk block
				blk.decode(typ, unit, b)
				for r := range min(lanes, rows-s*lanes) {
					for i := range blockLen {
						if c := u*l.cols + b*blockLen + i; c < cols {
							d := blk.d[0][r]
							if typ == quant.Q6_K {
								d = blk.d[i/16][r]
							}
							// Offset codes: Q8_0 +128 and so on cancel exactly, as integers.
							size[(s*lanes+r)*cols+c] = math.Abs(float64(d)*float64(blk.code[r][i])) + math.Abs(float64(blk.m[r]))
						}
					}
				}
			}
		}
	}
	return size
}

// tolerance bounds the error of a chain of float32 operations relative to the sum of the sizes of its
// terms: each of the additions, and per term the roundings of a product or two and of a converted dot
// product, costs at most half a unit in the last place of that sum.
func tolerance(t quant.Type, cols int) float64 {
	const ulp = 0x1p-24
	switch {
	case layouts[t].float:
		return float64(cols+2) * ulp
	case t == quant.Q6_K:
		return float64(cols/16+6) * ulp
	}
	return float64(2*quantBlocks(cols)+6) * ulp
}

func (ref reference) check(t *testing.T, what string, tol float64, m int, y []float32) {
	t.Helper()
	for n, got := range y {
		if err := math.Abs(float64(got) - ref.want[m][n]); !(err <= tol*ref.size[m][n]) {
			t.Fatalf("%s: y[%d][%d] = %g, want %g: off by %.3g of %.3g allowed", what, m, n, got, ref.want[m][n], err, tol*ref.size[m][n])
		}
	}
}

// canary is a NaN that no kernel computes.
var canary = math.Float32frombits(0x7fc0babe)

// output is y with ldy > N: canaries behind each row.
type output struct {
	y    []float32
	m, n int
	ldy  int
}

func newOutput(m, n int) *output {
	o := &output{m: m, n: n, ldy: n + 19}
	o.y = make([]float32, m*o.ldy)
	for i := range o.y {
		o.y[i] = canary
	}
	return o
}

func (o *output) row(m int) []float32 { return o.y[m*o.ldy:][:o.n] }

// intact fails if anything but columns [lo, hi) was written.
func (o *output) intact(t *testing.T, lo, hi int) {
	t.Helper()
	for i, f := range o.y {
		if n := i % o.ldy; (n < lo || n >= hi) && math.Float32bits(f) != math.Float32bits(canary) {
			t.Fatalf("y[%d][%d] overwritten", i/o.ldy, n)
		}
	}
}

func sizes(typ quant.Type) []int {
	switch {
	case layouts[typ].float:
		return []int{1, 15, 16, 17, 64, 575}
	case typ.BlockSize() == 256:
		return []int{256, 512, 1536}
	}
	return []int{32, 64, 96, 576, 1536}
}

func name(rows, cols, m int, packed bool) string {
	return fmt.Sprintf("n=%d/k=%d/m=%d/packed=%v", rows, cols, m, packed)
}
