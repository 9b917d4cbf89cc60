package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/flashdecode/flashdecode/kvcache"
	"github.com/flashdecode/flashdecode/sample"
)

// sequence is a request under way.
type sequence struct {
	ctx     context.Context
	unhook  func() bool
	req     Request
	limit   int // most tokens to generate
	sampler *sample.Sampler
	stream  *Stream

	tokens   []int32 // prompt and what was generated
	computed int     // how many of them are in the cache
	kv       *kvcache.Seq
	space    int32 // flat cache: its address range, -1 while it has none
	bound    int   // flat cache: pages of its table that are mapped there
	refused  int   // pages that were available when it last could not be admitted; -1: never refused
}

func (s *sequence) generated() int { return len(s.tokens) - len(s.req.Prompt) }

func (s *sequence) stops(id int32) bool { return slices.Contains(s.req.Stop, id) }

// decodes reports that only the last token is missing from the cache.
func (s *sequence) decodes() bool { return s.computed == len(s.tokens)-1 }

// finish ends the stream of s, wherever s is.
func (e *Engine) finish(s *sequence, r Reason, err error) {
	e.count(&e.stats.Finished, 1)
	s.stream.end(r, err)
	if s.unhook != nil {
		s.unhook()
	}
}

// drop ends the sequences whose callers have gone.
func (e *Engine) drop() {
	for i := 0; i < len(e.running); {
		if s := e.running[i]; s.ctx.Err() != nil {
			e.end(s, Cancelled, cancelled(s.ctx))
		} else {
			i++
		}
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(s *sequence) bool {
		gone := s.ctx.Err() != nil
		if gone {
			e.finish(s, Cancelled, cancelled(s.ctx))
		}
		return gone
	})
}

// schedule fills the batch of the next step; false means that it stayed empty. Nothing is admitted in a step that
// ended or preempted a sequence: the next one has a settled picture.
func (e *Engine) schedule() bool {
	e.clearBatch()
	e.changed = false
	budget := e.opts.MaxRows
	for i := 0; i < len(e.running); i++ { // decoding first: running streams must not stutter
		if s := e.running[i]; s.decodes() && e.grow(s, 1) {
			budget -= e.add(s, 1)
		}
	}
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if s.decodes() {
			continue
		}
		if n := min(budget, len(s.tokens)-s.computed); e.grow(s, n) {
			budget -= e.add(s, n)
		}
	}
	for budget > 0 && !e.changed && len(e.waiting) > 0 && len(e.running) < e.opts.MaxSeqs {
		n := e.admit(e.waiting[0], budget)
		if n == 0 {
			break
		}
		budget -= n
	}
	return len(e.part) > 0
}

func (e *Engine) clearBatch() {
	b := &e.batch
	b.Tokens, b.Positions, b.KVLens, b.PageIndices = b.Tokens[:0], b.Positions[:0], b.KVLens[:0], b.PageIndices[:0]
	b.Ranges = b.Ranges[:0]
	b.QIndptr, b.PageIndptr = append(b.QIndptr[:0], 0), append(b.PageIndptr[:0], 0)
	e.part, e.wanted = e.part[:0], e.wanted[:0]
}

// add puts the next n tokens of s into the batch.
func (e *Engine) add(s *sequence, n int) int {
	b := &e.batch
	for i := range n {
		b.Tokens = append(b.Tokens, s.tokens[s.computed+i])
		b.Positions = append(b.Positions, int32(s.computed+i))
	}
	b.QIndptr = append(b.QIndptr, int32(len(b.Tokens)))
	b.KVLens = append(b.KVLens, int32(s.computed+n))
	b.PageIndices = append(b.PageIndices, s.kv.Table()...)
	b.PageIndptr = append(b.PageIndptr, int32(len(b.PageIndices)))
	b.Ranges = append(b.Ranges, s.space)
	e.part = append(e.part, s)
	if s.computed+n == len(s.tokens) {
		e.wanted = append(e.wanted, int32(len(b.Tokens)-1))
	}
	return n
}

