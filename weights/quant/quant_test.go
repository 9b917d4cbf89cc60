package quant

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTypeNames(t *testing.T) {
	for _, typ := range Types() {
		for _, name := range []string{typ.String(), strings.ToLower(typ.String())} {
			if got, err := Parse(name); err != nil || got != typ {
				t.Errorf("Parse(%q) = %v, %v", name, got, err)
			}
		}
	}
	_, err := Parse("IQ2_XS")
	if !errors.Is(err, ErrType) || !strings.Contains(err.Error(), `"IQ2_XS"`) || !strings.Contains(err.Error(), "Q6_K") {
		t.Errorf("Parse of an unknown name: %v", err)
	}
	if got := Type(200).String(); got != "Type(200)" {
		t.Errorf("unknown type prints %q", got)
	}
}

func TestRowBytes(t *testing.T) {
	for _, typ := range Types() {
		for _, blocks := range []int{0, 1, 3} {
			if got := typ.RowBytes(blocks * typ.BlockSize()); got != blocks*typ.BlockBytes() {
				t.Errorf("%v: %d blocks take %d bytes", typ, blocks, got)
			}
		}
		for _, cols := range []int{-typ.BlockSize(), typ.BlockSize() + 1} {
			if typ.BlockSize() == 1 && cols > 0 {
				continue
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v.RowBytes(%d) did not panic", typ, cols)
					}
				}()
				typ.RowBytes(cols)
			}()
		}
	}
}

func TestLengthErrors(t *testing.T) {
	for _, typ := range Types() {
		n, size := typ.BlockSize(), typ.BlockBytes()
		for _, c := range []struct{ weights, bytes int }{
			{n, size - 1}, {n, size + 1}, {0, size}, {n, 0}, {2*n + 1, 2 * size}, {n - 1, size},
		} {
			w, b := make([]float32, c.weights), make([]byte, c.bytes)
			if err := Dequantize(typ, w, b); err == nil {
				t.Errorf("%v: dequantized %d weights from %d bytes", typ, c.weights, c.bytes)
			}
			if err := Quantize(typ, b, w); err == nil {
				t.Errorf("%v: quantized %d weights to %d bytes", typ, c.weights, c.bytes)
			}
		}
		if err := Dequantize(typ, nil, nil); err != nil {
			t.Errorf("%v: no weights: %v", typ, err)
		}
	}
	if err := Dequantize(99, nil, nil); !errors.Is(err, ErrType) {
		t.Errorf("unknown type: %v", err)
	}
}

// plainError returns Σ (w - w')² when each sub-block of n weights is spread evenly over codes 0..top
// between its extremes (or, symmetric, over ±top) with exact scales: what a K quantiser must beat.
func plainError(w []float32, n, top int, symmetric bool) (sum float64) {
	for ; len(w) >= n; w = w[n:] {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, v := range w[:n] {
			lo, hi = math.Min(lo, float64(v)), math.Max(hi, float64(v))
		}
		if symmetric {
			hi = math.Max(-lo, hi)
			lo = -hi
		}
		step := (hi - lo) / float64(top)
		for _, v := range w[:n] {
			e := lo + step*math.Round((float64(v)-lo)/step) - float64(v)
			sum += e * e
		}
	}
	return sum
}

// TestQuantizeError: the search for scales must repay what storing the scales in few bits costs, on
// weights of the shapes found in models. The bound is the error of the plain mapping with exact scales;
// for an offset distribution, where all codes are spent on the offset, it is what 6-bit mins allow.
func TestQuantizeError(t *testing.T) {
	const rows = 64
	rng := rand.New(rand.NewPCG(3, 4))
	shapes := map[string]func() float64{
		"normal":  rng.NormFloat64,
		"small":   func() float64 { return 1e-3 * rng.NormFloat64() },
		"laplace": func() float64 { return rng.ExpFloat64() - rng.ExpFloat64() },
		"uniform": func() float64 { return 2*rng.Float64() - 1 },
	}
	for _, c := range []struct {
		typ       Type
		n, top    int
		symmetric bool
	}{{Q4_K, 32, 15, false}, {Q5_K, 32, 31, false}, {Q6_K, 16, 63, true}} {
		for name, draw := range shapes {
			t.Run(fmt.Sprintf("%v/%s", c.typ, name), func(t *testing.T) {
				w, got := make([]float32, rows*superLen), make([]float32, rows*superLen)
				for i := range w {
					w[i] = float32(draw())
				}
				b := make([]byte, c.typ.RowBytes(len(w)))
				if err := Quantize(c.typ, b, w); err != nil {
					t.Fatal(err)
				}
				if err := Dequantize(c.typ, got, b); err != nil {
					t.Fatal(err)
				}
				var sum float64
				for i := range w {
					e := float64(got[i]) - float64(w[i])
					sum += e * e
				}
				plain := plainError(w, c.n, c.top, c.symmetric)
				t.Logf("squared error %.3f of the plain mapping's", sum/plain)
				if !(sum <= plain) {
					t.Errorf("squared error %g, plain mapping %g", sum, plain)
				}
			})
		}
	}
}

