package sample

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrLogit says that a logit is NaN or +Inf: the model's computation went wrong.
	ErrLogit = errors.New("sample: invalid logit")
	// ErrNoToken says that every logit is -Inf.
	ErrNoToken = errors.New("sample: no token is possible, every logit is -Inf")
)

// Sampler chooses the tokens of one request. It is not safe for concurrent use.
type Sampler struct {
	p     Params
	vocab int
	count uint64 // tokens observed: the index of the next one

	bias    []edit         // Params.LogitBias
	outputs []output       // what penalties apply to
	place   []int32        // [vocab] index in outputs by token, -1: none; nil without penalties
	undo    []edit         // logits before bias and penalties
	top     []TokenLogProb // [≤ TopLogProbs]
	logProb float32

	ranking
}

type edit struct {
	token int32
	value float32
}

type output struct {
	token int32
	count int32
}

// TokenLogProb is the natural logarithm of a token's probability.
type TokenLogProb struct {
	Token   int32
	LogProb float32
}

// NewSampler returns a sampler for a request whose rows have vocab logits.
func NewSampler(p Params, vocab int) (*Sampler, error) {
	if vocab < 1 || vocab > math.MaxInt32 {
		return nil, fmt.Errorf("sample: vocabulary of %d tokens: want 1 to %d", vocab, math.MaxInt32)
	}
	s := &Sampler{vocab: vocab, ranking: newRanking(vocab)}
	if err := s.Reset(p); err != nil {
		return nil, err
	}
	return s, nil
}

// Reset makes the sampler ready for another request. Its buffers are kept.
func (s *Sampler) Reset(p Params) error {
	if err := p.Validate(); err != nil {
		return err
	}
	bias := s.bias[:0]
	for tok, b := range p.LogitBias {
		if int(tok) >= s.vocab {
			return fmt.Errorf("sample: logit bias for token %d: the vocabulary has %d", tok, s.vocab)
		}
		bias = append(bias, edit{tok, b})
	}
	if s.place == nil && p.penalises() {
		s.place = make([]int32, s.vocab)
		for i := range s.place {
			s.place[i] = -1
		}
	}
	for _, o := range s.outputs {
		s.place[o.token] = -1
	}
	s.p, s.bias, s.count = p, bias, 0
	s.outputs, s.top = s.outputs[:0], s.top[:0]
	s.logProb = 0
	return nil
}

// Reserve makes room for that many tokens of output, so that neither Next nor Observe allocates before there are more.
func (s *Sampler) Reserve(tokens int) {
	n := min(max(tokens, 0), s.vocab)
	if s.p.penalises() && cap(s.outputs) < n {
		s.outputs = append(make([]output, 0, n), s.outputs...)
	} else if !s.p.penalises() {
		n = 0
	}
	if n += len(s.bias); cap(s.undo) < n {
		s.undo = make([]edit, 0, n)
	}
	if n := s.p.TopLogProbs; cap(s.top) < n {
		s.top = make([]TokenLogProb, 0, n)
	}
}

// Observe records that token was added to the output, chosen by Next or otherwise. Penalties and the random
// number of the next token depend on it.
func (s *Sampler) Observe(token int32) {
	if token < 0 || int(token) >= s.vocab {
		panic(fmt.Sprintf("sample: token %d observed, the vocabulary has %d", token, s.vocab))
	}
	s.count++
	if !s.p.penalises() {
		return
	}
	i := s.place[token]
	if i < 0 {
		i = int32(len(s.outputs))
		s.place[token] = i
		s.outputs = append(s.outputs, output{token: token})
	}
	s.outputs[i].count++
}

// Next chooses the token to follow from its logits. It writes to logits while it works and leaves them as they
// were. Without an Observe in between, the same logits give the same token.
func (s *Sampler) Next(logits []float32) (int32, error) {
	if len(logits) != s.vocab {
		return 0, fmt.Errorf("sample: %d logits, the vocabulary has %d tokens", len(logits), s.vocab)
	}
	if err := s.scan(logits); err != nil {
		return 0, err
	}
	var lse float64
	if s.p.LogProbs {
		lse = s.logSumExp(logits)
		s.likeliest(logits, lse)
	}
	s.applyEdits(logits)
	tok := s.choose(logits, uniform(s.p.Seed, s.count))
	s.undoEdits(logits)
	if s.p.LogProbs {
		s.logProb = float32(float64(logits[tok]) - lse)
	}
	return tok, nil
}

