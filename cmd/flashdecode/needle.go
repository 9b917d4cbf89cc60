package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// needleAnswer is how many tokens of an answer are generated, and needleTurns how often each policy generates them.
const (
	needleAnswer = 32
	needleTurns  = 4
)

// needleResult is what run --needle reports.
type needleResult struct {
	Model    string      `json:"model"`
	Distance int         `json:"distance"` // tokens from the fact to the answer
	Tokens   int         `json:"prompt_tokens"`
	Fact     string      `json:"fact"`
	Question string      `json:"question"`
	Answer   string      `json:"answer"`
	Found    bool        `json:"found"`
	Seconds  float64     `json:"prompt_seconds"`
	KVBytes  int64       `json:"kv_bytes"`
	KVType   string      `json:"kv_type"`
	Backend  string      `json:"backend"`
	Policies []needleRun `json:"policies"`
	Reason   string      `json:"reason"` // the planner's, for the first policy
}

// needleRun is one policy's turn at the answer.
type needleRun struct {
	Split string  `json:"split"`
	Found bool    `json:"found"`
	Items int     `json:"items"` // pieces of work a layer's attention is cut into
	Rate  float64 `json:"tokens_per_second"`

	policy plan.Policy
	answer string
	times  []time.Duration
}

// runNeedle plants a fact, reads the prompt once, and lets each policy write the answer in turns.
func (a *app) runNeedle(ctx context.Context, f *runFlags) (err error) {
	kv, err := kvType(f.kv)
	if err != nil {
		return err
	}
	src, err := bench.Open(f.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := fitsHeads(src, kv); err != nil {
		return err
	}
	vocab, err := vocabulary(f.path)
	if err != nil {
		return err
	}
	n, prompt, err := needlePrompt(f, vocab, src.Config.Context)
	if err != nil {
		return err
	}
	r, err := bench.NewRunner(src, bench.Options{Threads: f.threads, FileOrder: f.repack == "off"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c, err := r.NewCache(kv, 1, len(prompt)+needleAnswer+1)
	if err != nil {
		return err
	}
	res, err := a.readNeedle(ctx, c, n, prompt)
	if err != nil {
		return err
	}
	res.Model, res.KVType, res.Backend = src.Name, kv.String(), r.Limits().Name
	first, err := plan.ParsePolicy(f.split)
	if err != nil {
		return badFlag("split", err)
	}
	policies := []plan.Policy{first, plan.None()}
	if first == plan.None() {
		policies = policies[:1]
	}
	if err := answerNeedle(ctx, c, vocab, n, policies, &res); err != nil {
		return err
	}
	if res.Reason, err = explain(src, r, kv, len(prompt), res.Policies); err != nil {
		return err
	}
	if f.json {
		return a.printLine(res)
	}
	return a.printNeedle(res)
}

// needlePrompt writes the prompt and checks that the context has room for it and an answer.
func needlePrompt(f *runFlags, vocab *tokenizer.Tokenizer, context int) (tiny.Needle, []int32, error) {
	if f.ctx > 0 {
		context = f.ctx
	}
	if f.needle > context { // before a prompt of that length is written
		return tiny.Needle{}, nil, usagef("--needle is %d: the context has %d tokens", f.needle, context)
	}
	count := func(text string) int { return len(vocab.Encode(nil, text, tokenizer.EncodeOptions{})) }
	n, err := tiny.NewNeedle(f.needle, f.params.Seed, count)
	if err != nil {
		return n, nil, badFlag("needle", err)
	}
	prompt := vocab.Encode(nil, n.Prompt, tokenizer.EncodeOptions{AddSpecial: true})
	if len(prompt)+needleAnswer > context {
		return n, nil, fmt.Errorf("--needle: a fact %d tokens back takes a prompt of %d tokens and %d for the answer: the context has %d",
			f.needle, len(prompt), needleAnswer, context)
	}
	return n, prompt, nil
}

// readNeedle fills the cache.
func (a *app) readNeedle(ctx context.Context, c *bench.Cache, n tiny.Needle, prompt []int32) (needleResult, error) {
	start := time.Now()
	bar := &progress{app: a, what: "reading the prompt", unit: "tokens", start: start}
	err := c.Prefill(ctx, 0, prompt, bar.set)
	bar.clear()
	return needleResult{
		Distance: n.Distance, Tokens: len(prompt), Fact: n.Fact, Question: n.Question,
		Seconds: time.Since(start).Seconds(), KVBytes: int64(len(prompt)) * c.TokenBytes(),
	}, err
}

// answerNeedle generates the answer under every policy, in turns, so that what else the machine does meets both alike.
// The first turn is not counted.
func answerNeedle(ctx context.Context, c *bench.Cache, vocab *tokenizer.Tokenizer, n tiny.Needle, policies []plan.Policy, res *needleResult) error {
	depth, first := c.Len(0), bench.Argmax(c.Logits)
	runs := make([]needleRun, len(policies))
	for turn := range needleTurns + 1 {
		for i, p := range policies {
			c.Policy = p
			c.Truncate(depth)
			ids := []int32{first}
			start := time.Now()
			for len(ids) <= needleAnswer {
				if err := c.Decode(ctx, ids[len(ids)-1:]); err != nil {
					return err
				}
				ids = append(ids, bench.Argmax(c.Logits))
			}
			d := time.Since(start)
			if turn == 0 {
				text := vocab.NewDecoder()
				r := needleRun{Split: p.String(), policy: p}
				for _, id := range ids[:len(ids)-1] {
					r.answer += text.Next(id)
				}
				r.answer, _, _ = strings.Cut(strings.TrimLeft(r.answer, " \n"), "\n")
				r.Found = n.Found(r.answer) || strings.Contains(r.answer, n.Answer)
				runs[i] = r
				continue
			}
			runs[i].times = append(runs[i].times, d)
		}
	}
	for i := range runs {
		slices.Sort(runs[i].times)
		runs[i].Rate = needleAnswer / runs[i].times[len(runs[i].times)/2].Seconds()
	}
	res.Policies, res.Answer, res.Found = runs, runs[0].answer, runs[0].Found
	return nil
}

// explain asks the planner for the number of items of each policy and the reason of the first.
func explain(src *bench.Source, r *bench.Runner, kv quant.Type, tokens int, runs []needleRun) (reason string, err error) {
	var pl plan.Planner
	var p plan.Plan
	seqs := []plan.Seq{{QLen: 1, KVLen: int32(tokens)}}
	for i := len(runs) - 1; i >= 0; i-- {
		if err := pl.Plan(&p, bench.Shape(&src.Config, kv), seqs, r.Limits().Plan, runs[i].policy); err != nil {
			return "", err
		}
		runs[i].Items = len(p.Items)
	}
	return p.Reason.String(), nil
}

func (a *app) printNeedle(r needleResult) error {
	var b strings.Builder
	verdict := "NOT FOUND"
	if r.Found {
		verdict = "FOUND"
	}
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "planted\t%s\t(%d tokens back)\n", r.Fact, r.Distance)
	fmt.Fprintf(w, "asked\t%s\t\n", r.Question)
	fmt.Fprintf(w, "answered\t%s\t%s\n", r.Answer, verdict)
	w.Flush()
	b.WriteString("\n")
	w = tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "attention\titems a layer\ttokens/s\tanswer\t")
	for _, p := range r.Policies {
		found := "not found"
		if p.Found {
			found = "found"
		}
		fmt.Fprintf(w, "split %s\t%d\t%.1f\t%s\t\n", p.Split, p.Items, p.Rate, found)
	}
	w.Flush()
	if err := a.print(b.String()); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "\n%s on %s; prompt of %d tokens read at %.0f tok/s; KV cache %s as %s\n",
		r.Model, r.Backend, r.Tokens, float64(r.Tokens)/r.Seconds, size(r.KVBytes), r.KVType)
	fmt.Fprintf(a.err, "why: %s\n", r.Reason)
	return nil
}

// vocabulary opens a model's tokenizer, the embedded one's without a path.
func vocabulary(path string) (*tokenizer.Tokenizer, error) {
	if path != "" {
		return flashdecode.OpenTokenizer(path)
	}
	m, err := flashdecode.Embedded(flashdecode.Threads(1), flashdecode.MaxSequences(1))
	if err != nil {
		return nil, err
	}
	return m.Tokenizer(), m.Close()
}
