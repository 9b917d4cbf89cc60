package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// needleAnswer is how many tokens of an answer are generated, and needleTurns how often each policy generates them.
const (
	needleAnswer = 32
	needleTurns  = 4
	oneHeadTurns = 25 // of some milliseconds
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

	// SamePlan says that the policies cut attention alike, so that there was one thing to time. OneHead is then the
	// attention of one KV head of the model by itself, where they differ; empty if threads are left idle anyway.
	SamePlan bool                    `json:"same_plan"`
	OneHead  []bench.AttentionResult `json:"one_kv_head,omitempty"`
}

// needleRun is one policy's turn at the answer.
type needleRun struct {
	Split string  `json:"split"`
	Found bool    `json:"found"`
	Items int     `json:"items"` // pieces of work a layer's attention is cut into
	Rate  float64 `json:"tokens_per_second"`
	Ratio float64 `json:"times_none"` // to the rate of split none, median of the turns' ratios

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
	if err := explain(&src.Config, r.Limits().Plan, kv, len(prompt), policies, &res); err != nil {
		return err
	}
	if err := answerNeedle(ctx, c, vocab, n, &res); err != nil {
		return err
	}
	if w := r.Limits().Plan.Workers; res.SamePlan && w > 1 && res.Policies[0].Items >= w {
		if res.OneHead, err = a.oneHead(ctx, f, &src.Config, kv, policies, &res); err != nil {
			return err
		}
	}
	if f.json {
		return a.printLine(res)
	}
	return a.printNeedle(res)
}

// oneHead times the attention of one KV head alone, walking through as much as that head has in all layers.
func (a *app) oneHead(ctx context.Context, f *runFlags, c *model.Config, kv quant.Type, policies []plan.Policy, res *needleResult) ([]bench.AttentionResult, error) {
	bar := &progress{app: a, start: time.Now()}
	defer bar.clear()
	return bench.Attention(ctx, bench.AttentionTest{
		QHeads: c.QHeads / c.KVHeads, KVHeads: 1, HeadDim: c.HeadDim, KV: kv, Lens: []int{res.Tokens}, Splits: policies,
		Threads: f.threads, Footprint: res.KVBytes / int64(c.KVHeads), Reps: oneHeadTurns, Seed: 1,
	}, bar.show)
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
// The first turn is not counted. Policies that make the same plan are one turn: what two of them would differ by is
// noise.
func answerNeedle(ctx context.Context, c *bench.Cache, vocab *tokenizer.Tokenizer, n tiny.Needle, res *needleResult) error {
	depth, first := c.Len(0), bench.Argmax(c.Logits)
	runs := res.Policies
	if res.SamePlan {
		runs = runs[:1]
	}
	for turn := range needleTurns + 1 {
		for i := range runs {
			c.Policy = runs[i].policy
			c.Truncate(depth)
			ids := []int32{first}
			start := time.Now()
			for len(ids) <= needleAnswer {
				if err := c.Decode(ctx, ids[len(ids)-1:]); err != nil {
					return err
				}
				ids = append(ids, bench.Argmax(c.Logits))
			}
			if d := time.Since(start); turn > 0 {
				runs[i].times = append(runs[i].times, d)
				continue
			}
			runs[i].answer = answerText(vocab, ids[:len(ids)-1])
			runs[i].Found = n.Found(runs[i].answer) || strings.Contains(runs[i].answer, n.Answer)
		}
	}
	if res.SamePlan {
		same := runs[0]
		for i := range res.Policies[1:] {
			same.Split, same.policy = res.Policies[i+1].Split, res.Policies[i+1].policy
			res.Policies[i+1] = same
		}
	}
	rate(res.Policies)
	res.Answer, res.Found = runs[0].answer, runs[0].Found
	return nil
}

// answerText is the first line of what was generated.
func answerText(vocab *tokenizer.Tokenizer, ids []int32) (text string) {
	d := vocab.NewDecoder()
	for _, id := range ids {
		text += d.Next(id)
	}
	text, _, _ = strings.Cut(strings.TrimLeft(text, " \n"), "\n")
	return text
}

// rate computes the rates of the runs and their ratios to the last, which is split none.
func rate(runs []needleRun) {
	none := runs[len(runs)-1].times
	for i := range runs {
		r := &runs[i]
		ratios := make([]float64, len(r.times))
		for turn, d := range r.times {
			ratios[turn] = none[turn].Seconds() / d.Seconds()
		}
		r.Rate, r.Ratio = needleAnswer/median(r.times).Seconds(), median(ratios)
	}
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// explain plans the decode step under every policy: the number of items, whether the plans are the same, and the
// planner's reason for the first.
func explain(c *model.Config, lim plan.Limits, kv quant.Type, tokens int, policies []plan.Policy, res *needleResult) error {
	seqs := []plan.Seq{{QLen: 1, KVLen: int32(tokens)}}
	plans := make([]plan.Plan, len(policies))
	for i, p := range policies {
		var pl plan.Planner
		if err := pl.Plan(&plans[i], bench.Shape(c, kv), seqs, lim, p); err != nil {
			return err
		}
		res.Policies = append(res.Policies, needleRun{Split: p.String(), policy: p, Items: len(plans[i].Items)})
	}
	res.SamePlan = len(plans) > 1 && slices.Equal(plans[0].Items, plans[1].Items)
	res.Reason = plans[0].Reason.String()
	return nil
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
	r.table(&b)
	if err := a.print(b.String()); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "\n%s on %s; prompt of %d tokens read at %.0f tok/s; KV cache %s as %s\n",
		r.Model, r.Backend, r.Tokens, float64(r.Tokens)/r.Seconds, size(r.KVBytes), r.KVType)
	fmt.Fprintf(a.err, "why: %s\n", r.Reason)
	return nil
}

// table compares the policies.
func (r *needleResult) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "attention\titems a layer\ttokens/s\t× none\tanswer\t")
	for _, p := range r.Policies {
		found := "not found"
		if p.Found {
			found = "found"
		}
		name := "split " + p.Split
		if r.SamePlan {
			name += " = none"
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.2f\t%s\t\n", name, p.Items, p.Rate, p.Ratio, found)
		if r.SamePlan {
			break
		}
	}
	w.Flush()
	if !r.SamePlan {
		return
	}
	if len(r.OneHead) == 0 {
		fmt.Fprintf(b, "\nBoth make the same plan: %s.\n", r.Reason)
		return
	}
	fmt.Fprintf(b, "\nBoth make the same plan: the KV heads, one an item, keep all %d threads busy without a split. A model with fewer KV\n"+
		"heads than there are threads leaves some idle. One of these KV heads by itself:\n\n", r.OneHead[0].Threads)
	w = tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "attention\titems a layer\tµs a layer\tGB/s\t× none\t")
	none := r.OneHead[len(r.OneHead)-1]
	for _, x := range r.OneHead {
		fmt.Fprintf(w, "split %s\t%d\t%.1f\t%.1f\t%.2f\t\n", x.Split, x.Items, float64(x.NS)/1000, x.GBps, x.GBps/none.GBps)
	}
	w.Flush()
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
