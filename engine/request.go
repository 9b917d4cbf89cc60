package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flashdecode/flashdecode/sample"
)

var (
	// ErrClosed ends streams whose engine was closed.
	ErrClosed = errors.New("engine: closed")
	// ErrTooLong refuses a prompt that no amount of waiting would fit.
	ErrTooLong = errors.New("engine: prompt does not fit")
	// ErrCacheFull ends a stream that alone needs more pages than the cache has.
	ErrCacheFull = errors.New("engine: KV cache full")
)

// Request is one sequence to generate.
type Request struct {
	Prompt    []int32
	MaxTokens int     // most tokens to generate; 0: until the context is full
	Stop      []int32 // tokens that end the stream and are not delivered
	Params    sample.Params
	Salt      string // sequences share cached prefixes only with sequences of the same salt
}

// Reason says why a stream ended.
type Reason uint8

const (
	NotDone   Reason = iota
	Stopped          // a stop token
	Length           // MaxTokens
	Context          // the model's context or the cache is full
	Cancelled        // the caller's context
	Failed           // an error
)

var reasonNames = [...]string{"", "stop", "length", "context", "cancelled", "error"}

func (r Reason) String() string { return reasonNames[r] }

// Token is one generated token.
type Token struct {
	ID      int32
	LogProb float32   // natural log of the model's probability, if Params.LogProbs asks for it
	Index   int       // number of tokens generated before it
	Time    time.Time // when it was chosen: a reader may see it later
}

// Stream delivers the tokens of one request.
type Stream struct {
	e      *Engine
	tokens chan Token
	err    error  // valid once tokens is closed
	reason Reason // likewise

	prompt   int
	reused   atomic.Int64
	computed atomic.Int64
}

// Next returns the next token. false means that the stream has ended: Err and Reason say why.
func (s *Stream) Next() (Token, bool) {
	t, ok := <-s.tokens
	s.resume(ok)
	return t, ok
}

// Poll is Next with a limit: waited is true if nothing came for that long.
func (s *Stream) Poll(limit time.Duration) (t Token, ok, waited bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t, ok = <-s.tokens:
		s.resume(ok)
		return t, ok, false
	case <-timer.C:
		return Token{}, false, true
	}
}

// resume tells the engine that a stream which was full has room again: it may have paused the sequence.
func (s *Stream) resume(received bool) {
	if received && len(s.tokens) == cap(s.tokens)-1 {
		s.e.signal()
	}
}

// Err is what ended the stream, nil for a regular end. Valid after Next has returned false.
func (s *Stream) Err() error { return s.err }

// Reason is why the stream ended. Valid after Next has returned false.
func (s *Stream) Reason() Reason { return s.reason }

// Progress returns how many tokens of the prompt are in the cache, how many of those were found there, and how many
// there are. It may be called at any time.
func (s *Stream) Progress() (computed, reused, total int) {
	return min(int(s.computed.Load()), s.prompt), int(s.reused.Load()), s.prompt
}

// streamBuffer is how many tokens a stream holds for a reader that is slower than the model. A full stream is not
// scheduled until its reader catches up; the others go on.
const streamBuffer = 128

// Submit queues a request. The stream ends early, with the cause as its error, when ctx is done.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	if err := e.checkRequest(&r); err != nil {
		return nil, err
	}
	sampler, err := sample.NewSampler(r.Params, e.opts.Vocab)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	limit := e.opts.Context - len(r.Prompt)
	if r.MaxTokens > 0 {
		limit = min(limit, r.MaxTokens)
	}
	sampler.Reserve(limit)
	s := &sequence{
		ctx: ctx, req: r, limit: limit, sampler: sampler, refused: -1, space: -1,
		tokens: append(make([]int32, 0, len(r.Prompt)+limit), r.Prompt...),
		stream: &Stream{e: e, tokens: make(chan Token, streamBuffer), prompt: len(r.Prompt)},
	}
	s.unhook = context.AfterFunc(ctx, e.signal) // before the loop can see s
	e.mu.Lock()
	closed := e.closing
	if !closed {
		e.inbox = append(e.inbox, s)
	}
	e.mu.Unlock()
	if closed {
		s.unhook()
		return nil, ErrClosed
	}
	e.signal()
	return s.stream, nil
}

func (e *Engine) checkRequest(r *Request) error {
	n := len(r.Prompt)
	switch {
	case n == 0:
		return errors.New("engine: empty prompt")
	case r.MaxTokens < 0:
		return fmt.Errorf("engine: max tokens of %d is negative", r.MaxTokens)
	case n >= e.opts.Context:
		return fmt.Errorf("%w: %d tokens in a context of %d, which must leave room for one more", ErrTooLong, n, e.opts.Context)
	case e.pool.PagesFor(n+1) > e.pool.Pages():
		return fmt.Errorf("%w: %d tokens need %d pages, the cache has %d", ErrTooLong, n, e.pool.PagesFor(n+1), e.pool.Pages())
	}
	for i, t := range r.Prompt {
		if t < 0 || int(t) >= e.opts.Vocab {
			return fmt.Errorf("engine: token %d at %d of the prompt is not in the vocabulary of %d", t, i, e.opts.Vocab)
		}
	}
	return nil
}
