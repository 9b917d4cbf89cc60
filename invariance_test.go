package flashdecode_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/sample"
)

// ids returns n ordinary tokens.
func ids(r *rand.Rand, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(300 + r.IntN(3000))
	}
	return p
}

// generate returns the tokens of one generation.
func generate(m *flashdecode.Model, prompt []int32, opts ...flashdecode.GenerateOption) (got []flashdecode.Token, err error) {
	for tok, err := range m.GenerateTokens(context.Background(), prompt, append(opts, flashdecode.IgnoreEnd())...) {
		if err != nil {
			return got, err
		}
		got = append(got, tok)
	}
	return got, nil
}

// embedded opens the embedded model until the test ends.
func embedded(t testing.TB, opts ...flashdecode.Option) *flashdecode.Model {
	t.Helper()
	m, err := flashdecode.Embedded(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// sameTokens fails the test unless both are the same tokens with the same bits of log-probability.
func sameTokens(t *testing.T, what string, got, want []flashdecode.Token) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Errorf("%s: %d tokens, want %d", what, len(got), len(want))
			return
		}
		if got[i].ID != want[i].ID || math.Float32bits(got[i].LogProb) != math.Float32bits(want[i].LogProb) {
			t.Errorf("%s: token %d is %d (log-probability %x), want %d (%x)", what, i, got[i].ID, got[i].LogProb, want[i].ID, want[i].LogProb)
			return
		}
	}
}

// levels are the instruction sets to test: in short mode, under the race detector, only the strongest.
func levels() []simd.Level {
	if testing.Short() {
		return []simd.Level{simd.Detect()}
	}
	return simd.Levels()
}

// samplings are the ways to choose tokens that must reproduce: with every filter and penalty that reads other state.
func samplings() map[string]sample.Params {
	greedy, seeded := sample.Greedy(), sample.Default()
	greedy.LogProbs, seeded.LogProbs = true, true
	seeded.Seed, seeded.Temperature, seeded.TopK, seeded.TopP = 17, 0.9, 200, 0.98
	seeded.RepetitionPenalty, seeded.FrequencyPenalty = 1.1, 0.1
	return map[string]sample.Params{"greedy": greedy, "seeded": seeded}
}

// scene is one sequence to be watched, and the options under which it must not change.
type scene struct {
	prompt []int32
	tokens int
	base   []flashdecode.Option
	want   map[string][]flashdecode.Token
	others []int // lengths of the prompts beside it
	few    bool  // only the variants that matter most
}

func (s *scene) model(t *testing.T, opts ...flashdecode.Option) *flashdecode.Model {
	t.Helper()
	return embedded(t, append(append([]flashdecode.Option(nil), s.base...), opts...)...)
}

func (s *scene) watch(t *testing.T, what string, m *flashdecode.Model, opts ...flashdecode.GenerateOption) {
	t.Helper()
	for name, p := range samplings() {
		opts := append([]flashdecode.GenerateOption{flashdecode.MaxTokens(s.tokens), flashdecode.Sampling(p)}, opts...)
		got, err := generate(m, s.prompt, opts...)
		if err != nil {
			t.Errorf("%s, %s: %v", what, name, err)
			continue
		}
		if s.want[name] == nil {
			s.want[name] = got
			if got[0].LogProb >= 0 { // of thousands of tokens none has a probability of 1
				t.Errorf("%s, %s: log-probability %g", what, name, got[0].LogProb)
			}
		}
		sameTokens(t, what+", "+name, got, s.want[name])
	}
}

// beside runs the watched sequence among others that are generated over and over until it is done.
func (s *scene) beside(t *testing.T, what string, m *flashdecode.Model) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for i, n := range s.others {
		p := ids(rand.New(rand.NewPCG(uint64(n), 1)), n)
		others.Go(func() {
			for ctx.Err() == nil {
				for range m.GenerateTokens(ctx, p, flashdecode.MaxTokens(3+5*i), flashdecode.IgnoreEnd()) {
				}
			}
		})
	}
	s.watch(t, what, m)
	stop()
	others.Wait()
}

