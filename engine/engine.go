package engine

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/flashdecode/flashdecode/kvcache"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
)

// Model is a forward pass, as *model.Model has it.
type Model interface {
	// Forward writes the keys and values of the batch to kv and the logits of the rows named in rows to logits,
	// [len(rows), vocabulary].
	Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error
}

// Options are the sizes of an engine. All but Policy and NoPrefixCache are required.
type Options struct {
	Vocab         int
	Context       int // most tokens of a sequence, prompt included
	MaxRows       int // most rows of a step
	MaxSeqs       int // most sequences that run at once
	Policy        plan.Policy
	NoPrefixCache bool
}

func (o *Options) check(kv ops.KVLayout) error {
	switch {
	case o.Vocab < 1 || o.Context < 2 || o.MaxRows < 1 || o.MaxSeqs < 1:
		return fmt.Errorf("engine: vocabulary %d, context %d, rows %d, sequences %d: all must be positive", o.Vocab, o.Context, o.MaxRows, o.MaxSeqs)
	case o.MaxSeqs > o.MaxRows:
		return fmt.Errorf("engine: %d sequences can't decode in steps of %d rows", o.MaxSeqs, o.MaxRows)
	case kv.Ranges > 0 && kv.Ranges < o.MaxSeqs:
		return fmt.Errorf("engine: %d sequences in a flat cache of %d address ranges", o.MaxSeqs, kv.Ranges)
	case kv.Pages < 1 || kv.PageSize < 1:
		return fmt.Errorf("engine: cache of %d pages of %d tokens", kv.Pages, kv.PageSize)
	}
	return nil
}

// Stats counts what an engine has done.
type Stats struct {
	Steps, Rows, Decoded  int64 // forward passes, their rows, tokens generated
	Preemptions, Finished int64 // times that a sequence lost its pages; streams that ended, for whatever reason
	Running, Waiting      int
	Cache                 kvcache.Stats
}

// Engine schedules sequences. Make one with New.
type Engine struct {
	model Model
	kv    ops.KV
	opts  Options
	pool  *kvcache.Pool

	binder ops.Binder // of a flat cache, else nil
	spaces []int32    // its address ranges that no sequence has

	waiting []*sequence // in the order in which they will be admitted
	running []*sequence // oldest first
	batch   ops.Batch
	part    []*sequence // the sequences of the batch
	changed bool        // schedule ended or preempted a sequence
	wanted  []int32     // rows whose logits are sampled
	logits  []float32
	broken  error // why the engine can't go on

	mu     sync.Mutex
	inbox  []*sequence
	closed error // what Submit returns and streams end with once the engine closes
	stats  Stats
	wake   chan struct{}
	done   chan struct{}
}

// New starts an engine on a model and its cache, which it owns until Close has returned.
func New(m Model, kv ops.KV, o Options) (*Engine, error) {
	layout := kv.Layout()
	if err := o.check(layout); err != nil {
		return nil, err
	}
	pool, err := kvcache.NewPool(layout.Pages, layout.PageSize)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		model: m, kv: kv, opts: o, pool: pool,
		logits: make([]float32, o.MaxSeqs*o.Vocab),
		wake:   make(chan struct{}, 1), done: make(chan struct{}),
	}
	if e.binder, _ = kv.(ops.Binder); e.binder != nil {
		for i := range layout.Ranges {
			e.spaces = append(e.spaces, int32(i))
		}
	}
	e.reserve(layout)
	go e.loop()
	return e, nil
}

// reserve makes the arrays of a step large enough for any, so that no step allocates.
func (e *Engine) reserve(l ops.KVLayout) {
	o := &e.opts
	pages := min(l.Pages*2, o.MaxSeqs*((o.Context+l.PageSize-1)/l.PageSize+1)) // shared pages count once per sequence
	e.batch = ops.Batch{
		Tokens: make([]int32, 0, o.MaxRows), Positions: make([]int32, 0, o.MaxRows),
		QIndptr: make([]int32, 0, o.MaxSeqs+1), KVLens: make([]int32, 0, o.MaxSeqs),
		PageIndptr: make([]int32, 0, o.MaxSeqs+1), PageIndices: make([]int32, 0, pages), Ranges: make([]int32, 0, o.MaxSeqs),
		Policy: o.Policy,
	}
	e.part = make([]*sequence, 0, o.MaxSeqs)
	e.wanted = make([]int32, 0, o.MaxSeqs)
	e.running = make([]*sequence, 0, o.MaxSeqs)
}

// signal wakes the loop if it sleeps.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Close ends all streams and waits for the step under way. The model and the cache are the caller's again.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.closed == nil {
		e.closed = ErrClosed
	}
	e.mu.Unlock()
	e.signal()
	<-e.done
}

