package qgemm

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestMul compares all bodies with float64 at odd shapes, and every row of activations, bit for bit, with
// the same row alone: a result may not depend on the batch, nor on the order of the bytes.
func TestMul(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		eachType(t, func(t *testing.T, typ quant.Type) {
			rng := rand.New(rand.NewPCG(1, uint64(typ)))
			for _, cols := range sizes(typ) {
				for _, rows := range []int{1, 15, 16, 17, 48} {
					if cols > 600 && rows < 48 {
						continue // the generic bodies take long
					}
					testShape(t, k, rng, typ, rows, cols)
				}
			}
		})
	})
}

func testShape(t *testing.T, k *Kernels, rng *rand.Rand, typ quant.Type, rows, cols int) {
	const most = 33
	src := randomWeights(rng, typ, rows, cols)
	x := randomActs(rng, most*cols)
	var all, a Acts
	all.Reset(most, cols)
	k.SetActs(&all, typ, x, cols, 0, most)
	ref := newReference(t, typ, src, rows, cols, &all)
	alone := newOutput(most, rows)
	w := pack(k, typ, src, rows, cols)
	for m := range most {
		a.Reset(1, cols)
		k.SetActs(&a, typ, x[m*cols:], cols, 0, 1)
		k.Mul(w, &a, 0, w.Strips(), alone.row(m), rows)
		ref.check(t, name(rows, cols, 1, true), tolerance(typ, cols), m, alone.row(m))
	}
	alone.intact(t, 0, rows)
	batches := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}
	if k.level == simd.Generic && cols > 64 {
		batches = []int{1, 3, 9} // plain Go takes long, and has one body for all heights
	}
	for _, m := range batches {
		a.Reset(m, cols)
		k.SetActs(&a, typ, x, cols, m/2, m)
		k.SetActs(&a, typ, x, cols, 0, m/2)
		for _, w := range []*Matrix{w, {Type: typ, Rows: rows, Cols: cols, Data: src}} {
			o := newOutput(m, rows)
			k.Mul(w, &a, 0, w.Strips(), o.y, o.ldy)
			for r := range m {
				sameBits(t, name(rows, cols, m, w.Packed), o.row(r), alone.row(r))
			}
			o.intact(t, 0, rows)
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for n := range want {
		if math.Float32bits(got[n]) != math.Float32bits(want[n]) {
			t.Fatalf("%s: y[%d] = %x, want %x", what, n, got[n], want[n])
		}
	}
}

// TestMulExact uses scales and activations that are integers, so that every float32 operation is exact and
// the integer dot products show through unrounded, extreme codes included.
func TestMulExact(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		eachType(t, func(t *testing.T, typ quant.Type) {
			rng := rand.New(rand.NewPCG(2, uint64(typ)))
			const rows, cols, m = 33, 256, 11
			src := randomWeights(rng, typ, rows, cols)
			for i, off := 0, 0; off < len(src); i, off = i+1, off+typ.BlockBytes() {
				wholeBlock(typ, src[off:][:typ.BlockBytes()], i)
			}
			x := make([]float32, m*cols)
			for i := range x {
				x[i] = float32(rng.IntN(255) - 127)
				if i%blockLen == 5 {
					x[i] = 127 // makes the scale exactly 1
				}
				if i/cols == 1 {
					x[i] = -127
				}
			}
			var a Acts
			a.Reset(m, cols)
			k.SetActs(&a, typ, x, cols, 0, m)
			ref := newReference(t, typ, src, rows, cols, &a)
			for _, w := range []*Matrix{pack(k, typ, src, rows, cols), {Type: typ, Rows: rows, Cols: cols, Data: src}} {
				o := newOutput(m, rows)
				k.Mul(w, &a, 0, w.Strips(), o.y, o.ldy)
				for r := range m {
					ref.check(t, name(rows, cols, m, w.Packed), 0, r, o.row(r))
				}
			}
		})
	})
}

