package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestProductInvariance: a row of activations times a matrix is the same bits whatever the number of rows beside it,
// its place among them and the number of workers, for every format in both orders. Kernels for one row, a few and
// many are different code.
func TestProductInvariance(t *testing.T) {
	const k, n, most = 512, 48, 133
	for _, level := range simd.Levels() {
		for _, fileOrder := range []bool{false, true} {
			for typ := quant.F32; typ <= quant.Q6_K; typ++ {
				p := newProducts(t, Options{Workers: 2, Level: &level, FileOrder: fileOrder}, typ, k, n, most)
				p.must(p.be.Begin(stepOf(most)))
				all := p.product(0, most)
				p.must(p.be.End())
				counts := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 65, 128}
				if level == simd.Generic {
					counts = []int{1, 2, 5, 17}
				}
				for _, m := range counts {
					from := (m * 7) % (most - m + 1) // the row's place differs, too
					p.must(p.be.Begin(stepOf(m)))
					got := p.product(from, m)
					p.must(p.be.End())
					if i := differs(got, all[from*n:(from+m)*n]); i >= 0 {
						t.Errorf("%v/file=%v/%v: %d rows: row %d, output %d is %x, among %d rows it was %x",
							level, fileOrder, typ, m, i/n, i%n, got[i], most, all[from*n+i])
						break
					}
				}
			}
		}
	}
}

// products multiplies rows of the same activations by the same matrix.
type products struct {
	t  *testing.T
	be *Backend
	w  ops.Weight
	x  []float32 // [most, k]
	in ops.Buf
	y  ops.Buf
	n  int
}

func newProducts(t *testing.T, o Options, typ quant.Type, k, n, most int) *products {
	t.Helper()
	be, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { be.Close() })
	p := &products{t: t, be: be, n: n}
	rng := rand.New(rand.NewPCG(uint64(typ), 1))
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	data := make([]byte, n*typ.RowBytes(k))
	p.must(quant.Quantize(typ, data, normal(n*k)))
	p.w, err = be.Upload("w", typ, n, k, data)
	p.must(err)
	p.x = normal(most * k)
	p.in, err = be.Alloc(most, k)
	p.must(err)
	p.y, err = be.Alloc(most, n)
	p.must(err)
	return p
}

func (p *products) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// product returns rows [from, from+m) times the matrix.
func (p *products) product(from, m int) []float32 {
	in, y := p.in.(*buf), p.y.(*buf)
	in.rows = m
	copy(in.data, p.x[from*in.cols:(from+m)*in.cols])
	p.be.Linear(in, []ops.Projection{{W: p.w, Y: y}})
	return append([]float32(nil), y.data[:m*p.n]...)
}

// stepOf is a batch of one sequence with n rows.
func stepOf(n int) *ops.Batch {
	b := &ops.Batch{QIndptr: []int32{0, int32(n)}, KVLens: []int32{int32(n)}, PageIndptr: []int32{0, 0}}
	for i := range n {
		b.Tokens, b.Positions = append(b.Tokens, 0), append(b.Positions, int32(i))
	}
	return b
}

// differs returns the first element whose bits differ, -1 if none.
func differs(got, want []float32) int {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return i
		}
	}
	return -1
}