// loop is the goroutine that owns everything.
func (e *Engine) loop() {
	defer close(e.done)
	for e.receive() {
		e.drop()
		switch {
		case e.broken != nil: // an address range is missing: nothing may be admitted
		case e.schedule():
			e.step()
			e.publish()
			// The backend's workers spin on all processors, so without this readers would wait for the scheduler to
			// preempt somebody, and tokens arrive in bursts of 10 ms.
			runtime.Gosched()
		case !e.changed:
			e.publish() // sequences that were dropped run no more
			e.sleep()
		}
	}
	e.finishAll()
	e.publish()
}

// restAfter is how long nothing is asked of an engine before it gives free pages back to the system. The next sequence
// pays for getting them again, so it is longer than the pause between two requests of a busy caller.
const restAfter = 500 * time.Millisecond

// sleep waits for a signal.
func (e *Engine) sleep() {
	if len(e.running)+len(e.waiting) == 0 {
		timer := time.NewTimer(restAfter)
		defer timer.Stop()
		select {
		case <-e.wake:
			return
		case <-timer.C:
			e.giveBack()
		}
	}
	<-e.wake
}

// giveBack returns the memory of all free pages to the system. Cached ones keep theirs.
func (e *Engine) giveBack() {
	var pages []int32
	e.pool.EachFree(func(page int32, n int) {
		for i := range int32(n) {
			pages = append(pages, page+i)
		}
	})
	_ = e.kv.Release(pages) // a system that refuses keeps the memory, and that is all
}

// receive moves submitted sequences to the queue; false means that the engine closes.
func (e *Engine) receive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, e.inbox...)
	e.inbox = e.inbox[:0]
	e.stats.Waiting = len(e.waiting)
	if e.broken != nil && e.closed == nil {
		e.closed = fmt.Errorf("%w: %w", ErrClosed, e.broken)
	}
	return e.closed == nil
}

func (e *Engine) publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running, e.stats.Waiting, e.stats.Cache = len(e.running), len(e.waiting), e.pool.Stats()
}

// count changes a counter.
func (e *Engine) count(c *int64, n int) {
	e.mu.Lock()
	*c += int64(n)
	e.mu.Unlock()
}

// finishAll ends all streams with what closed the engine. Nothing is submitted any more.
func (e *Engine) finishAll() {
	e.mu.Lock()
	all := append(append(append([]*sequence(nil), e.running...), e.waiting...), e.inbox...)
	e.inbox = nil
	err := e.closed
	e.mu.Unlock()
	for _, s := range all {
		e.release(s)
		e.finish(s, Failed, err)
	}
	e.running, e.waiting = nil, nil
}

// step runs the scheduled batch and delivers what it yields.
func (e *Engine) step() {
	err := e.model.Forward(&e.batch, e.kv, e.wanted, e.logits)
	e.count(&e.stats.Steps, 1)
	e.count(&e.stats.Rows, e.batch.Rows())
	row := 0
	for i, s := range e.part {
		if err != nil {
			e.end(s, Failed, err)
			continue
		}
		s.computed += e.batch.QLen(i)
		s.stream.computed.Store(int64(s.computed))
		if !e.opts.NoPrefixCache {
			e.pool.Commit(s.kv, s.tokens[:s.computed])
		}
		if s.computed < len(s.tokens) {
			continue // more of the prompt to come
		}
		e.sampleNext(s, e.logits[row*e.opts.Vocab:(row+1)*e.opts.Vocab])
		row++
	}
}

// sampleNext picks the next token of s and ends or extends the sequence.
func (e *Engine) sampleNext(s *sequence, logits []float32) {
	id, err := s.sampler.Next(logits)
	switch {
	case err != nil:
		e.end(s, Failed, err)
		return
	case s.stops(id):
		e.end(s, Stopped, nil)
		return
	}
	s.sampler.Observe(id)
	s.tokens = append(s.tokens, id)
	s.stream.put(id, s.sampler.LogProb())
	e.count(&e.stats.Decoded, 1)
	switch {
	case s.generated() < s.limit:
	case s.req.MaxTokens > 0 && s.limit == s.req.MaxTokens:
		e.end(s, Length, nil)
	default:
		e.end(s, Context, nil)
	}
}

// end finishes a running sequence.
func (e *Engine) end(s *sequence, r Reason, err error) {
	e.release(s)
	for i, t := range e.running {
		if t == s {
			e.running = append(e.running[:i], e.running[i+1:]...)
			break
		}
	}
	e.finish(s, r, err)
	e.changed = true
}

// release frees the pages of s. An address range that can't be emptied breaks the engine: what a sequence would read
// there is unknown.
func (e *Engine) release(s *sequence) {
	if s.kv != nil {
		e.pool.Free(s.kv)
	}
	s.computed, s.bound = 0, 0
	if s.space >= 0 {
		if err := e.binder.Unbind(s.space); err != nil {
			e.broken = fmt.Errorf("engine: address range %d: %w", s.space, err)
		} else {
			e.spaces = append(e.spaces, s.space)
		}
		s.space = -1
	}
}