// grow makes room for n more tokens of a running sequence, preempting younger sequences if it must. false means that
// s does not take part in this step.
func (e *Engine) grow(s *sequence, n int) bool {
	for {
		cp, err := e.pool.Grow(s.kv, n)
		if err == nil {
			if err = e.settle(s, cp); err != nil {
				e.end(s, Failed, err)
			}
			return err == nil
		}
		if !errors.Is(err, kvcache.ErrFull) {
			e.end(s, Failed, err)
			return false
		}
		victim := e.youngest()
		if victim == s {
			if len(e.running) == 1 {
				e.end(s, Context, ErrCacheFull)
			} else {
				e.preempt(s)
			}
			return false
		}
		e.preempt(victim)
	}
}

// settle makes the copy that the pool asked for, and maps new pages of a flat cache.
func (e *Engine) settle(s *sequence, c kvcache.Copy) error {
	if c.Tokens > 0 {
		if err := e.kv.CopyPage(c.Dst, c.Src); err != nil {
			return err
		}
		s.bound = min(s.bound, slices.Index(s.kv.Table(), c.Dst))
	}
	if e.binder == nil || s.bound == len(s.kv.Table()) {
		return nil
	}
	if s.space < 0 {
		s.space = e.spaces[len(e.spaces)-1] // there are as many as sequences may run
		e.spaces = e.spaces[:len(e.spaces)-1]
	}
	if err := e.binder.Bind(s.space, s.bound, s.kv.Table()[s.bound:]); err != nil {
		return err
	}
	s.bound = len(s.kv.Table())
	return nil
}

// youngest returns the sequence that was admitted last.
func (e *Engine) youngest() *sequence { return e.running[len(e.running)-1] }

// preempt takes all pages of s and puts it at the head of the queue. If it is in the batch already, it leaves it.
func (e *Engine) preempt(s *sequence) {
	e.removeFromBatch(s)
	e.release(s)
	e.running = slices.DeleteFunc(e.running, func(t *sequence) bool { return t == s })
	e.waiting = slices.Insert(e.waiting, 0, s)
	s.refused, e.changed = -1, true
	e.count(&e.stats.Preemptions, 1)
}

// removeFromBatch rebuilds the batch without s.
func (e *Engine) removeFromBatch(s *sequence) {
	i := slices.Index(e.part, s)
	if i < 0 {
		return
	}
	type piece struct {
		s *sequence
		n int
	}
	var rest []piece
	for j, t := range e.part {
		if j != i {
			rest = append(rest, piece{t, e.batch.QLen(j)})
		}
	}
	e.clearBatch()
	for _, p := range rest {
		e.add(p.s, p.n)
	}
}

// admit starts s with the pages that its prompt finds in the cache and up to budget rows, and returns how many rows
// it took; 0 means that it has to wait. While others run it must find room for all its tokens and leave a page for
// each of them, or it would be preempted again at once.
func (e *Engine) admit(s *sequence, budget int) int {
	if s.refused == e.pool.Available() && len(e.running) > 0 {
		return 0
	}
	if s.kv == nil {
		s.kv = e.pool.NewSeq(s.req.Salt)
		s.kv.Reserve(min(len(s.req.Prompt)+s.limit, e.opts.Context))
	}
	if !e.opts.NoPrefixCache {
		s.computed = e.pool.Lookup(s.kv, s.tokens)
	}
	rest := len(s.tokens) - s.computed
	if len(e.running) > 0 && e.pool.Need(s.kv, rest+1)+len(e.running) > e.pool.Available() {
		return e.refuse(s)
	}
	n := min(budget, rest)
	cp, err := e.pool.Grow(s.kv, n)
	if err == nil {
		err = e.settle(s, cp)
	}
	switch {
	case err == nil:
	case errors.Is(err, kvcache.ErrFull) && len(e.running) > 0:
		return e.refuse(s)
	case errors.Is(err, kvcache.ErrFull): // nothing will ever be freed: its own past has outgrown the cache
		e.abandon(s, Context, ErrCacheFull)
		return 0
	default:
		e.abandon(s, Failed, err)
		return 0
	}
	s.stream.reused.Store(int64(s.computed))
	e.waiting = slices.Delete(e.waiting, 0, 1)
	e.running = append(e.running, s)
	return e.add(s, n)
}

// refuse leaves s at the head of the queue.
func (e *Engine) refuse(s *sequence) int {
	e.release(s)
	s.refused = e.pool.Available()
	return 0
}

// abandon ends s, the head of the queue.
func (e *Engine) abandon(s *sequence, r Reason, err error) {
	e.release(s)
	e.waiting = slices.Delete(e.waiting, 0, 1)
	e.finish(s, r, err)
	e.changed = true
}
