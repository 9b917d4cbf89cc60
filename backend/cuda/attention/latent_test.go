package attention

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/internal/testkit"
)

// TestLatent runs latent attention: one KV head, any number of query heads.
func TestLatent(t *testing.T) { latents(t, newRig(t)) }

func latents(t *testing.T, r *rig) {
	for i, c := range []Config{
		{QHeads: 16, PageSize: 64}, {QHeads: 20, PageSize: 16, QLen: 3, Type: F16, KVType: F16}, {QHeads: 128, PageSize: 64, Address: Flat},
	} {
		for j, lens := range [][]int32{{300}, {1, 64, 65}, {0, 130}} {
			if r.drv != nil && c.QHeads == 128 && j != 1 {
				continue // seconds in Go
			}
			c.KVHeads, c.HeadDim, c.Variant, c.Seqs, c.KVLen = 1, LatentDim, Latent, 3, 320
			s := scene{cfg: c, lens: lens}
			if c.QLen > 0 {
				s.qLens = []int32{3, 1, 2}[:len(lens)]
			}
			s.build(r, uint64(10*i+j))
			s.layer.V = 0
			for _, call := range s.calls {
				call.ValueDim = LatentValueDim
				call.KV = latentKV{call.KV}
			}
			p := r.plan(s.cfg)
			s.run(r, p)
			s.run(r, p) // counters are zero again
			s.checkDim(r, fmt.Sprintf("latent %+v, lens %v", c, lens), LatentValueDim)
		}
	}
	c := Config{QHeads: 16, KVHeads: 1, HeadDim: 512, PageSize: 64, Seqs: 1, KVLen: 100, Variant: Latent}
	if _, err := r.ks.Plan(c); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// latentKV is a cache whose values are the first part of its keys.
type latentKV struct{ attn.KV }

func (k latentKV) Value(j, head int) []float32 { return k.Key(j, head)[:LatentValueDim] }

// TestPairs merges outputs of parts, one of them empty, in place.
func TestPairs(t *testing.T) { pairs(t, newRig(t)) }

func pairs(t *testing.T, r *rig) {
	const rows, dim = 7, 72
	for _, count := range []int{1, 2, 5} {
		rng := rand.New(rand.NewPCG(1, uint64(count)))
		o := normal(rng, count*rows*dim)
		b := store(BF16, o)
		lse := make([]float32, count*rows)
		for i := range lse {
			lse[i] = float32(rng.NormFloat64() * 3)
			if i%5 == 0 || i%rows == 3 { // row 3 is empty everywhere
				lse[i] = float32(math.Inf(-1))
			}
		}
		x := Pairs{Rows: rows, Count: count, O: upload(r, b), LSE: upload(r, lse)}
		x.Out, x.OutLSE = x.O, x.LSE
		m, err := r.ks.NewMerger("bf16", dim)
		must(t, err)
		must(t, m.Run(r.stream, &x))
		got, gotLSE := halves(BF16, download[uint16](r, x.Out, rows*dim)), download[float32](r, x.OutLSE, rows)
		for row := range rows {
			var sum float64
			want := make([]float64, dim)
			for i := range count {
				w := math.Exp(float64(lse[i*rows+row]))
				sum += w
				for d := range want {
					want[d] += w * float64(o[(i*rows+row)*dim+d])
				}
			}
			for d := range want {
				if want[d] /= sum; sum == 0 {
					want[d] = 0
				}
			}
			testkit.Near(t, fmt.Sprintf("%d pairs, row %d", count, row), got[row*dim:(row+1)*dim], want, testkit.Tolerance{Abs: 1e-6, Rel: testkit.BF16})
			testkit.Near(t, "LSE", gotLSE[row:row+1], []float64{math.Log(sum)}, testkit.Tolerance{Abs: 1e-5, Rel: 1e-6})
		}
	}
	if _, err := r.ks.NewMerger("e4m3", 64); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	m, err := r.ks.NewMerger("f16", 64)
	must(t, err)
	if err := m.Run(r.stream, &Pairs{Rows: 1, Count: 1}); !errors.Is(err, ErrPointer) {
		t.Error(err)
	}
}
