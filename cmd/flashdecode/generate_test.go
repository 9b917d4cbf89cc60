package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode"
)

// embedded is the embedded model.
func embedded(t *testing.T) *flashdecode.Model {
	t.Helper()
	m, err := flashdecode.Embedded(flashdecode.Threads(1), flashdecode.MaxSequences(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestStatisticsOfPart: what ends while the prompt is read counts only what was read: an interrupt, and a failure.
func TestStatisticsOfPart(t *testing.T) {
	m := embedded(t)
	failed := errors.New("flashdecode: engine: the file was truncated")
	for _, c := range []struct {
		json bool
		err  error // nil: interrupted
		want string
	}{{err: nil, want: "cancelled"}, {err: failed, want: "error"}, {json: true, want: "cancelled"}, {json: true, err: failed, want: "error"}} {
		var out, errs bytes.Buffer
		g := &generation{app: &app{out: &out, err: &errs}, model: m, json: c.json, start: time.Now().Add(-2 * time.Second)}
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan event)
		go func() {
			// The second is taken only after the first was dealt with.
			for range 2 {
				events <- event{computed: 2048, reused: 48, total: 5679}
			}
			if c.err == nil {
				cancel()
				return
			}
			events <- event{end: true, err: c.err, result: flashdecode.Result{PromptTokens: 5679, ReusedTokens: 48, Reason: "error"}}
		}()
		err := g.finish(g.receive(ctx, events))
		cancel()
		if c.err == nil && !errors.Is(err, errInterrupted) || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%v", err)
		}
		s := g.statistics()
		if s.PromptTokens != 5679 || s.ReusedTokens != 48 || s.ComputedTokens != 2048 || s.KVTokens != 2048 || s.KVBytes != 2048*3072 ||
			s.Tokens != 0 || s.FirstSeconds != 0 || s.Reason != c.want {
			t.Errorf("%+v", s)
		}
		if s.PromptRate <= 0 || s.PromptRate > 2000/2 { // 2,000 of them computed, in at least 2 s
			t.Errorf("%v tokens/s of the prompt", s.PromptRate)
		}
		if c.json {
			last := lines[map[string]statistics](t, out.String())
			if len(last) != 1 || last[0]["statistics"].ComputedTokens != 2048 || last[0]["statistics"].Reason != c.want || errs.Len() > 0 {
				t.Errorf("%s%s", &out, &errs)
			}
			continue
		}
		for _, want := range []string{"2048 of 5679 tokens", "no token after", "KV cache   2048 tokens", "6.3 MB", "ended by " + c.want} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("lacks %q:\n%s", want, &errs)
			}
		}
	}
}

// TestStatisticsOfFailure: a generation that fails after some tokens ends with its statistics, one whose prompt was
// refused or whose text can't be written has none.
func TestStatisticsOfFailure(t *testing.T) {
	m := embedded(t)
	failed := errors.New("failed")
	after := func(most int) source {
		return func(ctx context.Context, opts ...flashdecode.GenerateOption) tokens {
			return func(yield func(flashdecode.Token, error) bool) {
				n := 0
				for tok, err := range m.Generate(ctx, "Once upon a time, there was a", opts...) {
					if n++; err != nil || n > most || !yield(tok, nil) {
						break
					}
				}
				yield(flashdecode.Token{}, failed)
			}
		}
	}
	var out, errs bytes.Buffer
	g := &generation{app: &app{out: &out, err: &errs}, model: m}
	if err := g.run(t.Context(), after(5)); !errors.Is(err, failed) {
		t.Error(err)
	}
	if s := g.statistics(); s.ComputedTokens != 9 || s.KVTokens != 9+g.cached() || !strings.Contains(errs.String(), "prompt     9 tokens") || !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("%+v\n%s", s, &errs)
	}
	out.Reset()
	errs.Reset()
	g = &generation{app: &app{out: &out, err: &errs}, model: m}
	if err := g.run(t.Context(), func(ctx context.Context, opts ...flashdecode.GenerateOption) tokens {
		return m.Generate(ctx, strings.Repeat("word ", 20000), opts...)
	}); err == nil || out.Len()+errs.Len() > 0 {
		t.Errorf("refused: %v: %q, %q", err, &out, &errs)
	}
	g = &generation{app: &app{out: &failing{10, failed}, err: &errs}, model: m}
	if err := g.run(t.Context(), after(50)); !errors.Is(err, failed) || errs.Len() > 0 {
		t.Errorf("full disk: %v: %q", err, &errs)
	}
}

// TestCacheTokens: the cache has every token from which another was computed.
func TestCacheTokens(t *testing.T) {
	for _, c := range []struct {
		reason string
		stops  bool
		tokens int
		want   int
	}{
		{"length", false, 20, 19}, {"length", false, 1, 0}, {"context", false, 2, 1}, {"cancelled", false, 0, 0}, {"error", false, 3, 2},
		{"stop", false, 7, 7}, {"stop", false, 0, 0}, {"stop", true, 7, 6},
	} {
		g := &generation{stops: c.stops, result: flashdecode.Result{Tokens: c.tokens, Reason: c.reason}}
		if got := g.cached(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	// The same of real generations, one of them ended by its context.
	count := func(ctx int) (tokens, kv float64, reason any) {
		js, _ := must(t, "", "run", "--json", "--ctx", fmt.Sprint(ctx), "-n", "20", "Once upon a time, there was a")
		all := lines[map[string]any](t, js)
		s := all[len(all)-1]["statistics"].(map[string]any)
		return s["tokens"].(float64), s["kv_tokens"].(float64), s["reason"]
	}
	for _, ctx := range []int{24, 64} {
		tokens, kv, reason := count(ctx)
		if kv != 9+tokens-1 || kv > float64(ctx) {
			t.Errorf("context %d: %v tokens, %v in the cache, ended by %v", ctx, tokens, kv, reason)
		}
	}
}
