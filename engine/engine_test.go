package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/sample"
)

func start(t testing.TB, f *fake, change func(*Options)) *Engine {
	t.Helper()
	o := Options{Vocab: fakeVocab, Context: 200, MaxRows: 24, MaxSeqs: 6}
	if change != nil {
		change(&o)
	}
	e, err := New(f, f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func submit(t testing.TB, e *Engine, p []int32, n int) *Stream {
	t.Helper()
	s, err := e.Submit(context.Background(), Request{Prompt: p, MaxTokens: n, Params: sample.Greedy()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func collect(s *Stream) (ids []int32) {
	for {
		t, ok := s.Next()
		if !ok {
			return ids
		}
		if t.Index != len(ids) {
			panic(fmt.Sprintf("token %d came with index %d", len(ids), t.Index))
		}
		ids = append(ids, t.ID)
	}
}

func drain(s *Stream) {
	for ok := true; ok; {
		_, ok = s.Next()
	}
}

// checkIdle waits until the engine has nothing left to do and reports leaked pages.
func checkIdle(t *testing.T, e *Engine) {
	t.Helper()
	e.Close()
	if st := e.pool.Stats(); st.Used != 0 {
		t.Errorf("%d pages still used", st.Used)
	}
	if len(e.running)+len(e.waiting) != 0 {
		t.Errorf("%d running, %d waiting", len(e.running), len(e.waiting))
	}
}

// TestStreams runs many sequences at once, over caches from ample to so small that sequences preempt each other, and
// compares each with what it yields alone.
func TestStreams(t *testing.T) {
	for _, pages := range []int{400, 60, 30} {
		for _, noCache := range []bool{false, true} {
			t.Run(fmt.Sprintf("pages=%d/noprefix=%v", pages, noCache), func(t *testing.T) {
				f := newFake(pages, 4)
				f.gate = make(chan struct{}) // no step before all are submitted, or they would not meet
				e := start(t, f, func(o *Options) { o.NoPrefixCache = noCache })
				var wg sync.WaitGroup
				for i := range 24 {
					p := prompt(i%5, 3+7*(i%9)) // repeated beginnings: prefixes are shared
					n := 1 + 5*(i%7)
					s := submit(t, e, p, n)
					wg.Go(func() {
						if got, want := collect(s), expect(p, n); !slices.Equal(got, want) {
							t.Errorf("sequence %d: %v, want %v (err %v)", i, got, want, s.Err())
						}
						if s.Reason() != Length || s.Err() != nil {
							t.Errorf("sequence %d ended by %v, %v", i, s.Reason(), s.Err())
						}
					})
				}
				close(f.gate)
				wg.Wait()
				st := e.Stats()
				if pages == 30 && st.Preemptions == 0 {
					t.Error("the small cache preempted nobody: the test shows nothing")
				}
				if !noCache && st.Cache.HitTokens == 0 && pages == 400 {
					t.Error("no prefix was found")
				}
				if f.most > 24 {
					t.Errorf("a step had %d rows", f.most)
				}
				checkIdle(t, e)
			})
		}
	}
}

// TestFlatCache runs sequences that preempt each other and share prefixes over a flat cache.
func TestFlatCache(t *testing.T) {
	f := newFlatFake(40, 4, 6, 50)
	f.gate = make(chan struct{}) // no step before all are submitted, or they would not meet
	e, err := New(f, f, Options{Vocab: fakeVocab, Context: 200, MaxRows: 24, MaxSeqs: 6})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 24 {
		p, n := prompt(i%5, 3+7*(i%9)), 1+5*(i%7)
		s := submit(t, e, p, n)
		wg.Go(func() {
			if got, want := collect(s), expect(p, n); !slices.Equal(got, want) {
				t.Errorf("sequence %d: %v, want %v (err %v)", i, got, want, s.Err())
			}
		})
	}
	close(f.gate)
	wg.Wait()
	if e.Stats().Preemptions == 0 {
		t.Error("nobody was preempted: the test shows nothing")
	}
	checkIdle(t, e)
	if len(e.spaces) != 6 {
		t.Errorf("%d of 6 address ranges came back", len(e.spaces))
	}
	for r := range f.places {
		for _, p := range f.places[r] {
			if p >= 0 {
				t.Errorf("page %d is still bound in range %d", p, r)
			}
		}
	}
}

// TestFreePagesAreGivenBack: an engine that has had nothing to do for a while keeps the memory of cached pages only,
// and sequences go on from what is cached.
func TestFreePagesAreGivenBack(t *testing.T) {
	f := newFake(100, 4)
	e := start(t, f, nil)
	p := prompt(1, 50)
	first := collect(submit(t, e, p, 10))
	for deadline := time.Now().Add(20 * time.Second); f.released.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was given back")
		}
	}
	if n, free := f.released.Load(), e.Stats().Cache.Free; n != int64(free) || n > 100-12 {
		t.Errorf("%d pages were given back, %d are free", n, free)
	}
	if again := collect(submit(t, e, p, 10)); !slices.Equal(again, first) {
		t.Errorf("afterwards %v, before %v", again, first)
	}
	if e.Stats().Cache.HitTokens == 0 {
		t.Error("the cache had nothing: the test shows nothing")
	}
	checkIdle(t, e)
}

func TestStopToken(t *testing.T) {
	f := newFake(100, 4)
	e := start(t, f, nil)
	p := prompt(1, 10)
	want := expect(p, 12)
	at := slices.Index(want, want[9])
	s, err := e.Submit(context.Background(), Request{Prompt: p, MaxTokens: 50, Stop: []int32{want[9]}, Params: sample.Greedy()})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(s); !slices.Equal(got, want[:at]) || s.Reason() != Stopped {
		t.Errorf("got %v, %v, want %v", got, s.Reason(), want[:at])
	}
	checkIdle(t, e)
}

func TestContextIsFull(t *testing.T) {
	f := newFake(100, 4)
	e := start(t, f, func(o *Options) { o.Context = 20 })
	p := prompt(2, 15)
	s := submit(t, e, p, 0)
	if got := collect(s); !slices.Equal(got, expect(p, 5)) || s.Reason() != Context || s.Err() != nil {
		t.Errorf("got %v, %v, %v", got, s.Reason(), s.Err())
	}
	checkIdle(t, e)
}

// TestCacheIsFull: a sequence that outgrows the whole cache ends with an error after delivering what it could, and
// others go on.
func TestCacheIsFull(t *testing.T) {
	f := newFake(10, 4)
	e := start(t, f, nil)
	p := prompt(3, 30)
	s, other := submit(t, e, p, 100), submit(t, e, prompt(4, 5), 3)
	got := collect(s)
	if !errors.Is(s.Err(), ErrCacheFull) || s.Reason() != Context {
		t.Errorf("ended by %v, %v", s.Reason(), s.Err())
	}
	if want := expect(p, 100); len(got) < 9 || !slices.Equal(got, want[:len(got)]) {
		t.Errorf("delivered %v, want a beginning of %v", got, want)
	}
	if got := collect(other); !slices.Equal(got, expect(prompt(4, 5), 3)) {
		t.Errorf("the other sequence yielded %v, %v", got, other.Err())
	}
	checkIdle(t, e)
}

func TestCancel(t *testing.T) {
	f := newFake(100, 4)
	e := start(t, f, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("gone")
	s, err := e.Submit(ctx, Request{Prompt: prompt(5, 20), Params: sample.Greedy()})
	if err != nil {
		t.Fatal(err)
	}
	s.Next()
	cancel(cause)
	drain(s)
	if s.Reason() != Cancelled && s.Reason() != Context || s.Reason() == Cancelled && (!errors.Is(s.Err(), cause) || !errors.Is(s.Err(), context.Canceled)) {
		t.Errorf("ended by %v, %v", s.Reason(), s.Err())
	}
	gone, stop := context.WithCancel(context.Background())
	stop()
	s, err = e.Submit(gone, Request{Prompt: prompt(5, 20), Params: sample.Greedy()})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(s); s.Reason() != Cancelled || len(got) > 1 {
		t.Errorf("a request whose caller had gone yielded %v, %v", got, s.Reason())
	}
	checkIdle(t, e)
}

func TestForwardError(t *testing.T) {
	f := newFake(100, 4)
	f.fail = errors.New("device on fire")
	e := start(t, f, nil)
	s := submit(t, e, prompt(1, 50), 5)
	if got := collect(s); len(got) != 0 || s.Reason() != Failed || !errors.Is(s.Err(), f.fail) {
		t.Errorf("got %v, %v, %v", got, s.Reason(), s.Err())
	}
	checkIdle(t, e)
}

func TestClose(t *testing.T) {
	f := newFake(100, 4)
	e := start(t, f, nil)
	s := submit(t, e, prompt(1, 20), 0)
	s.Next()
	e.Close()
	drain(s)
	if s.Reason() == Failed && !errors.Is(s.Err(), ErrClosed) {
		t.Errorf("ended by %v", s.Err())
	}
	if _, err := e.Submit(context.Background(), Request{Prompt: []int32{1}, Params: sample.Greedy()}); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %v", err)
	}
	checkIdle(t, e)
}

func TestRefusedRequests(t *testing.T) {
	f := newFake(8, 4)
	e := start(t, f, nil)
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{}, "empty prompt"},
		{Request{Prompt: prompt(1, 200)}, "200 tokens in a context of 200"},
		{Request{Prompt: prompt(1, 40)}, "need 11 pages, the cache has 8"},
		{Request{Prompt: []int32{1, fakeVocab}}, "token 97 at 1"},
		{Request{Prompt: []int32{-1}}, "token -1 at 0"},
		{Request{Prompt: []int32{1}, MaxTokens: -1}, "-1 is negative"},
		{Request{Prompt: []int32{1}, Params: sample.Params{Temperature: -1, TopP: 1}}, "emperature"},
	} {
		if c.r.Params.TopP == 0 {
			c.r.Params = sample.Greedy()
		}
		if _, err := e.Submit(context.Background(), c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.r, err, c.want)
		}
	}
	if _, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 40), Params: sample.Greedy()}); !errors.Is(err, ErrTooLong) {
		t.Errorf("a prompt larger than the cache: %v", err)
	}
}

