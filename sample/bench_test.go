package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// textLike makes logits with the spread of a real row: a body of standard deviation 3 and a tail of a few
// hundred likely tokens above it.
func textLike(vocab int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 5))
	row := make([]float32, vocab)
	for i := range row {
		row[i] = float32(rng.NormFloat64() * 3)
	}
	for range min(300, vocab) {
		row[rng.IntN(vocab)] = float32(6 + 3*rng.ExpFloat64())
	}
	return row
}

func BenchmarkNext(b *testing.B) {
	with := func(f func(*Params)) Params { p := Default(); f(&p); return p }
	cases := []struct {
		name string
		p    Params
	}{
		{"greedy", Greedy()},
		{"plain", Default()},
		{"topk=40", with(func(p *Params) { p.TopK = 40 })},
		{"topp=0.95", with(func(p *Params) { p.TopP = 0.95 })},
		{"minp=0.05", with(func(p *Params) { p.MinP = 0.05 })},
		{"llama.cpp", with(func(p *Params) { p.Temperature, p.TopK, p.TopP, p.MinP = 0.8, 40, 0.95, 0.05 })},
		{"hot,topp=0.95", with(func(p *Params) { p.Temperature, p.TopP = 10, 0.95 })},
		{"hot,topk=50000", with(func(p *Params) { p.Temperature, p.TopK = 10, 50000 })},
		{"penalty,500out", with(func(p *Params) { p.TopK, p.RepetitionPenalty = 40, 1.1 })},
		{"greedy,logprobs=5", with(func(p *Params) { p.Temperature, p.LogProbs, p.TopLogProbs = 0, true, 5 })},
	}
	for _, vocab := range []int{49152, 128256, 262144} {
		row := textLike(vocab, 1)
		for _, c := range cases {
			b.Run(fmt.Sprintf("vocab=%d/%s", vocab, c.name), func(b *testing.B) {
				s, err := NewSampler(c.p, vocab)
				if err != nil {
					b.Fatal(err)
				}
				for i := range 500 {
					s.Observe(int32(i * 97 % vocab))
				}
				b.SetBytes(int64(4 * vocab))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Next(row); err != nil {
						b.Fatal(err)
					}
					s.count++
				}
			})
		}
	}
}

func BenchmarkExp(b *testing.B) {
	var d [1024]float64
	for i := range d {
		d[i] = float64(i) / 20
	}
	sink := 0.0
	b.Run("expNeg", func(b *testing.B) {
		for i := range b.N {
			sink += expNeg(d[i&1023])
		}
	})
	b.Run("math", func(b *testing.B) {
		for i := range b.N {
			sink += math.Exp(-d[i&1023])
		}
	})
	_ = sink
}
