package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Token is one generated token.
type Token struct {
	ID      int32
	LogProb float32   // natural log of the model's probability, if Params.LogProbs asks for it
	Index   int       // number of tokens generated before it
	Time    time.Time // when it was chosen: a reader may see it later
}

// Stream delivers the tokens of one request. It has room for all of them from the beginning, so the loop never waits
// for a reader, and no reader holds pages or a place among the running sequences.
type Stream struct {
	ctx   context.Context
	begin time.Time
	news  chan struct{} // one signal, there as long as take may have something to say

	mu     sync.Mutex
	log    []event // what was generated; its capacity is the most there can be
	read   int     // how much of log was delivered
	reason Reason  // NotDone until no token will be added
	err    error

	prompt   int
	reused   atomic.Int64
	computed atomic.Int64
}

// event is a Token as a stream keeps it: without pointers, and as small as can be, for there are as many as a context
// has tokens.
type event struct {
	id      int32
	logProb float32
	at      time.Duration // since the stream began
}

func newStream(ctx context.Context, prompt, limit int) *Stream {
	return &Stream{ctx: ctx, begin: time.Now(), news: make(chan struct{}, 1), log: make([]event, 0, limit), prompt: prompt}
}

// put adds a token, unless the reader has seen the end.
func (s *Stream) put(id int32, logProb float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == NotDone {
		s.log = append(s.log, event{id, logProb, time.Since(s.begin)})
		s.signal()
	}
}

// end says that no token will come, unless the reader has seen that already.
func (s *Stream) end(r Reason, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == NotDone {
		s.reason, s.err = r, err
		s.signal()
	}
}

func (s *Stream) signal() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// take returns the next token if there is one, and whether the stream has ended if there is none.
func (s *Stream) take() (t Token, ok, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (s.reason == NotDone || s.read < len(s.log)) && s.ctx.Err() != nil {
		s.reason, s.err, s.log = Cancelled, cancelled(s.ctx), s.log[:s.read]
	}
	if s.read < len(s.log) {
		v := s.log[s.read]
		t, ok = Token{ID: v.id, LogProb: v.logProb, Index: s.read, Time: s.begin.Add(v.at)}, true
		s.read++
	}
	if s.read < len(s.log) || s.reason != NotDone {
		s.signal() // for the next reader
	}
	return t, ok, !ok && s.reason != NotDone
}

// cancelled is the error of a context that is done: its own, and what caused it if that is another.
func cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Next returns the next token. false means that the stream has ended: Err and Reason say why.
func (s *Stream) Next() (Token, bool) {
	for {
		if t, ok, ended := s.take(); ok || ended {
			return t, ok
		}
		select {
		case <-s.news:
		case <-s.ctx.Done(): // not after the step under way, but now
		}
	}
}

// Poll is Next with a limit: waited is true if nothing came for that long.
func (s *Stream) Poll(limit time.Duration) (t Token, ok, waited bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		t, ok, ended := s.take()
		if ok || ended {
			return t, ok, false
		}
		select {
		case <-s.news:
		case <-s.ctx.Done():
		case <-timer.C:
			return Token{}, false, true
		}
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