// TestLongPromptDoesNotStarve: while a long prompt is read in pieces, a running stream gets a token in every step.
func TestLongPromptDoesNotStarve(t *testing.T) {
	f := newFake(400, 4)
	f.gate = make(chan struct{})
	e := start(t, f, func(o *Options) { o.Context, o.MaxRows, o.MaxSeqs = 1000, 8, 4 })
	running := submit(t, e, prompt(1, 2), 60)
	f.gate <- struct{}{}
	running.Next()
	long := submit(t, e, prompt(2, 300), 1)
	for i := range 30 {
		f.gate <- struct{}{}
		if _, ok, waited := running.Poll(5 * time.Second); !ok || waited {
			t.Fatalf("no token in step %d", i)
		}
	}
	if done, _, _ := long.Progress(); done == 0 || done >= 300 {
		t.Errorf("the long prompt is at %d tokens", done)
	}
	go func() {
		for {
			select {
			case f.gate <- struct{}{}:
			case <-e.done:
				return
			}
		}
	}()
	if got := collect(long); !slices.Equal(got, expect(prompt(2, 300), 1)) {
		t.Errorf("the long prompt yielded %v", got)
	}
}

// TestStepsDoNotAllocate drives the loop's own functions by hand.
func TestStepsDoNotAllocate(t *testing.T) {
	f := newFake(400, 4)
	e := start(t, f, func(o *Options) { o.Context = 2000 })
	e.Close() // the loop is gone; its state is ours
	for i := range 5 {
		sampler, err := sample.NewSampler(sample.Greedy(), fakeVocab)
		if err != nil {
			t.Fatal(err)
		}
		p := prompt(i, 10)
		e.waiting = append(e.waiting, &sequence{
			ctx: context.Background(), req: Request{Prompt: p}, limit: 1500, sampler: sampler, refused: -1, space: -1,
			tokens: append(make([]int32, 0, 2000), p...), stream: newStream(context.Background(), len(p), 1500),
		})
	}
	once := func() {
		e.drop()
		if !e.schedule() {
			t.Fatal("nothing to do")
		}
		e.step()
		e.publish()
		for i, s := range e.running {
			if i%2 == 0 { // nobody reads the others
				s.stream.take()
			}
		}
	}
	for range 20 {
		once()
	}
	if a := testing.AllocsPerRun(100, once); a != 0 {
		t.Errorf("%v allocations a step", a)
	}
}