// LogProb is the log-probability of the last token that Next returned, under the logits as they came. It is 0
// unless Params.LogProbs is set.
func (s *Sampler) LogProb() float32 { return s.logProb }

// TopLogProbs lists the likeliest tokens of the last Next, the likeliest first, under the logits as they came.
// Impossible tokens are left out. It is valid until the next Next.
func (s *Sampler) TopLogProbs() []TokenLogProb { return s.top }

// applyEdits adds bias and penalties to the logits, and remembers what they were.
func (s *Sampler) applyEdits(logits []float32) {
	s.undo = s.undo[:0]
	for _, e := range s.bias {
		x := logits[e.token]
		s.undo = append(s.undo, edit{e.token, x})
		logits[e.token] = finite(x, x+e.value)
	}
	for _, o := range s.outputs {
		x := logits[o.token]
		s.undo = append(s.undo, edit{o.token, x})
		y := x
		if y > 0 {
			y /= s.p.RepetitionPenalty
		} else {
			y *= s.p.RepetitionPenalty
		}
		y -= s.p.FrequencyPenalty*float32(o.count) + s.p.PresencePenalty
		logits[o.token] = finite(x, y)
	}
	s.rescan(logits, s.undo)
}

// finite returns y, the new value of logit x, kept finite if x was: a penalty must not turn the largest floats
// into +Inf, nor forbid a token.
func finite(x, y float32) float32 {
	if math.IsInf(float64(x), -1) {
		return x
	}
	return max(-math.MaxFloat32, min(math.MaxFloat32, y))
}

// undoEdits works backwards, because a token can have both a bias and a penalty.
func (s *Sampler) undoEdits(logits []float32) {
	for i := len(s.undo) - 1; i >= 0; i-- {
		logits[s.undo[i].token] = s.undo[i].value
	}
}

// choose draws the token for the uniform number u.
func (s *Sampler) choose(logits []float32, u float64) int32 {
	if s.p.Temperature == 0 {
		return s.argmax(logits)
	}
	s.begin(logits, s.p.Temperature)
	if s.p.MinP > 0 {
		s.keepNear(-math.Log(float64(s.p.MinP)))
	}
	if s.p.TopK > 0 {
		s.keepCount(s.p.TopK)
	}
	if s.p.TopP < 1 {
		s.keepMass(float64(s.p.TopP))
	}
	return s.draw(u)
}

// logSumExp returns the natural logarithm of Σ exp(logit).
func (s *Sampler) logSumExp(logits []float32) float64 {
	s.begin(logits, 1)
	return float64(s.max) + math.Log(s.sum())
}

// likeliest fills top by insertion. Most blocks have no logit that belongs there and are not looked at.
func (s *Sampler) likeliest(logits []float32, lse float64) {
	s.top = s.top[:0]
	n := s.p.TopLogProbs
	if n == 0 {
		return
	}
	floor := float32(math.Inf(-1)) // logits must be larger
	for b, blockMax := range s.blockMax {
		if blockMax <= floor {
			continue
		}
		for i, x := range block(logits, b) {
			if x <= floor {
				continue
			}
			if len(s.top) < n {
				s.top = append(s.top, TokenLogProb{})
			}
			at := len(s.top) - 1
			for ; at > 0 && s.top[at-1].LogProb < x; at-- {
				s.top[at] = s.top[at-1]
			}
			s.top[at] = TokenLogProb{int32(b*blockSize + i), x}
			if len(s.top) == n {
				floor = s.top[n-1].LogProb
			}
		}
	}
	for i := range s.top { // until here they were logits
		s.top[i].LogProb = float32(float64(s.top[i].LogProb) - lse)
	}
}
