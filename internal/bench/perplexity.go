package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/simd/vec"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Perplexity is exp of the mean negative log-probability of the scored tokens.
type Perplexity struct {
	Perplexity float64 `json:"perplexity"`
	Stderr     float64 `json:"stderr"` // of Perplexity, from the spread of the tokens' log-probabilities
	NLL        float64 `json:"nll"`    // mean, natural
	Scored     int     `json:"scored_tokens"`
	Chunks     int     `json:"chunks"`
}

// PerplexityLogits is how many rows' logits a Runner for Perplexity should have room for: a few, because large
// vocabularies make them large.
const PerplexityLogits = 64

// ErrShort says that a text has too few tokens to be scored.
var ErrShort = errors.New("bench: text too short")

// Perplexity scores tokens by llama.cpp's convention: the text is cut into chunks of window tokens; each begins with bos
// in place of its first token, unless bos is tokenizer.None; the tokens from window/2+1 on are scored, so that each has
// half a chunk or more before it. A rest that fills no chunk is left out, and less than two chunks is ErrShort.
// progress, which may be nil, is called after each chunk with the perplexity so far.
func (r *Runner) Perplexity(ctx context.Context, kv quant.Type, tokens []int32, window int, bos int32, progress func(done, total int, sofar float64)) (p Perplexity, err error) {
	if window < 4 || window > r.Model.Context {
		return p, fmt.Errorf("bench: chunks of %d tokens: want 4 to the model's context, %d", window, r.Model.Context)
	}
	if len(tokens) < 2*window {
		return p, fmt.Errorf("%w: %d tokens, want at least two chunks of %d", ErrShort, len(tokens), window)
	}
	c, err := r.NewCache(kv, 1, window)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s := scorer{c: c, bos: bos, chunk: make([]int32, window), nll: make([]float64, r.opts.MaxLogits), vec: vec.New(simd.Detect())}
	chunks := len(tokens) / window
	for i := range chunks {
		copy(s.chunk, tokens[i*window:])
		if err := s.score(ctx); err != nil {
			return p, err
		}
		if p = s.result(i + 1); progress != nil {
			progress(i+1, chunks, p.Perplexity)
		}
	}
	return p, nil
}

// scorer sums up log-probabilities.
type scorer struct {
	c      *Cache
	bos    int32
	chunk  []int32
	nll    []float64 // of a step's rows
	vec    *vec.Kernels
	sum    float64
	sumSq  float64
	scored int
}

// score scores the second half of the chunk.
func (s *scorer) score(ctx context.Context) error {
	if s.bos != tokenizer.None {
		s.chunk[0] = s.bos
	}
	s.c.Truncate(0)
	half := len(s.chunk) / 2
	for done := 0; done < half; {
		n := min(half-done, s.c.r.opts.Chunk)
		if err := s.c.Step(ctx, 0, 1, s.chunk[done:done+n], 0); err != nil {
			return err
		}
		done += n
	}
	// The row of token i gives the probability of token i+1, so the last token needs no row.
	for done := half; done < len(s.chunk)-1; {
		n := min(len(s.chunk)-1-done, s.c.r.opts.MaxLogits, s.c.r.opts.Chunk)
		if err := s.c.Step(ctx, 0, 1, s.chunk[done:done+n], n); err != nil {
			return err
		}
		s.rows(s.chunk[done+1 : done+1+n])
		done += n
	}
	return nil
}

// rows adds the log-probabilities of targets under the rows of logits.
func (s *scorer) rows(targets []int32) {
	vocab := s.c.r.Model.Vocab
	var wg sync.WaitGroup
	const parts = 4
	for p := range parts {
		wg.Go(func() {
			for i := p; i < len(targets); i += parts {
				s.nll[i] = s.row(s.c.Logits[i*vocab:(i+1)*vocab], targets[i])
			}
		})
	}
	wg.Wait()
	for _, x := range s.nll[:len(targets)] {
		s.sum += x
		s.sumSq += x * x
	}
	s.scored += len(targets)
}

// row is -log softmax(logits)[target]; logits are overwritten. The exponentials are float32, good to a few units of
// rounding each, and their sum float64, so the result is good to about 1e-6.
func (s *scorer) row(logits []float32, target int32) float64 {
	at, top := float64(logits[target]), s.vec.Max(logits)
	for i := range logits {
		logits[i] -= top
	}
	s.vec.Exp(logits, logits)
	sum := 0.0
	for _, e := range logits {
		sum += float64(e)
	}
	return math.Log(sum) + float64(top) - at
}

func (s *scorer) result(chunks int) Perplexity {
	n := float64(s.scored)
	mean := s.sum / n
	p := Perplexity{Perplexity: math.Exp(mean), NLL: mean, Scored: s.scored, Chunks: chunks}
	if v := s.sumSq/n - mean*mean; v > 0 && n > 1 {
		p.Stderr = math.Sqrt(v/(n-1)) * p.Perplexity
	}
	return p
}
