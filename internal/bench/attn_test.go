package bench

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// attentionOutput prepares a and returns what the first and the last layer's attention yields. The output is read
// through Logits with an identity matrix, the way out of a backend's buffers.
func attentionOutput(t *testing.T, a *attention) (out []float32) {
	t.Helper()
	var err error
	if a.be, err = cpu.New(cpu.Options{Workers: 2}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := a.prepare(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	cols := a.t.QHeads * a.t.HeadDim
	eye := make([]byte, 4*cols*cols)
	for i := range cols {
		eye[4*(i*cols+i)+2], eye[4*(i*cols+i)+3] = 0x80, 0x3f // 1.0
	}
	w, err := a.be.Upload("identity", quant.F32, cols, cols, eye)
	if err != nil {
		t.Fatal(err)
	}
	rows := len(a.t.Lens)
	out = make([]float32, 2*rows*cols)
	for i, layer := range []int{0, a.layers - 1} {
		err := a.be.Begin(&a.batch)
		a.be.Attend(a.dst, a.q, a.kv, layer, &ops.Attention{Scale: testScale})
		a.be.Logits(out[i*rows*cols:(i+1)*rows*cols], a.dst, w, 0)
		if err = errors.Join(err, a.be.End()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

const testScale = 0.2

// TestAttentionData: what is measured is the attention over every token, in the first layer and in the last, wherever
// the pages are. The reference is softmax in float64 over the same random numbers.
func TestAttentionData(t *testing.T) {
	for _, shuffle := range []bool{false, true} {
		test := AttentionTest{QHeads: 2, KVHeads: 1, HeadDim: 32, KV: quant.F32, Lens: []int{fillRows + 40, 40}, Shuffle: shuffle, Footprint: 1 << 18, Seed: 3}
		a := &attention{t: test}
		got := attentionOutput(t, a)
		if a.layers < 3 {
			t.Errorf("%d layers", a.layers)
		}
		want := referenceOutput(test)
		// Sums of some hundred float32 terms of about the size of the result, exponentials included.
		tol := testkit.RMS(want, testkit.Tol(testkit.F32, 4*test.Lens[0]))
		testkit.Near(t, "first layer", got[:len(want)], want, tol)
		testkit.Near(t, "last layer", got[len(want):], want, tol)
	}
}

// referenceOutput is the attention over the numbers that randomSource makes: token i of a sequence has row i of the
// table, over and over, and the query of sequence b is row b.
func referenceOutput(t AttentionTest) []float64 {
	r := rand.New(rand.NewPCG(t.Seed, 2))
	table := func(cols int) [][]float64 {
		rows := make([][]float64, fillRows)
		for i := range rows {
			rows[i] = make([]float64, cols)
			for j := range rows[i] {
				rows[i][j] = float64(float32(r.NormFloat64()))
			}
		}
		return rows
	}
	d := t.HeadDim
	q, k, v := table(t.QHeads*d), table(t.KVHeads*d), table(t.KVHeads*d)
	var out []float64
	for b, n := range t.Lens {
		for h := range t.QHeads {
			sum, o := 0.0, make([]float64, d)
			for j := range n {
				s := 0.0
				for i := range d {
					s += q[b][h*d+i] * k[j%fillRows][i]
				}
				e := math.Exp(testScale * s)
				sum += e
				for i := range d {
					o[i] += e * v[j%fillRows][i]
				}
			}
			for i := range d {
				out = append(out, o[i]/sum)
			}
		}
	}
	return out
}
