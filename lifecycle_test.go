package flashdecode_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/tokenizer"
)

func openTinyLlama(t *testing.T, opts ...flashdecode.Option) *flashdecode.Model {
	t.Helper()
	m, err := flashdecode.Open(tinyLlama, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestUseAfterClose: errors, neither panics nor hangs, for everything a Model does; Close may be called again.
func TestUseAfterClose(t *testing.T) {
	m, err := flashdecode.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := generate(m, []int32{5}, flashdecode.MaxTokens(2)); err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, "use after Close", func() {
		for range 3 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := generate(m, []int32{5}); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("GenerateTokens: %v, want engine.ErrClosed", err)
		}
		n := 0
		for _, err := range m.Generate(t.Context(), "x") {
			if n++; !errors.Is(err, engine.ErrClosed) {
				t.Errorf("Generate: %v, want engine.ErrClosed", err)
			}
		}
		for _, err := range m.Chat(t.Context(), []flashdecode.Message{{Role: "user", Content: "x"}}) {
			if n++; !errors.Is(err, engine.ErrClosed) {
				t.Errorf("Chat: %v, want engine.ErrClosed", err)
			}
		}
		if n != 2 {
			t.Errorf("%d errors of 2", n)
		}
		if i := m.Info(); i.Layers == 0 || i.KVTokens == 0 {
			t.Errorf("Info: %+v", i)
		}
		if s := m.Stats(); s.Decoded != 2 {
			t.Errorf("Stats: %d tokens, want 2", s.Decoded)
		}
		if ids := m.Tokenizer().Encode(nil, "hello", tokenizer.EncodeOptions{}); len(ids) == 0 {
			t.Error("the tokenizer encodes nothing")
		}
		m.HasChatTemplate()
	})
}

// TestCloseWhileGenerating: every generation under way ends, with engine.ErrClosed unless it was done, whether its
// reader is quick, slow or the one that closes; several may close.
func TestCloseWhileGenerating(t *testing.T) {
	testkit.SkipEmulated(t, "a step of the embedded model takes seconds there, and the test waits for many")
	for round := range 5 {
		m := openTinyLlama(t, flashdecode.MaxSequences(3)) // the others wait in the queue
		testkit.Within(t, "Close", func() {
			var started atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					_, err := generate(m, []int32{1, int32(i)}, flashdecode.OnProgress(func(int, int, int) { started.Add(1) }))
					if err != nil && !errors.Is(err, engine.ErrClosed) {
						t.Errorf("%v, want engine.ErrClosed", err)
					}
				})
			}
			n := 0
			for _, err := range m.GenerateTokens(t.Context(), []int32{9}, flashdecode.IgnoreEnd()) {
				if err != nil {
					break
				}
				if n++; n == 1+round*20 {
					for range 3 {
						wg.Go(func() { m.Close() })
					}
					m.Close() // by the reader of a stream
				}
			}
			wg.Wait()
		})
	}
}

