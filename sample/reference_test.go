package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive is the definition in doc.go, in float64, by sorting: the ids that are kept and their probabilities, by
// id. near is set if a filter's border lies so close to a token that rounding may decide.
func naive(p Params, logits []float32, outputs []int32) (ids []int32, probs []float64, near bool) {
	x := make([]float64, len(logits))
	for i, v := range logits {
		x[i] = float64(v)
	}
	for tok, b := range p.LogitBias {
		x[tok] += float64(b)
	}
	counts := map[int32]int{}
	for _, tok := range outputs {
		counts[tok]++
	}
	for tok, n := range counts {
		if x[tok] > 0 {
			x[tok] /= float64(p.RepetitionPenalty)
		} else {
			x[tok] *= float64(p.RepetitionPenalty)
		}
		x[tok] -= float64(n)*float64(p.FrequencyPenalty) + float64(p.PresencePenalty)
	}
	order := make([]int32, len(x))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(x[b], x[a]) })
	if p.Temperature == 0 {
		return order[:1], []float64{1}, len(order) > 1 && x[order[0]] != x[order[1]] && x[order[0]]-x[order[1]] < 1e-4
	}
	weight := func(tok int32) float64 { return math.Exp((x[tok] - x[order[0]]) / float64(p.Temperature)) }
	// unsure: the cut before rank i runs through near equals that float32 edits can reorder
	unsure := func(i int) bool {
		if i >= len(order) || x[order[i-1]]-x[order[i]] >= 1e-4 {
			return false
		}
		for tok := range x {
			edited := counts[int32(tok)] > 0 || p.LogitBias[int32(tok)] != 0
			if edited && math.Abs(x[tok]-x[order[i]]) < 1e-4 {
				return true
			}
		}
		return false
	}
	keep := len(order)
	for keep > 1 && weight(order[keep-1]) < float64(p.MinP) {
		keep--
	}
	for _, tok := range order {
		// float32 edits of logits up to 30 are off by 30·2^-24 each; three of them, over the temperature
		tol := 1e-5/float64(p.Temperature) + 1e-9
		if p.MinP > 0 && math.Abs(weight(tok)/float64(p.MinP)-1) < tol {
			near = true
		}
	}
	if p.TopK > 0 && p.TopK < keep {
		keep = p.TopK
		near = near || unsure(keep)
	}
	total := 0.0
	for _, tok := range order[:keep] {
		total += weight(tok)
	}
	if p.TopP < 1 {
		sum := 0.0
		for i, tok := range order[:keep] {
			sum += weight(tok)
			near = near || math.Abs(sum/total-float64(p.TopP)) < 1e-6
			if sum >= float64(p.TopP)*total {
				keep, total = i+1, sum
				near = near || unsure(keep)
				break
			}
		}
	}
	ids = slices.Clone(order[:keep])
	slices.Sort(ids)
	for _, tok := range ids {
		probs = append(probs, weight(tok)/total)
	}
	return ids, probs, near
}

// randomCase makes parameters and logits of every awkward kind: few distinct values, -Inf, huge and tiny.
func randomCase(rng *rand.Rand) (Params, []float32, []int32) {
	pick := func(vs ...float32) float32 { return vs[rng.IntN(len(vs))] }
	vocab := []int{1, 2, 63, 64, 65, 129, 700, 5000}[rng.IntN(8)]
	p := Params{
		Temperature: pick(0, 0.3, 1, 1, 1.7, 40), TopK: []int{0, 0, 1, 2, 40, 64, 699, 9999}[rng.IntN(8)],
		TopP: pick(1, 1, 0.01, 0.5, 0.9, 0.999), MinP: pick(0, 0, 0.02, 0.5, 1),
		RepetitionPenalty: pick(1, 1, 1.3, 0.8), FrequencyPenalty: pick(0, 0, 0.5, -0.25),
		PresencePenalty: pick(0, 0, 1.5), Seed: rng.Uint64(), LogitBias: map[int32]float32{},
	}
	for range rng.IntN(3) {
		p.LogitBias[int32(rng.IntN(vocab))] = pick(-100, 3, 100)
	}
	outputs := make([]int32, rng.IntN(50))
	for i := range outputs {
		outputs[i] = int32(rng.IntN(vocab))
	}
	row := make([]float32, vocab)
	kind := rng.IntN(5)
	for i := range row {
		switch kind {
		case 0:
			row[i] = float32(rng.NormFloat64() * 3)
		case 1:
			row[i] = float32(rng.IntN(3)) / 2 // ties
		case 2:
			row[i] = pick(0, float32(math.Copysign(0, -1)))
		case 3:
			row[i] = float32(rng.NormFloat64() * 8)
			if rng.IntN(2) == 0 {
				row[i] = float32(math.Inf(-1))
			}
		case 4:
			row[i] = -float32(rng.ExpFloat64() * 4)
			if rng.IntN(3) == 0 {
				row[i] = -6e4
			}
		}
	}
	row[rng.IntN(vocab)] = 2 // never all -Inf
	return p, row, outputs
}