// TestQuantizeExact: weights that lie on the grid of some block come back exactly.
func TestQuantizeExact(t *testing.T) {
	grid := func(codes int, lo float32) []float32 {
		w := make([]float32, superLen)
		for i := range w {
			w[i] = (float32(i*7%codes) + lo) / 64
			if i%16 < 2 { // both extremes in every sub-block, so that the scale is 1/64
				w[i] = (float32(i%16*(codes-1)) + lo) / 64
			}
		}
		return w
	}
	for _, c := range []struct {
		typ Type
		w   []float32
	}{
		{Q8_0, grid(255, -127)}, {Q4_0, grid(16, -8)}, {Q4_1, grid(16, -3)}, {Q5_0, grid(32, -16)}, {Q5_1, grid(32, 5)},
		{Q6_K, grid(64, -32)}, {F16, grid(256, -100)}, {BF16, grid(256, -100)}, {F32, grid(256, -100)},
		{Q4_K, make([]float32, superLen)}, {Q5_K, make([]float32, superLen)}, {Q6_K, make([]float32, superLen)},
	} {
		b, got := make([]byte, c.typ.RowBytes(superLen)), make([]float32, superLen)
		if err := errors.Join(Quantize(c.typ, b, c.w), Dequantize(c.typ, got, b)); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			// d·code is one rounding, d is stored exactly here (1/64 times a code of few bits).
			if got[i] != c.w[i] {
				t.Fatalf("%v: weight %d: got %g, want %g", c.typ, i, got[i], c.w[i])
			}
		}
	}
}

// TestPackScales: packing is the inverse of unpacking for every value in every place.
func TestPackScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		var scales, mins [8]uint8
		for i := range scales {
			scales[i], mins[i] = uint8(rng.UintN(64)), uint8(rng.UintN(64))
		}
		var p [12]byte
		packScales(&p, &scales, &mins)
		if s, m := unpackScales(&p); s != scales || m != mins {
			t.Fatalf("%v %v came back as %v %v", scales, mins, s, m)
		}
	}
}

// TestQuantizeOddInput: no input panics, and the codes of finite tiny weights stay finite.
func TestQuantizeOddInput(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	values := []float32{0, float32(math.Copysign(0, -1)), nan, inf, -inf, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	rng := rand.New(rand.NewPCG(7, 8))
	w, got := make([]float32, superLen), make([]float32, superLen)
	for _, typ := range Types() {
		b := make([]byte, typ.RowBytes(superLen))
		for range 200 {
			for i := range w {
				w[i] = values[rng.IntN(len(values))]
			}
			if err := errors.Join(Quantize(typ, b, w), Dequantize(typ, got, b)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range w {
			w[i] = float32(rng.NormFloat64() * 1e-40)
		}
		if err := errors.Join(Quantize(typ, b, w), Dequantize(typ, got, b)); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if !(abs(v) < 1e-5) {
				t.Fatalf("%v: weight %d: %g became %g", typ, i, w[i], v)
			}
		}
	}
}

func TestNoAllocs(t *testing.T) {
	w := make([]float32, 4*superLen)
	for _, typ := range Types() {
		b := make([]byte, typ.RowBytes(len(w)))
		if n := testing.AllocsPerRun(10, func() {
			if err := errors.Join(Quantize(typ, b, w), Dequantize(typ, w, b)); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", typ, n)
		}
	}
}

// BenchmarkDequantize: one embedding row of 2048 weights a call; the rate is that of the float32 output.
func BenchmarkDequantize(b *testing.B) {
	const cols = 2048
	rng := rand.New(rand.NewPCG(9, 10))
	w := make([]float32, cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	for _, typ := range Types() {
		src := make([]byte, typ.RowBytes(cols))
		if err := Quantize(typ, src, w); err != nil {
			b.Fatal(err)
		}
		b.Run("type="+typ.String(), func(b *testing.B) {
			b.SetBytes(4 * cols)
			for b.Loop() {
				_ = Dequantize(typ, w, src)
			}
		})
	}
}

func BenchmarkQuantize(b *testing.B) {
	const cols = 2048
	rng := rand.New(rand.NewPCG(11, 12))
	w := make([]float32, cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	for _, typ := range Types() {
		dst := make([]byte, typ.RowBytes(cols))
		b.Run("type="+typ.String(), func(b *testing.B) {
			b.SetBytes(4 * cols)
			for b.Loop() {
				_ = Quantize(typ, dst, w)
			}
		})
	}
}
