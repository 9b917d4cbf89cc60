package sample

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func newSampler(t testing.TB, p Params, vocab int) *Sampler {
	t.Helper()
	s, err := NewSampler(p, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPhilox uses the known answers that Random123, the paper's own library, publishes for philox4x32-10.
func TestPhilox(t *testing.T) {
	const ones = math.MaxUint32
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
	for i := range uint64(1000) {
		if u := uniform(i*0x123456789, i); !(u > 0 && u < 1) {
			t.Fatalf("uniform(%d) = %v", i, u)
		}
	}
}

func TestExpNeg(t *testing.T) {
	for d := 0.0; d <= negligible; d += 0.00137 {
		if got, want := expNeg(d), math.Exp(-d); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("expNeg(%v) = %v, want %v", d, got, want)
		}
	}
	if expNeg(0) != 1 || expNeg(64.01) != 0 || expNeg(math.Inf(1)) != 0 {
		t.Error("expNeg at its ends")
	}
}

func TestKeyOrdersFloats(t *testing.T) {
	inf := float32(math.Inf(1))
	vals := []float32{-inf, -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32, 0, math.SmallestNonzeroFloat32, 1, math.MaxFloat32}
	for i, x := range vals {
		if i > 0 && key(vals[i-1]) >= key(x) {
			t.Errorf("key(%v) ≥ key(%v)", vals[i-1], x)
		}
		if unkey(key(x)) != x {
			t.Errorf("unkey(key(%v)) = %v", x, unkey(key(x)))
		}
	}
	if key(float32(math.Copysign(0, -1))) != key(0) {
		t.Error("-0 and 0 differ")
	}
}

func TestValidateNamesTheField(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		want []string
		set  func(*Params)
	}{
		{[]string{"temperature", "-0.5", "at least 0"}, func(p *Params) { p.Temperature = -0.5 }},
		{[]string{"temperature", "NaN"}, func(p *Params) { p.Temperature = nan }},
		{[]string{"temperature", "+Inf"}, func(p *Params) { p.Temperature = inf }},
		{[]string{"top-k", "-1"}, func(p *Params) { p.TopK = -1 }},
		{[]string{"top-p", " 0:", "(0, 1]"}, func(p *Params) { p.TopP = 0 }},
		{[]string{"top-p", "1.5", "(0, 1]"}, func(p *Params) { p.TopP = 1.5 }},
		{[]string{"top-p", "NaN"}, func(p *Params) { p.TopP = nan }},
		{[]string{"min-p", "-0.1", "[0, 1]"}, func(p *Params) { p.MinP = -0.1 }},
		{[]string{"min-p", "NaN"}, func(p *Params) { p.MinP = nan }},
		{[]string{"repetition penalty", " 0:"}, func(p *Params) { p.RepetitionPenalty = 0 }},
		{[]string{"frequency penalty", "2.5", "[-2, 2]"}, func(p *Params) { p.FrequencyPenalty = 2.5 }},
		{[]string{"presence penalty", "-Inf"}, func(p *Params) { p.PresencePenalty = -inf }},
		{[]string{"token 7", "101", "[-100, 100]"}, func(p *Params) { p.LogitBias = map[int32]float32{7: 101} }},
		{[]string{"token 7", "NaN"}, func(p *Params) { p.LogitBias = map[int32]float32{7: nan} }},
		{[]string{"token -1"}, func(p *Params) { p.LogitBias = map[int32]float32{-1: 1} }},
		{[]string{"token 10", "vocabulary has 10"}, func(p *Params) { p.LogitBias = map[int32]float32{10: 1} }},
		{[]string{"top log-probs", "21"}, func(p *Params) { p.LogProbs, p.TopLogProbs = true, 21 }},
		{[]string{"top log-probs", "set log-probs"}, func(p *Params) { p.TopLogProbs = 2 }},
	} {
		p := Default()
		c.set(&p)
		_, err := NewSampler(p, 10)
		for _, w := range c.want {
			if err == nil || !strings.HasPrefix(err.Error(), "sample: ") || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: error %v lacks %q", p, err, w)
			}
		}
	}
	if _, err := NewSampler(Default(), 0); err == nil {
		t.Error("empty vocabulary accepted")
	}
	if err := errors.Join(Default().Validate(), Greedy().Validate()); err != nil {
		t.Error(err)
	}
}

func TestBadLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, p := range []Params{Greedy(), Default()} {
		s := newSampler(t, p, 130)
		for _, at := range []int{0, 1, 63, 64, 127, 128, 129} {
			for _, v := range []float32{nan, inf} {
				row := make([]float32, 130)
				row[at] = v
				if _, err := s.Next(row); !errors.Is(err, ErrLogit) {
					t.Errorf("token %d is %v: %v", at, v, err)
				}
			}
		}
		row := slices.Repeat([]float32{-inf}, 130)
		if _, err := s.Next(row); !errors.Is(err, ErrNoToken) {
			t.Errorf("all -Inf: %v", err)
		}
		row[77] = -math.MaxFloat32
		if tok, err := s.Next(row); err != nil || tok != 77 {
			t.Errorf("one possible token: %d, %v", tok, err)
		}
		if _, err := s.Next(row[:129]); err == nil {
			t.Error("a short row was accepted")
		}
	}
}

// TestExtremes: the impossible stays impossible, and the largest floats stay finite under edits.
func TestExtremes(t *testing.T) {
	ninf := float32(math.Inf(-1))
	row := []float32{math.MaxFloat32, ninf, -math.MaxFloat32, 0}
	p := Default()
	p.RepetitionPenalty, p.PresencePenalty = 0.01, 2
	p.LogitBias = map[int32]float32{1: 100}
	for _, temperature := range []float32{0, math.SmallestNonzeroFloat32, 1, math.MaxFloat32} {
		p.Temperature = temperature
		for seed := range uint64(50) {
			p.Seed = seed
			s := newSampler(t, p, 4)
			for tok := range int32(4) {
				s.Observe(tok)
			}
			tok, err := s.Next(row)
			if err != nil || tok == 1 {
				t.Fatalf("temperature %v: token %d, %v", temperature, tok, err)
			}
			if temperature <= 1 && tok != 0 {
				t.Fatalf("temperature %v: token %d", temperature, tok)
			}
		}
	}
}

// TestReproducesInAnyOrder: what other requests draw in between, and where a request was interrupted, doesn't
// matter.
func TestReproducesInAnyOrder(t *testing.T) {
	const n = 40
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = textLike(500, uint64(i))
	}
	p := Default()
	p.Seed, p.TopP, p.FrequencyPenalty = 99, 0.95, 0.3
	alone := func(s *Sampler, from int, out []int32) []int32 {
		for i := from; i < n; i++ {
			tok, err := s.Next(rows[i])
			if err != nil {
				t.Fatal(err)
			}
			s.Observe(tok)
			out = append(out, tok)
		}
		return out
	}
	want := alone(newSampler(t, p, 500), 0, nil)
	if len(slices.Compact(slices.Clone(want))) < n/2 {
		t.Fatalf("a dull example: %v", want)
	}
	other := p
	other.Seed, other.RepetitionPenalty, other.LogitBias = 5, 1.2, map[int32]float32{1: 10}
	s := newSampler(t, other, 500) // a buffer that another request used before
	alone(s, 0, nil)
	if err := s.Reset(p); err != nil {
		t.Fatal(err)
	}
	if got := alone(s, 0, nil); !slices.Equal(got, want) {
		t.Errorf("after Reset %v, want %v", got, want)
	}
	s = newSampler(t, p, 500) // resumed in the middle
	for _, tok := range want[:17] {
		s.Observe(tok)
	}
	if got := alone(s, 17, slices.Clone(want[:17])); !slices.Equal(got, want) {
		t.Errorf("resumed %v, want %v", got, want)
	}
	p.Seed++
	if got := alone(newSampler(t, p, 500), 0, nil); slices.Equal(got, want) {
		t.Error("another seed gives the same text")
	}
}