// TestAgainstNaive draws with a grid of numbers and compares each token with the inverse of the naive
// distribution. Numbers within 1e-4 of a step are skipped: the edits are made in float32.
func TestAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	compared := 0
	for n := range 2000 {
		p, row, outputs := randomCase(rng)
		ids, probs, near := naive(p, row, outputs)
		s, err := NewSampler(p, len(row))
		if err != nil {
			t.Fatal(err)
		}
		for _, tok := range outputs {
			s.Observe(tok)
		}
		before := slices.Clone(row)
		if tok, err := s.Next(row); err != nil {
			t.Fatal(err)
		} else if !near && !slices.Contains(ids, tok) {
			t.Fatalf("case %d: Next chose %d, which is not kept", n, tok)
		}
		if !slices.EqualFunc(row, before, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Fatalf("case %d: Next changed the logits", n)
		}
		if near {
			continue
		}
		compared++
		for range 20 {
			u := rng.Float64()
			sum, want, skip := 0.0, int32(-1), false
			for i, pr := range probs {
				sum += pr
				skip = skip || math.Abs(sum-u) < 1e-4
				if want < 0 && u < sum {
					want = ids[i]
				}
			}
			if want < 0 || skip {
				continue
			}
			_ = s.scan(row)
			s.applyEdits(row)
			got := s.choose(row, u)
			s.undoEdits(row)
			if got != want {
				t.Fatalf("case %d: %+v, vocab %d: u=%v gives token %d, want %d of %v", n, p, len(row), u, got, want, len(ids))
			}
		}
	}
	if compared < 1400 {
		t.Errorf("only %d of 2000 cases were compared", compared)
	}
}

// TestKeptSetAtFullVocabulary checks the cut itself, not draws, where lists overflow and blocks are skipped.
func TestKeptSetAtFullVocabulary(t *testing.T) {
	const vocab = 60000
	flat := make([]float32, vocab)
	two := make([]float32, vocab)
	for i := range two {
		two[i] = float32(i % 2)
	}
	text := textLike(vocab, 3)
	masked := slices.Clone(text)
	for i := range masked {
		if i%7 != 0 {
			masked[i] = float32(math.Inf(-1))
		}
	}
	for name, row := range map[string][]float32{"text": text, "flat": flat, "two": two, "masked": masked} {
		for _, p := range []Params{
			{Temperature: 1, TopK: 40, TopP: 1}, {Temperature: 1, TopK: 900, TopP: 1}, {Temperature: 1, TopK: 5000, TopP: 0.9},
			{Temperature: 1, TopK: vocab - 1, TopP: 1}, {Temperature: 1, TopP: 0.3}, {Temperature: 9, TopP: 0.7},
			{Temperature: 2, TopP: 0.95, MinP: 0.01}, {Temperature: 1, TopP: 1, MinP: 0.3}, {Temperature: 50, TopK: 30000, TopP: 0.5, MinP: 0.6},
		} {
			p.RepetitionPenalty = 1
			ids, _, near := naive(p, row, nil)
			s, err := NewSampler(p, vocab)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Next(row); err != nil {
				t.Fatal(err)
			}
			var kept []int32
			for i, x := range row {
				if s.last.keeps(key(x), int32(i)) {
					kept = append(kept, int32(i))
				}
			}
			if near {
				continue
			}
			if diff := len(kept) - len(ids); diff != 0 && !(name == "flat" && p.TopP < 1 && diff*diff <= 1) {
				t.Errorf("%s %+v: %d tokens kept, want %d", name, p, len(kept), len(ids))
			} else if diff == 0 && !slices.Equal(kept, ids) {
				t.Errorf("%s %+v: other tokens kept", name, p)
			}
		}
	}
}

// TestChiSquare: the tokens of one request follow the distribution. 20,000 draws with fixed seeds; a right
// sampler exceeds the bound (Wilson and Hilferty's approximation of the 1-1e-4 quantile) for one seed in 10,000.
func TestChiSquare(t *testing.T) {
	row := textLike(300, 8)
	for i := range row {
		row[i] /= 3 // so that every kept token is drawn often
	}
	p := Default()
	p.TopK, p.TopP, p.Temperature = 50, 0.97, 1.2
	ids, probs, _ := naive(p, row, nil)
	for name, draw := range map[string]func(s *Sampler, n int){
		"tokens of one seed":   func(s *Sampler, n int) { s.count = uint64(n) },
		"first token of seeds": func(s *Sampler, n int) { s.p.Seed = uint64(n) },
	} {
		s, err := NewSampler(p, len(row))
		if err != nil {
			t.Fatal(err)
		}
		const draws = 20000
		seen := map[int32]int{}
		for n := range draws {
			draw(s, n)
			tok, err := s.Next(row)
			if err != nil {
				t.Fatal(err)
			}
			seen[tok]++
		}
		chi, total := 0.0, 0
		for i, id := range ids {
			want := probs[i] * draws
			if want < 5 {
				t.Fatalf("token %d is expected only %.1f times", id, want)
			}
			chi += (float64(seen[id]) - want) * (float64(seen[id]) - want) / want
			total += seen[id]
		}
		if total != draws {
			t.Errorf("%s: %d draws of dropped tokens", name, draws-total)
		}
		df := float64(len(ids) - 1)
		h := 2 / (9 * df)
		if bound := df * math.Pow(1-h+3.719*math.Sqrt(h), 3); chi > bound || len(ids) < 20 {
			t.Errorf("%s: chi-square %.1f of %d tokens, bound %.1f", name, chi, len(ids), bound)
		}
	}
}