// wholeBlock gives a block integer scales small enough for sums below 2^24, and some blocks extreme codes.
func wholeBlock(typ quant.Type, b []byte, i int) {
	if i%5 < 2 && typ.BlockSize() > 1 {
		for j := range b {
			b[j] = [...]byte{0xff, 0x80}[i%5]
		}
	}
	const one, two = 0x3c00, 0x4000
	switch typ {
	case quant.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(i%255-127)))
	case quant.F16:
		binary.LittleEndian.PutUint16(b, quant.F32ToF16(float32(i%255-127)))
	case quant.BF16:
		binary.LittleEndian.PutUint16(b, quant.F32ToBF16(float32(i%255-127)))
	case quant.Q6_K:
		for s := range 16 {
			b[192+s] = byte(s - 8)
		}
		binary.LittleEndian.PutUint16(b[208:], one)
	case quant.Q4_K, quant.Q5_K:
		binary.LittleEndian.PutUint16(b[2:], one)
		binary.LittleEndian.PutUint16(b, one)
		for s := range 12 {
			b[4+s] &= 0xc7 // scales and minima below 56, sums below 2^24
		}
	case quant.Q4_1, quant.Q5_1:
		binary.LittleEndian.PutUint16(b[2:], two)
		fallthrough
	default:
		binary.LittleEndian.PutUint16(b, one)
	}
}

// TestStripRanges: a range of strips writes its own rows and no others.
func TestStripRanges(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		eachType(t, func(t *testing.T, typ quant.Type) {
			rng := rand.New(rand.NewPCG(3, uint64(typ)))
			const rows, cols = 90, 256
			src := randomWeights(rng, typ, rows, cols)
			x := randomActs(rng, 17*cols)
			for _, m := range []int{1, 3, 8, 17} {
				var a Acts
				a.Reset(m, cols)
				k.SetActs(&a, typ, x, cols, 0, m)
				for _, w := range []*Matrix{pack(k, typ, src, rows, cols), {Type: typ, Rows: rows, Cols: cols, Data: src}} {
					whole := newOutput(m, rows)
					k.Mul(w, &a, 0, w.Strips(), whole.y, whole.ldy)
					for _, s := range [][2]int{{0, 0}, {0, 1}, {1, 4}, {5, 6}, {2, 6}} {
						o := newOutput(m, rows)
						k.Mul(w, &a, s[0], s[1], o.y, o.ldy)
						lo, hi := s[0]*lanes, min(s[1]*lanes, rows)
						o.intact(t, lo, hi)
						for r := range m {
							sameBits(t, name(rows, cols, m, w.Packed), o.row(r)[lo:hi], whole.row(r)[lo:hi])
						}
					}
				}
			}
		})
	})
}

// TestLongRows passes through every loop over groups of tiles and chunks of columns.
func TestLongRows(t *testing.T) {
	const rows, cols, m = 17, 8448, 76
	eachLevel(t, func(t *testing.T, k *Kernels) {
		types := []quant.Type{quant.Q8_0, quant.Q4_K, quant.F16}
		if k.level == simd.Generic {
			types = types[:1] // plain Go takes long
		}
		for _, typ := range types {
			rng := rand.New(rand.NewPCG(4, uint64(typ)))
			src := randomWeights(rng, typ, rows, cols)
			x := randomActs(rng, m*cols)
			var a, one Acts
			a.Reset(m, cols)
			k.SetActs(&a, typ, x, cols, 0, m)
			w := pack(k, typ, src, rows, cols)
			packed, file := newOutput(m, rows), newOutput(m, rows)
			k.Mul(w, &a, 0, w.Strips(), packed.y, packed.ldy)
			k.Mul(&Matrix{Type: typ, Rows: rows, Cols: cols, Data: src}, &a, 0, w.Strips(), file.y, file.ldy)
			alone := make([]float32, rows)
			for _, r := range []int{0, 63, 64, 75} {
				one.Reset(1, cols)
				k.SetActs(&one, typ, x[r*cols:], cols, 0, 1)
				k.Mul(w, &one, 0, w.Strips(), alone, rows)
				sameBits(t, "packed "+typ.String(), packed.row(r), alone)
				sameBits(t, "file "+typ.String(), file.row(r), alone)
			}
		}
	})
}

// TestMixedTypes: one set of activations serves matrices of all quantised types, and the float32 ones too
// once both classes are set.
func TestMixedTypes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(5, 5))
		const rows, cols, m = 16, 256, 3
		x := randomActs(rng, m*cols)
		var a Acts
		a.Reset(m, cols)
		k.SetActs(&a, quant.Q8_0, x, cols, 0, m)
		k.SetActs(&a, quant.F16, x, cols, 0, m)
		for _, typ := range quant.Types() {
			src := randomWeights(rng, typ, rows, cols)
			ref := newReference(t, typ, src, rows, cols, &a)
			w := pack(k, typ, src, rows, cols)
			o := newOutput(m, rows)
			k.Mul(w, &a, 0, 1, o.y, o.ldy)
			for r := range m {
				ref.check(t, typ.String(), tolerance(typ, cols), r, o.row(r))
			}
		}
	})
}