func TestLogProbs(t *testing.T) {
	p := Default()
	p.LogProbs, p.TopLogProbs, p.TopK = true, 5, 3
	p.LogitBias = map[int32]float32{4: 50} // must not show in log-probabilities
	row := textLike(1000, 4)
	row[900], row[20], row[333] = 30, 30, float32(math.Inf(-1))
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x))
	}
	s := newSampler(t, p, len(row))
	tok, err := s.Next(row)
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(row[tok]) - math.Log(sum); math.Abs(float64(s.LogProb())-want) > 1e-5 {
		t.Errorf("log-probability %v, want %v", s.LogProb(), want)
	}
	top := s.TopLogProbs()
	if len(top) != 5 || top[0].Token != 20 || top[1].Token != 900 {
		t.Fatalf("top %v: want tokens 20 and 900, which tie, then three more", top)
	}
	for i, e := range top {
		want := float64(row[e.Token]) - math.Log(sum)
		if math.Abs(float64(e.LogProb)-want) > 1e-5 || i > 0 && top[i-1].LogProb < e.LogProb {
			t.Errorf("top %d: %v, want %v", i, e, want)
		}
	}
	better := 0
	for _, x := range row {
		if x > row[top[4].Token] {
			better++
		}
	}
	if better > 4 {
		t.Errorf("%d tokens are likelier than the fifth of the top", better)
	}
	p = Greedy()
	p.LogProbs, p.TopLogProbs = true, 20
	s = newSampler(t, p, 3)
	if _, err := s.Next([]float32{float32(math.Inf(-1)), 1, 1}); err != nil || len(s.TopLogProbs()) != 2 {
		t.Errorf("top of two possible tokens: %v, %v", s.TopLogProbs(), err)
	}
}

func TestObserveRejects(t *testing.T) {
	s := newSampler(t, Default(), 10)
	for _, tok := range []int32{-1, 10} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("token %d observed", tok)
				}
			}()
			s.Observe(tok)
		}()
	}
}

// TestReserve: with room for the whole output, no token allocates, also not the first of its kind; and the sampler
// forgets one request's tokens when it is reset for the next.
func TestReserve(t *testing.T) {
	const vocab, tokens = 5000, 800
	p := Default()
	p.RepetitionPenalty, p.LogProbs, p.TopLogProbs = 1.3, true, 4
	p.LogitBias = map[int32]float32{3: 1, 7: -1}
	row := textLike(vocab, 2)
	s := newSampler(t, p, vocab)
	s.Reserve(tokens)
	if _, err := s.Next(row); err != nil {
		t.Fatal(err)
	}
	next := int32(0)
	if n := testing.AllocsPerRun(tokens-1, func() {
		s.Observe(next)
		if _, err := s.Next(row); err != nil {
			t.Fatal(err)
		}
		next += 3
	}); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
	if err := s.Reset(p); err != nil {
		t.Fatal(err)
	}
	fresh := newSampler(t, p, vocab)
	for i := range int32(50) {
		a, err := s.Next(row)
		b, err2 := fresh.Next(row)
		if a != b || err != nil || err2 != nil {
			t.Fatalf("token %d: %d after a Reset, %d by a new sampler, %v, %v", i, a, b, err, err2)
		}
		s.Observe(i % 7)
		fresh.Observe(i % 7)
	}
	s.Reserve(-1)
	s.Reserve(10 * vocab)
}

func TestNextDoesNotAllocate(t *testing.T) {
	row := textLike(50000, 2)
	p := Default()
	p.TopK, p.TopP, p.MinP, p.RepetitionPenalty, p.LogProbs, p.TopLogProbs = 300, 0.95, 0.001, 1.1, true, 5
	p.LogitBias = map[int32]float32{3: 1}
	for _, p := range []Params{p, Greedy(), Default()} {
		s := newSampler(t, p, len(row))
		for i := range int32(200) {
			s.Observe(i)
		}
		step := func() {
			tok, err := s.Next(row)
			if err != nil {
				t.Fatal(err)
			}
			s.Observe(tok % 200)
		}
		step()
		if n := testing.AllocsPerRun(50, step); n != 0 {
			t.Errorf("%+v: %v allocations per token", p, n)
		}
	}
}
