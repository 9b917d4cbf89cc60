package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"text/tabwriter"
	"time"

	"github.com/flashdecode/flashdecode"
)

type (
	tokens = iter.Seq2[flashdecode.Token, error]
	// source starts a generation.
	source func(context.Context, ...flashdecode.GenerateOption) tokens
)

// generation writes the tokens of one generation and its statistics.
type generation struct {
	app     *app
	model   *flashdecode.Model
	json    bool
	sampled bool
	seed    uint64
	stops   bool   // a text may end it, and not only the model
	lead    string // shown on standard error before the first token

	start, first, last time.Time
	tokens             int
	computed           int // tokens of the prompt in the cache, as far as was reported
	result             flashdecode.Result
}

// event is what the goroutine that generates reports: a token, progress of the prompt, or the end.
type event struct {
	token                   flashdecode.Token
	computed, reused, total int // progress, if total is not 0
	end                     bool
	result                  flashdecode.Result
	err                     error
}

// run generates until the end, an error, or an interrupt, which it does not make wait for the step under way.
func (g *generation) run(ctx context.Context, src source) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan event, 64)
	send := func(e event) {
		select {
		case events <- e:
		case <-own.Done():
		}
	}
	g.start = time.Now()
	go func() {
		end := event{end: true}
		for tok, err := range src(own, flashdecode.OnDone(func(r flashdecode.Result) { end.result = r }),
			flashdecode.OnProgress(func(computed, reused, total int) {
				send(event{computed: computed, reused: reused, total: total})
			})) {
			if end.err = err; err == nil {
				send(event{token: tok})
			}
		}
		send(end)
	}()
	return g.finish(g.receive(ctx, events))
}

// finish reports what was done before err. Nothing was if the prompt was refused, and nothing can be written if err is
// that of writing.
func (g *generation) finish(err error) error {
	switch {
	case errors.Is(err, errInterrupted):
		g.result.Tokens, g.result.Reason = g.tokens, "cancelled"
	case err != nil && (g.result.Reason == "" || g.tokens == 0 && g.computed == 0):
		return err
	}
	return errors.Join(err, g.report())
}

// receive writes tokens until the end.
func (g *generation) receive(ctx context.Context, events <-chan event) error {
	bar := &progress{app: g.app, what: "reading the prompt", unit: "tokens", start: g.start}
	defer bar.clear()
	for {
		var e event
		select {
		case e = <-events:
		case <-ctx.Done():
			return errInterrupted
		}
		switch {
		case ctx.Err() != nil: // a select with both ready takes either
			return errInterrupted
		case e.end:
			g.result = e.result
			return e.err
		case e.total > 0:
			g.computed, g.result.ReusedTokens, g.result.PromptTokens = e.computed, e.reused, e.total
			bar.set(e.computed, e.total)
			continue
		}
		bar.clear()
		if err := g.write(e.token); err != nil {
			return err
		}
	}
}

func (g *generation) write(t flashdecode.Token) error {
	if t.ID >= 0 {
		g.last = t.Time
		if g.tokens++; g.tokens == 1 {
			g.first = g.last
			fmt.Fprint(g.app.err, g.lead)
		}
	}
	if g.json {
		return g.app.printLine(struct {
			Token   int32   `json:"token"`
			Text    string  `json:"text"`
			LogProb float32 `json:"logprob"`
		}{t.ID, t.Text, t.LogProb})
	}
	if t.Text == "" {
		return nil
	}
	return g.app.print(t.Text)
}