func TestMulDoesNotAllocate(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(6, 6))
		const rows, cols = 40, 256
		x, y := randomActs(rng, 9*cols), make([]float32, 9*rows)
		var a Acts
		for _, typ := range []quant.Type{quant.F16, quant.Q4_0, quant.Q6_K} {
			src := randomWeights(rng, typ, rows, cols)
			w, f := pack(k, typ, src, rows, cols), &Matrix{Type: typ, Rows: rows, Cols: cols, Data: src}
			for _, m := range []int{1, 3, 9} {
				n := testing.AllocsPerRun(5, func() {
					a.Reset(m, cols)
					k.SetActs(&a, typ, x, cols, 0, m)
					k.Mul(w, &a, 0, 3, y, rows)
					k.Mul(f, &a, 0, 3, y, rows)
				})
				if n != 0 {
					t.Errorf("%v, %d rows: %v allocations", typ, m, n)
				}
			}
		}
	})
}

// TestCallersBugsPanic: behind the door there are only pointers.
func TestCallersBugsPanic(t *testing.T) {
	k := New(simd.Generic)
	var a Acts
	a.Reset(2, 64)
	good := Matrix{Type: quant.Q8_0, Rows: 20, Cols: 64, Packed: true, Data: make([]byte, PackedBytes(quant.Q8_0, 20, 64))}
	y := make([]float32, 40)
	for what, f := range map[string]func(w Matrix){
		"columns":     func(w Matrix) { w.Cols = 32; k.Mul(&w, &a, 0, 2, y, 20) },
		"data":        func(w Matrix) { w.Data = w.Data[1:]; k.Mul(&w, &a, 0, 2, y, 20) },
		"file data":   func(w Matrix) { w.Packed, w.Data = false, w.Data[:20*68-1]; k.Mul(&w, &a, 0, 2, y, 20) },
		"strips":      func(w Matrix) { k.Mul(&w, &a, 0, 3, y, 20) },
		"first strip": func(w Matrix) { k.Mul(&w, &a, -1, 2, y, 20) },
		"ldy":         func(w Matrix) { k.Mul(&w, &a, 0, 2, y, 19) },
		"y":           func(w Matrix) { k.Mul(&w, &a, 0, 2, y[:39], 20) },
		"rows":        func(w Matrix) { k.SetActs(&a, quant.Q8_0, y, 64, 0, 3) },
		"pack":        func(w Matrix) { k.Pack(w.Data[1:], w.Data, w.Type, 20, 64, 0, 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f(good)
		}()
	}
	k.Mul(&good, &a, 0, 2, y, 20)
}

// FuzzMul compares all bodies with the generic one.
func FuzzMul(f *testing.F) {
	for typ := range quant.Types() {
		f.Add(uint8(typ), uint8(17), uint8(3), uint8(5), uint64(typ))
	}
	generic := New(simd.Generic)
	var ks []*Kernels
	for _, l := range levels() {
		ks = append(ks, New(l))
	}
	f.Fuzz(func(t *testing.T, typ, rows, units, m uint8, seed uint64) {
		ty := quant.Types()[int(typ)%len(layouts)]
		r, c, am := 1+int(rows)%50, (1+int(units)%9)*ty.BlockSize(), 1+int(m)%19
		rng := rand.New(rand.NewPCG(seed, 1))
		src, x := randomWeights(rng, ty, r, c), randomActs(rng, am*c)
		var a Acts
		a.Reset(am, c)
		generic.SetActs(&a, ty, x, c, 0, am)
		ref := newReference(t, ty, src, r, c, &a)
		for _, k := range ks {
			k.SetActs(&a, ty, x, c, 0, am)
			for _, w := range []*Matrix{pack(k, ty, src, r, c), {Type: ty, Rows: r, Cols: c, Data: src}} {
				o := newOutput(am, r)
				k.Mul(w, &a, 0, w.Strips(), o.y, o.ldy)
				for i := range am {
					ref.check(t, k.level.String(), tolerance(ty, c), i, o.row(i))
				}
				o.intact(t, 0, r)
			}
		}
	})
}