// TestBatchInvariance: under a fixed split a sequence's tokens and log-probabilities are the same bits alone and in a
// batch, however its prompt is cut into steps, on any number of threads, after a preemption and with a prefix from the
// cache.
func TestBatchInvariance(t *testing.T) {
	for _, level := range levels() {
		for _, repack := range []string{"on", "off"} {
			t.Run(fmt.Sprintf("%v/repack=%s", level, repack), func(t *testing.T) {
				s := scene{
					prompt: ids(testkit.Rand(t), 300), tokens: 12, others: []int{1, 5, 33, 64, 255, 257, 400},
					want: make(map[string][]flashdecode.Token),
				}
				split := "fixed:256"
				if level == simd.Generic { // a hundred times slower
					s.prompt, s.tokens, split, s.others, s.few = s.prompt[:21], 2, "fixed:16", []int{1, 9}, true
				}
				s.base = []flashdecode.Option{
					flashdecode.Split(split), flashdecode.Instructions(level.String()), flashdecode.Repack(repack), flashdecode.Threads(2),
				}
				s.invariant(t)
			})
		}
	}
}

func (s *scene) invariant(t *testing.T) {
	n := len(s.prompt)
	plain := s.model(t, flashdecode.NoPrefixCache())
	s.watch(t, "alone", plain)
	s.beside(t, "in a batch", plain)
	if !s.few {
		for _, chunk := range []int{37, n - 1} {
			s.watch(t, fmt.Sprintf("in steps of %d", chunk), s.model(t, flashdecode.NoPrefixCache(), flashdecode.PrefillChunk(chunk)))
		}
		s.watch(t, "on 1 thread", s.model(t, flashdecode.NoPrefixCache(), flashdecode.Threads(1)))
		s.watch(t, "on 3 threads, flat", s.model(t, flashdecode.NoPrefixCache(), flashdecode.Threads(3), flashdecode.KVAddresses("flat")))
	}

	cached := s.model(t, flashdecode.PrefillChunk(8))
	var found int
	s.watch(t, "filling the cache", cached)
	s.watch(t, "from the cache", cached, flashdecode.OnDone(func(r flashdecode.Result) { found = r.ReusedTokens }))
	if found < n-32 {
		t.Errorf("the cache had %d of %d tokens: the test shows nothing", found, n)
	}
}

// TestBatchInvarianceUnderPreemption: a cache that is too small for all makes sequences lose their pages and come
// back.
func TestBatchInvarianceUnderPreemption(t *testing.T) {
	if simd.Detect() == simd.Generic {
		t.Skip("takes minutes in plain Go; TestStackInvariance does it on a smaller model")
	}
	const n, tokens = 40, 60
	m := embedded(t, flashdecode.Split("fixed:32"), flashdecode.KVTokens(160), flashdecode.PrefillChunk(24))
	alone := embedded(t, flashdecode.Split("fixed:32"), flashdecode.NoPrefixCache())
	var wg sync.WaitGroup
	for i := range 6 {
		p := ids(rand.New(rand.NewPCG(uint64(i/2), 2)), n+i)
		sampling := samplings()["seeded"]
		if i%2 == 0 {
			sampling = samplings()["greedy"]
		}
		opts := []flashdecode.GenerateOption{flashdecode.MaxTokens(tokens), flashdecode.Sampling(sampling)}
		wg.Go(func() {
			want, err := generate(alone, p, opts...)
			if err != nil {
				t.Error(err)
			}
			got, err := generate(m, p, opts...)
			if err != nil {
				t.Error(err)
			}
			sameTokens(t, fmt.Sprintf("sequence %d", i), got, want)
		})
	}
	wg.Wait()
	if m.Stats().Preemptions == 0 {
		t.Error("nobody was preempted: the test shows nothing")
	}
}

// TestBatchInvarianceOfCacheFormats: every number format of keys and values.
func TestBatchInvarianceOfCacheFormats(t *testing.T) {
	if simd.Detect() == simd.Generic {
		t.Skip("takes minutes in plain Go; TestStackInvariance does it on a smaller model")
	}
	for _, format := range []string{"f16", "bf16", "f32", "q8_0"} {
		s := scene{
			prompt: ids(testkit.Rand(t), 71), tokens: 6, others: []int{2, 40, 90}, want: make(map[string][]flashdecode.Token),
			base: []flashdecode.Option{flashdecode.Split("fixed:32"), flashdecode.KV(format), flashdecode.NoPrefixCache()},
		}
		m := s.model(t)
		s.watch(t, format+", alone", m)
		s.beside(t, format+", in a batch", m)
		s.watch(t, format+", in steps of 11", s.model(t, flashdecode.PrefillChunk(11)))
	}
}
