package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/sample"
)

var (
	// ErrClosed ends streams whose engine was closed, or closed itself because it could not go on.
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

// Submit queues a request. The stream ends early when ctx is done, with ctx's error and its cause, and what was not
// read by then is lost.
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
		stream: newStream(ctx, len(r.Prompt), limit),
	}
	s.unhook = context.AfterFunc(ctx, e.signal) // before the loop can see s
	e.mu.Lock()
	closed := e.closed
	if closed == nil {
		e.inbox = append(e.inbox, s)
	}
	e.mu.Unlock()
	if closed != nil {
		s.unhook()
		return nil, closed
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
