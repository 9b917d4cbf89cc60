package kvdot

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"testing"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func TestNewLayout(t *testing.T) {
	for _, c := range []struct {
		typ       quant.Type
		dim, tile int
	}{
		{quant.F32, 8, 2 * 16 * 8 * 4}, {quant.F16, 64, 4096}, {quant.BF16, 512, 32768},
		{quant.Q8_0, 64, 2 * (64 + 1024)}, {quant.Q8_0, 96, 2 * (128 + 1536)},
	} {
		l, err := NewLayout(c.typ, c.dim)
		if err != nil || l.TileBytes != c.tile || l.KBytes%64 != 0 || l.KBytes+l.VBytes != l.TileBytes {
			t.Errorf("%v %d: %+v, %v", c.typ, c.dim, l, err)
		}
	}
	for _, c := range []struct {
		typ quant.Type
		dim int
	}{{quant.F16, 0}, {quant.F16, -8}, {quant.F16, 12}, {quant.F16, 520}, {quant.Q8_0, 48}} {
		if _, err := NewLayout(c.typ, c.dim); err == nil {
			t.Errorf("%v %d: no error", c.typ, c.dim)
		}
	}
	if _, err := NewLayout(quant.Q4_0, 64); !errors.Is(err, quant.ErrType) {
		t.Errorf("Q4_0: %v", err)
	}
}

// TestStore checks every slot against the format's own rounding and that its neighbours stay as they were.
func TestStore(t *testing.T) {
	eachKernel(t, func(t *testing.T, level simd.Level, typ quant.Type) {
		for _, dim := range dimsOf(typ) {
			l, err := NewLayout(typ, dim)
			if err != nil {
				t.Fatal(err)
			}
			k, s := New(level, l), new(Scratch)
			one, all := alignedFloats(l.TileBytes/4), alignedFloats(l.TileBytes/4)
			rows := make([]float32, 2*TileTokens*dim)
			for i := range rows {
				rows[i] = float32(math.Sin(float64(i*i))) * float32(1+i%5)
			}
			rows[3], rows[dim+1] = float32(math.Inf(1)), 1e-6
			keys, values := rows[:TileTokens*dim], rows[TileTokens*dim:]
			for _, slot := range []int{15, 0, 7, 3, 1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14} {
				k.Store(unsafe.Pointer(&one[0]), slot, keys[slot*dim:][:dim], values[slot*dim:][:dim], s)
			}
			k.StoreTile(unsafe.Pointer(&all[0]), keys, values, dim, s)
			for i := range one {
				if math.Float32bits(one[i]) != math.Float32bits(all[i]) {
					t.Fatalf("dim %d: StoreTile and Store differ in word %d", dim, i)
				}
			}
			checkStored(t, l, unsafe.Pointer(&one[0]), keys, values)
		}
	})
}

func checkStored(t *testing.T, l Layout, tile unsafe.Pointer, keys, values []float32) {
	t.Helper()
	d := l.HeadDim
	key, value, want := make([]float32, d), make([]float32, d), make([]float32, d)
	packed := make([]byte, l.Type.RowBytes(d))
	for slot := range TileTokens {
		l.Load(tile, slot, key, value)
		for _, p := range []struct{ got, stored []float32 }{{key, keys[slot*d:][:d]}, {value, values[slot*d:][:d]}} {
			if err := errors.Join(quant.Quantize(l.Type, packed, p.stored), quant.Dequantize(l.Type, want, packed)); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if math.Float32bits(p.got[i]) != math.Float32bits(want[i]) && want[i] == want[i] {
					t.Fatalf("%v dim %d slot %d: element %d is %v, want %v", l.Type, d, slot, i, p.got[i], want[i])
				}
			}
		}
	}
}

func TestCallersBugsPanic(t *testing.T) {
	l, _ := NewLayout(quant.F16, 8)
	k, s := New(simd.Generic, l), new(Scratch)
	tile := alignedFloats(l.TileBytes / 4)
	row, short := make([]float32, 8), make([]float32, 7)
	for name, f := range map[string]func(){
		"slot":  func() { k.Store(unsafe.Pointer(&tile[0]), 16, row, row, s) },
		"key":   func() { k.Store(unsafe.Pointer(&tile[0]), 0, short, row, s) },
		"rows":  func() { k.Fold(&Item{Rows: 1}, s) },
		"range": func() { k.Fold(&Item{Rows: 1, Q: row, O: row, M: row, L: row, Lo: []int32{0}, Hi: []int32{1}}, s) },
		"level": func() { New(simd.AVX512+1, l) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestArgOffsets compares foldArgs with the offsets that the generator, another module, was built with.
func TestArgOffsets(t *testing.T) {
	var a foldArgs
	want := map[string]uintptr{
		"argBase": unsafe.Offsetof(a.base), "argOff": unsafe.Offsetof(a.off), "argAhead": unsafe.Offsetof(a.ahead),
		"argStripes": unsafe.Offsetof(a.stripes), "argQ": unsafe.Offsetof(a.q), "argM": unsafe.Offsetof(a.m),
		"argL": unsafe.Offsetof(a.l), "argO": unsafe.Offsetof(a.o), "argP": unsafe.Offsetof(a.p),
		"argMask": unsafe.Offsetof(a.mask), "argLo": unsafe.Offsetof(a.lo), "argHi": unsafe.Offsetof(a.hi),
		"argDim": unsafe.Offsetof(a.dim), "argVOff": unsafe.Offsetof(a.vOff),
		"argSoftcap": unsafe.Offsetof(a.softcap), "argInvCap": unsafe.Offsetof(a.invCap),
	}
	f, err := parser.ParseFile(token.NewFileSet(), "_asm/main.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			lit, isLit := v.Values[0].(*ast.BasicLit)
			if off, ok := want[v.Names[0].Name]; ok && isLit {
				if lit.Value != strconv.Itoa(int(off)) {
					t.Errorf("%s is %s in the generator, %d here", v.Names[0].Name, lit.Value, off)
				}
				delete(want, v.Names[0].Name)
			}
		}
		return true
	})
	for name := range want {
		t.Errorf("the generator does not define %s", name)
	}
}
