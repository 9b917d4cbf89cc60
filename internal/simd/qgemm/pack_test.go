package qgemm

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestPack: all bodies write the bytes that the generic one writes, padding included and nothing behind.
// (TestMul checks those bytes against dequantised weights.)
func TestPack(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		eachType(t, func(t *testing.T, typ quant.Type) {
			rng := rand.New(rand.NewPCG(7, uint64(typ)))
			for _, cols := range sizes(typ) {
				for _, rows := range []int{1, 16, 33} {
					checkPack(t, k, typ, randomWeights(rng, typ, rows, cols), rows, cols)
				}
			}
		})
	})
}

func checkPack(t *testing.T, k *Kernels, typ quant.Type, src []byte, rows, cols int) {
	t.Helper()
	n := PackedBytes(typ, rows, cols)
	stripBytes, rowBytes := n/Strips(rows), typ.RowBytes(cols)
	want := make([]byte, n)
	for s := range Strips(rows) {
		packUnits(want[s*stripBytes:], src[s*lanes*rowBytes:min((s+1)*lanes, rows)*rowBytes], typ, rowBytes, 0, layouts[typ].units(cols))
	}
	got := bytes.Repeat([]byte{0x5a}, n+128)
	k.Pack(got[:n], src, typ, rows, cols, 0, Strips(rows))
	for i, b := range got {
		if i < n && b != want[i] || i >= n && b != 0x5a {
			t.Fatalf("%d x %d: byte %d of %d is %#x", rows, cols, i, n, b)
		}
	}
	if Strips(rows) > 2 {
		clear(got)
		k.Pack(got[:n], src, typ, rows, cols, 1, 2)
		if !bytes.Equal(got[stripBytes:2*stripBytes], want[stripBytes:2*stripBytes]) || bytes.Count(got, []byte{0}) < 2*stripBytes {
			t.Fatalf("%d x %d: strip 1 alone differs or is not alone", rows, cols)
		}
	}
}

func FuzzPack(f *testing.F) {
	for typ := range quant.Types() {
		f.Add(uint8(typ), uint8(16), uint8(3), uint64(typ))
	}
	var ks []*Kernels
	for _, l := range levels() {
		ks = append(ks, New(l))
	}
	f.Fuzz(func(t *testing.T, typ, rows, units uint8, seed uint64) {
		ty := quant.Types()[int(typ)%len(layouts)]
		r, c := 1+int(rows)%50, (1+int(units)%9)*ty.BlockSize()
		src := randomWeights(rand.New(rand.NewPCG(seed, 0)), ty, r, c)
		for _, k := range ks {
			checkPack(t, k, ty, src, r, c)
		}
	})
}

func TestSpreadFifth(t *testing.T) {
	for c := range 8 {
		for j := range 4 {
			if got := bits.TrailingZeros32(spreadFifth(1 << (4*c + j))); got != 8*j+c {
				t.Errorf("column %d went to bit %d", 4*c+j, got)
			}
		}
	}
}

// TestPackedBytes: strips are whole lines and hardly larger than the file.
func TestPackedBytes(t *testing.T) {
	eachType(t, func(t *testing.T, typ quant.Type) {
		file, packed := 4096*typ.RowBytes(4096), PackedBytes(typ, 4096, 4096)
		if packed < file || float64(packed) > 1.03*float64(file) {
			t.Errorf("%d bytes for %d of the file", packed, file)
		}
		if PackedBytes(typ, 1, typ.BlockSize())%64 != 0 || PackedBytes(typ, 0, typ.BlockSize()) != 0 {
			t.Errorf("%d bytes for one block", PackedBytes(typ, 1, typ.BlockSize()))
		}
	})
}
