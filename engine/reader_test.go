package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/sample"
)

// TestReadersThatStandStill: streams that nobody reads, older and younger than others, cost the others nothing but
// their turn, however few pages and places there are; and they end well if they are read at last, cancelled or closed.
func TestReadersThatStandStill(t *testing.T) {
	for _, pages := range []int{600, 60, 50} {
		for _, seqs := range []int{1, 2, 6} {
			for _, end := range []string{"read", "cancel", "close", "close at once"} {
				t.Run(fmt.Sprintf("pages=%d/seqs=%d/%s", pages, seqs, end), func(t *testing.T) {
					testkit.Within(t, "an engine with readers that stand still", func() { standStill(t, pages, seqs, end) })
				})
			}
		}
	}
}

func standStill(t *testing.T, pages, seqs int, end string) {
	const tokens = 190 // 49 pages with a prompt of 4: of 50 and 60 pages two can't have them
	f := newFake(pages, 4)
	f.gate = make(chan struct{}) // no step before all are submitted, or they would not meet
	e, err := New(f, f, Options{Vocab: fakeVocab, Context: 200, MaxRows: 24, MaxSeqs: seqs, NoPrefixCache: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var still []*Stream
	var readers sync.WaitGroup
	for i := range 6 {
		p := prompt(i, 4)
		if i%2 == 1 {
			s := submit(t, e, p, tokens)
			readers.Go(func() {
				if got := collect(s); end != "close at once" && !slices.Equal(got, expect(p, tokens)) {
					t.Errorf("sequence %d: %d tokens of %d, or others (%v)", i, len(got), tokens, s.Err())
				}
			})
			continue
		}
		s, err := e.Submit(ctx, Request{Prompt: p, MaxTokens: tokens, Params: sample.Greedy()})
		if err != nil {
			t.Fatal(err)
		}
		still = append(still, s)
	}
	if end == "close at once" {
		for range 150 {
			f.gate <- struct{}{}
		}
	}
	close(f.gate)
	if end == "close at once" {
		e.Close()
	}
	readers.Wait()
	switch end {
	case "cancel":
		cancel()
	case "close":
		e.Close()
	}
	for i, s := range still {
		got := collect(s)
		if want := expect(prompt(2*i, 4), tokens); len(got) > tokens || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("sequence %d, which nobody read: %v", 2*i, got)
		}
		switch {
		case end == "read" && (len(got) != tokens || s.Reason() != Length || s.Err() != nil),
			end == "cancel" && (len(got) != 0 || s.Reason() != Cancelled || !errors.Is(s.Err(), context.Canceled)),
			s.Reason() == Failed && !errors.Is(s.Err(), ErrClosed):
			t.Errorf("sequence %d, which nobody read: %d tokens, %v, %v", 2*i, len(got), s.Reason(), s.Err())
		}
	}
	if st := e.Stats(); seqs > 1 && pages < 100 && st.Preemptions == 0 {
		t.Error("nobody was preempted: the test shows nothing")
	}
	checkIdle(t, e)
	if st := e.Stats(); st.Finished != 6 {
		t.Errorf("%d of 6 finished", st.Finished)
	}
}

// TestCancelledReader: when its context is done a stream ends at once, though the engine stands still, though tokens
// are unread, and though the sequence has ended; Next goes on saying so.
func TestCancelledReader(t *testing.T) {
	cause := errors.New("gone")
	for _, c := range []struct {
		what string
		make func(s *Stream)
	}{
		{"nothing has come", func(*Stream) {}},
		{"tokens are unread", func(s *Stream) { s.put(1, 0); s.put(2, 0) }},
		{"the sequence has ended", func(s *Stream) { s.put(1, 0); s.end(Length, nil) }},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		s := newStream(ctx, 1, 4)
		c.make(s)
		wait := make(chan struct{})
		go func() { <-wait; cancel(cause) }()
		if c.what != "nothing has come" {
			cancel(cause)
		}
		close(wait)
		testkit.Within(t, c.what, func() {
			for range 2 {
				if _, ok := s.Next(); ok || s.Reason() != Cancelled || !errors.Is(s.Err(), cause) || !errors.Is(s.Err(), context.Canceled) {
					t.Errorf("%s: %v, %v, %v", c.what, ok, s.Reason(), s.Err())
				}
				s.put(3, 0) // by a step that was under way
				s.end(Length, nil)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := newStream(ctx, 1, 4)
	s.put(1, 0)
	s.end(Length, nil)
	s.Next()
	s.Next()
	cancel()
	if _, ok := s.Next(); ok || s.Reason() != Length || s.Err() != nil {
		t.Errorf("cancelled after its end was seen: %v, %v", s.Reason(), s.Err())
	}
}

// TestReadersShareAStream: every token reaches one of several readers, and all see the end, also if all were waiting
// when several tokens came, or when the end did.
func TestReadersShareAStream(t *testing.T) {
	for _, tokens := range []int{0, 1, 2, 3, 4, 5, 2000} {
		synctest.Test(t, func(t *testing.T) {
			s := newStream(context.Background(), 1, tokens)
			seen, ends := make([]atomic.Int32, tokens), atomic.Int32{}
			for i := range 4 {
				next := s.Next
				if i%2 == 1 {
					next = func() (Token, bool) {
						v, ok, waited := s.Poll(time.Minute)
						if waited {
							t.Error("a reader was not told")
						}
						return v, ok
					}
				}
				go func() {
					for v, ok := next(); ok; v, ok = next() {
						seen[v.Index].Add(1)
					}
					ends.Add(1)
				}()
			}
			synctest.Wait() // all readers wait
			for i := range int32(tokens) {
				s.put(i, 0)
			}
			synctest.Wait()
			for i := range seen {
				if k := seen[i].Load(); k != 1 {
					t.Errorf("token %d of %d was delivered %d times", i, tokens, k)
				}
			}
			s.end(Length, nil)
			synctest.Wait()
			if n := ends.Load(); n != 4 {
				t.Errorf("after %d tokens %d of 4 readers saw the end", tokens, n)
			}
		})
	}
}

// TestCounters: a sequence that is dropped while it waits has finished, and one that is refused admission step after
// step has looked into the prefix cache once.
func TestCounters(t *testing.T) {
	f := newFake(60, 4)
	f.gate = make(chan struct{})
	e := start(t, f, nil)
	first := submit(t, e, prompt(1, 4), 190)
	steps := func(n int) {
		for range n {
			f.gate <- struct{}{}
			first.Next()
		}
	}
	steps(120) // the first has 31 pages: the second, which needs 38, will be refused
	ctx, cancel := context.WithCancel(context.Background())
	waiting, err := e.Submit(ctx, Request{Prompt: prompt(2, 150), MaxTokens: 5, Params: sample.Greedy()})
	if err != nil {
		t.Fatal(err)
	}
	steps(20) // again and again, because fewer pages are left every fourth time
	second := submit(t, e, prompt(2, 150), 5)
	cancel()
	drain(waiting)
	close(f.gate)
	drain(first)
	drain(second)
	checkIdle(t, e)
	st := e.Stats()
	if st.Finished != 3 {
		t.Errorf("%d of 3 finished", st.Finished)
	}
	if st.Cache.HitTokens != 0 || st.Cache.MissTokens != 148 {
		t.Errorf("%d tokens found and %d not, of a prompt that fills 37 pages", st.Cache.HitTokens, st.Cache.MissTokens)
	}
}

// stuckFake can't empty its address ranges.
type stuckFake struct {
	*flatFake
	err error
}

func (f *stuckFake) Unbind(int32) error { return f.err }

// TestUnbindFails: an address range that can't be emptied closes the engine and ends every stream with the reason,
// whether its sequence ended, was dropped, or lost its pages to another.
func TestUnbindFails(t *testing.T) {
	for _, why := range []string{"ended", "dropped", "preempted"} {
		t.Run(why, func(t *testing.T) {
			f := &stuckFake{newFlatFake(60, 4, 2, 50), errors.New("no memory")}
			f.gate = make(chan struct{})
			e, err := New(f, f, Options{Vocab: fakeVocab, Context: 200, MaxRows: 24, MaxSeqs: 2})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			tokens := 190
			if why == "ended" {
				tokens = 10
			}
			first, err := e.Submit(ctx, Request{Prompt: prompt(1, 4), MaxTokens: tokens, Params: sample.Greedy()})
			if err != nil {
				t.Fatal(err)
			}
			var others []*Stream // one runs, the rest waits for the place of the first
			for i := range 5 {
				others = append(others, submit(t, e, prompt(2+i, 4), 190))
			}
			testkit.Within(t, "an engine whose cache is stuck", func() {
				f.gate <- struct{}{}
				first.Next()
				if why == "dropped" {
					cancel()
				}
				close(f.gate)
				drain(first)
				for i, s := range others {
					if drain(s); s.Reason() != Failed || !errors.Is(s.Err(), ErrClosed) || !errors.Is(s.Err(), f.err) {
						t.Errorf("stream %d ended by %v, %v", i, s.Reason(), s.Err())
					}
				}
				<-e.done
				_, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 4), Params: sample.Greedy()})
				if !errors.Is(err, ErrClosed) || !errors.Is(err, f.err) {
					t.Errorf("Submit afterwards: %v", err)
				}
				e.Close()
			})
			st := e.Stats()
			if st.Finished != 6 || st.Running+st.Waiting != 0 || st.Cache.Used != 0 {
				t.Errorf("afterwards %+v", st)
			}
			if (why == "preempted") != (st.Preemptions > 0) {
				t.Errorf("%d preemptions: the test shows nothing", st.Preemptions)
			}
		})
	}
}