// TestCancel: before the call, before the first token and between tokens; the error is the context's with its cause, and
// the model goes on.
func TestCancel(t *testing.T) {
	m := openTinyLlama(t)
	cause := errors.New("changed my mind")
	testkit.Within(t, "a cancelled generation", func() {
		for _, at := range []int{0, 1, 7} {
			ctx, cancel := context.WithCancelCause(t.Context())
			if at == 0 {
				cancel(cause)
			}
			n, last := 0, error(nil)
			var result flashdecode.Result
			done := flashdecode.OnDone(func(r flashdecode.Result) { result = r })
			for _, err := range m.GenerateTokens(ctx, []int32{1, 2}, flashdecode.IgnoreEnd(), done) {
				if last = err; err != nil {
					continue
				}
				if n++; n == at {
					cancel(cause)
				}
			}
			cancel(nil)
			if !errors.Is(last, cause) || !errors.Is(last, context.Canceled) || result.Reason != "cancelled" {
				t.Errorf("cancelled at %d: %d tokens, %v, reason %q", at, n, last, result.Reason)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		for _, err := range m.GenerateTokens(ctx, []int32{1, 2}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the deadline", err)
			}
		}
		if got, err := generate(m, []int32{3}, flashdecode.MaxTokens(5)); len(got) != 5 {
			t.Errorf("afterwards: %d tokens, %v", len(got), err)
		}
	})
	wantIdle(t, m)
}

// TestBreak: leaving the loop ends the sequence and frees its pages.
func TestBreak(t *testing.T) {
	m := openTinyLlama(t, flashdecode.KVTokens(512))
	var result flashdecode.Result
	testkit.Within(t, "leaving the loop", func() {
		for range 40 { // far more tokens than the cache has room for
			for _, err := range m.GenerateTokens(t.Context(), ids40(), flashdecode.IgnoreEnd(), flashdecode.OnDone(func(r flashdecode.Result) { result = r })) {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}
	})
	if result.Reason != "cancelled" || result.Tokens != 1 || result.PromptTokens != 40 {
		t.Errorf("result %+v", result)
	}
	wantIdle(t, m)
}

func ids40() []int32 {
	p := make([]int32, 40)
	for i := range p {
		p[i] = int32(i)
	}
	return p
}

// wantIdle waits until nothing runs or waits, and no page is in use.
func wantIdle(t *testing.T, m *flashdecode.Model) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		s := m.Stats()
		if s.Running == 0 && s.Waiting == 0 && s.Cache.Used == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still busy: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestConcurrent: 16 goroutines with options, callbacks and lengths of their own, some of which leave or cancel, get
// what each gets alone.
func TestConcurrent(t *testing.T) {
	m := openTinyLlama(t, flashdecode.Split("fixed:64"), flashdecode.KVTokens(768))
	prompts := []string{"the", "the the", "then there the", "a"}
	testkit.Within(t, "16 goroutines", func() {
		want := map[string]string{}
		for _, p := range prompts {
			want[p] = text(t, m, p, 30)
		}
		var wg sync.WaitGroup
		for i := range 16 {
			p := prompts[i%len(prompts)]
			wg.Go(func() {
				switch i % 4 {
				case 3:
					ctx, cancel := context.WithCancel(t.Context())
					for range m.Generate(ctx, p, flashdecode.IgnoreEnd()) {
						cancel()
					}
					cancel()
				case 2:
					for range m.Generate(t.Context(), p, flashdecode.IgnoreEnd()) {
						break
					}
				}
				for range 3 {
					if got := text(t, m, p, 30); got != want[p] {
						t.Errorf("%q gives %q, alone %q", p, got, want[p])
					}
					m.Stats()
					m.Info()
				}
			})
		}
		wg.Wait()
	})
	wantIdle(t, m)
}

// text is what is generated after a prompt, and its tokens' texts must add up.
func text(t *testing.T, m *flashdecode.Model, prompt string, n int) string {
	t.Helper()
	var b strings.Builder
	progress := func(computed, reused, total int) {
		if computed < 0 || computed > total || reused > total {
			t.Errorf("progress: %d computed, %d reused of %d", computed, reused, total)
		}
	}
	for tok, err := range m.Generate(t.Context(), prompt, flashdecode.MaxTokens(n), flashdecode.IgnoreEnd(), flashdecode.OnProgress(progress)) {
		if err != nil {
			t.Error(err)
		}
		b.WriteString(tok.Text)
	}
	return b.String()
}

// TestOnDone: every loop over a generation ends with exactly one call, also if the prompt was refused.
func TestOnDone(t *testing.T) {
	m := embedded(t, flashdecode.Context(64))
	closed := embedded(t)
	closed.Close()
	bare, err := flashdecode.Open(tinyLlama)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	hello := []flashdecode.Message{{Role: "user", Content: "x"}}
	for _, c := range []struct {
		what, reason string
		prompt       int
		run          func(...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error]
		leave        bool
	}{
		{"a limit", "length", 40, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return m.GenerateTokens(t.Context(), ids40(), append(o, flashdecode.MaxTokens(2), flashdecode.IgnoreEnd())...)
		}, false},
		{"a break", "cancelled", 40, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return m.GenerateTokens(t.Context(), ids40(), append(o, flashdecode.IgnoreEnd())...)
		}, true},
		{"a cancelled context", "cancelled", 40, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return m.GenerateTokens(gone, ids40(), o...)
		}, false},
		{"no prompt", "error", 0, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return m.GenerateTokens(t.Context(), nil, o...)
		}, false},
		{"a long prompt", "error", 80, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return m.GenerateTokens(t.Context(), append(ids40(), ids40()...), o...)
		}, false},
		{"a closed model", "error", 40, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return closed.GenerateTokens(t.Context(), ids40(), o...)
		}, false},
		{"no chat template", "error", 0, func(o ...flashdecode.GenerateOption) iter.Seq2[flashdecode.Token, error] {
			return bare.Chat(t.Context(), hello, o...)
		}, false},
	} {
		var results []flashdecode.Result
		for range c.run(flashdecode.OnDone(func(r flashdecode.Result) { results = append(results, r) })) {
			if c.leave {
				break
			}
		}
		if len(results) != 1 || results[0].Reason != c.reason || results[0].PromptTokens != c.prompt {
			t.Errorf("%s: %+v, want one with %s and a prompt of %d", c.what, results, c.reason, c.prompt)
		}
	}
}