// statistics describe a generation. Rates are tokens per second.
type statistics struct {
	Model          string  `json:"model"`
	PromptTokens   int     `json:"prompt_tokens"`
	ReusedTokens   int     `json:"reused_tokens"`   // of the prompt, in the cache from before
	ComputedTokens int     `json:"computed_tokens"` // of the prompt, those included: fewer than all if it was not read to its end
	PromptRate     float64 `json:"prompt_tokens_per_second"`
	FirstSeconds   float64 `json:"first_token_seconds"` // 0 without a token
	Tokens         int     `json:"tokens"`
	Rate           float64 `json:"tokens_per_second"`
	Seconds        float64 `json:"seconds"`
	KVTokens       int     `json:"kv_tokens"`
	KVBytes        int64   `json:"kv_bytes"`
	KVType         string  `json:"kv_type"`
	Split          string  `json:"split"`
	Backend        string  `json:"backend"`
	Seed           *uint64 `json:"seed,omitempty"`
	Reason         string  `json:"reason"`
}

func (g *generation) statistics() statistics {
	info, r := g.model.Info(), g.result
	s := statistics{
		Model: info.Name, PromptTokens: r.PromptTokens, ReusedTokens: r.ReusedTokens, ComputedTokens: g.computed, Tokens: r.Tokens,
		Seconds: time.Since(g.start).Seconds(), KVType: info.KVType, Split: info.Split, Backend: info.Backend, Reason: r.Reason,
	}
	read := s.Seconds
	if g.tokens > 0 {
		s.FirstSeconds = g.first.Sub(g.start).Seconds()
		s.ComputedTokens, read = r.PromptTokens, s.FirstSeconds
	} else if r.Reason == "stop" { // the model had nothing to say
		s.ComputedTokens = r.PromptTokens
	}
	if read > 0 {
		s.PromptRate = float64(s.ComputedTokens-s.ReusedTokens) / read
	}
	if d := g.last.Sub(g.first).Seconds(); d > 0 { // the first token belongs to the prompt
		s.Rate = float64(g.tokens-1) / d
	}
	s.KVTokens = s.ComputedTokens + g.cached()
	s.KVBytes = int64(s.KVTokens) * info.KVTokenBytes
	if g.sampled {
		s.Seed = &g.seed
	}
	return s
}

// cached is how many of the generated tokens are in the cache. A token gets there when the next one is computed from
// it: the last one never does, unless it was followed by the one that ends the model's turn, which is not shown.
func (g *generation) cached() int {
	if g.result.Reason == "stop" && !g.stops {
		return g.result.Tokens
	}
	return max(0, g.result.Tokens-1)
}

// report ends the output: statistics go to standard error, or as the last line of JSON.
func (g *generation) report() error {
	s := g.statistics()
	if g.json {
		return g.app.printLine(map[string]statistics{"statistics": s})
	}
	if err := g.app.print("\n"); err != nil {
		return err
	}
	w := tabwriter.NewWriter(g.app.err, 0, 8, 2, ' ', 0)
	prompt, first := fmt.Sprint(s.PromptTokens), fmt.Sprintf("first token after %.2f s", s.FirstSeconds)
	if g.tokens == 0 {
		first = fmt.Sprintf("no token after %.2f s", s.Seconds)
	}
	if s.ComputedTokens < s.PromptTokens {
		prompt = fmt.Sprintf("%d of %d", s.ComputedTokens, s.PromptTokens)
	}
	fmt.Fprintf(w, "\nprompt\t%s tokens\t%.1f tok/s\t%s\n", prompt, s.PromptRate, first)
	fmt.Fprintf(w, "generated\t%d tokens\t%.1f tok/s\tended by %s\n", s.Tokens, s.Rate, s.Reason)
	fmt.Fprintf(w, "KV cache\t%d tokens\t%s\t%s\n", s.KVTokens, size(s.KVBytes), s.KVType)
	fmt.Fprintf(w, "attention\tsplit %s\t%s\t", s.Split, s.Backend)
	if g.sampled {
		fmt.Fprintf(w, "seed %d", g.seed)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// size words a number of bytes.
func size(bytes int64) string {
	switch b := float64(bytes); {
	case bytes >= 1e9:
		return fmt.Sprintf("%.2f GB", b/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", b/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", b/1e3)
	}
	return fmt.Sprintf("%d B", bytes)
}
