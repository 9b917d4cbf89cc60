package flashdecode_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/testkit"
)

// TestReaderThatStandsStill: a generation of which one token is read, and then nothing, lets others have their turn
// with few pages and with one place, whether it is older or younger; it can be closed, cancelled, left and read on.
func TestReaderThatStandsStill(t *testing.T) {
	testkit.SkipEmulated(t, "a step of the embedded model takes seconds there, and the test waits for thousands")
	const length = 250
	for _, c := range []struct {
		what string
		opts []flashdecode.Option
	}{
		{"one place", []flashdecode.Option{flashdecode.MaxSequences(1)}},
		{"few pages", []flashdecode.Option{flashdecode.KVTokens(256), flashdecode.NoPrefixCache()}},
		{"a flat cache of few pages", []flashdecode.Option{flashdecode.KVTokens(256), flashdecode.KVAddresses("flat")}},
	} {
		for _, end := range []string{"close", "cancel", "leave", "read"} {
			for _, older := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/older=%v", c.what, end, older), func(t *testing.T) {
					m := openTinyLlama(t, append(c.opts, flashdecode.Context(length))...)
					testkit.Within(t, "a model with a reader that stands still", func() { readOne(t, m, end, older, length-2) })
					wantIdle(t, m)
				})
			}
		}
	}
}

// readOne starts a generation of n tokens, reads one, runs others, and ends it.
func readOne(t *testing.T, m *flashdecode.Model, end string, older bool, n int) {
	other := func() <-chan struct{} {
		done := make(chan struct{})
		started := make(chan struct{})
		go func() {
			defer close(done)
			k := 0
			for _, err := range m.GenerateTokens(context.Background(), []int32{3, 4}, flashdecode.IgnoreEnd()) {
				if err != nil {
					t.Error(err)
				}
				if k++; k == 1 {
					close(started)
				}
			}
			if k != n {
				t.Errorf("the other generation had %d tokens of %d", k, n)
			}
		}()
		<-started
		return done
	}
	var first <-chan struct{}
	if !older {
		first = other()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next, stop := iter.Pull2(m.GenerateTokens(ctx, []int32{1, 2}, flashdecode.IgnoreEnd()))
	defer stop()
	if _, err, ok := next(); err != nil || !ok {
		t.Fatal(err)
	}
	if first != nil {
		<-first
	}
	<-other()
	switch end {
	case "close":
		m.Close()
	case "cancel":
		cancel()
	case "leave":
		stop()
	}
	k, last := 1, error(nil)
	for _, err, ok := next(); ok; _, err, ok = next() {
		if last = err; err == nil {
			k++
		}
	}
	switch {
	case end == "read" && (k != n || last != nil),
		end == "cancel" && (k != 1 || !errors.Is(last, context.Canceled)),
		end == "close" && last != nil && !errors.Is(last, engine.ErrClosed),
		end == "leave" && (k != 1 || last != nil):
		t.Errorf("%d tokens of %d, %v", k, n, last)
	}
	if end != "close" {
		<-other()
	}
}
