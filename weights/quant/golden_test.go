package quant

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
)

// golden is one file of testdata; scripts/golden_quant.py says what is in it.
type golden struct {
	readBlocks   []byte
	readWeights  []float32
	writeWeights []float32
	writeBlocks  []byte
}

func loadGolden(t *testing.T, typ Type) golden {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("testdata/%v.gz", typ))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	read := func(data any) {
		if err := binary.Read(z, binary.LittleEndian, data); err != nil {
			t.Fatal(err)
		}
	}
	var g golden
	var n uint32
	read(&n)
	g.readBlocks = make([]byte, int(n)*typ.BlockBytes())
	g.readWeights = make([]float32, int(n)*typ.BlockSize())
	read(g.readBlocks)
	read(g.readWeights)
	read(&n)
	g.writeWeights = make([]float32, int(n)*typ.BlockSize())
	g.writeBlocks = make([]byte, int(n)*typ.BlockBytes())
	read(g.writeWeights)
	read(g.writeBlocks)
	if rest, _ := io.Copy(io.Discard, z); rest != 0 {
		t.Fatalf("%d bytes left in the golden file", rest)
	}
	return g
}

// same reports equal bits, all NaNs being equal: which of two NaN operands a sum or product passes on
// is the machine's choice.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func TestDequantizeGolden(t *testing.T) {
	for _, typ := range Types() {
		t.Run(typ.String(), func(t *testing.T) {
			g := loadGolden(t, typ)
			const canary = 12345.0
			all := make([]float32, len(g.readWeights)+1)
			got := all[:len(g.readWeights)]
			for i := range all {
				all[i] = canary
			}
			if err := Dequantize(typ, got, g.readBlocks); err != nil {
				t.Fatal(err)
			}
			for i, want := range g.readWeights {
				if !same(got[i], want) {
					t.Fatalf("block %d weight %d: got %g (%#08x), want %g (%#08x)", i/typ.BlockSize(), i%typ.BlockSize(),
						got[i], math.Float32bits(got[i]), want, math.Float32bits(want))
				}
			}
			if all[len(got)] != canary {
				t.Error("wrote behind dst")
			}
		})
	}
}

func TestQuantizeGolden(t *testing.T) {
	for _, typ := range Types() {
		g := loadGolden(t, typ)
		if len(g.writeBlocks) == 0 {
			continue // a K format: TestQuantizeError
		}
		t.Run(typ.String(), func(t *testing.T) {
			all := bytes.Repeat([]byte{0xa5}, len(g.writeBlocks)+1)
			got := all[:len(g.writeBlocks)]
			if err := Quantize(typ, got, g.writeWeights); err != nil {
				t.Fatal(err)
			}
			size, n := typ.BlockBytes(), typ.BlockSize()
			for i := 0; i < len(got); i += size {
				if !bytes.Equal(got[i:i+size], g.writeBlocks[i:i+size]) {
					t.Errorf("block %d of %v:\n got %x\nwant %x", i/size, g.writeWeights[i/size*n:][:n], got[i:i+size], g.writeBlocks[i:i+size])
				}
			}
			if all[len(got)] != 0xa5 {
				t.Error("wrote behind dst")
			}
		})
	}
}
