package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Tests says what Run measures: every combination.
type Tests struct {
	Prompt  []int // tokens of pp tests; 0 is none
	Gen     []int // tokens of tg tests; 0 is none
	Depths  []int
	KV      []quant.Type
	Splits  []plan.Policy // tg only: prompts have work enough without splits, and run once, under the first of these
	Batches []int         // tg only: sequences that decode together
	Reps    int
	Seed    uint64
}

// Result is one test. The names in JSON are llama-bench's, where it has them; rates are tokens per second of all
// sequences together.
type Result struct {
	Commit   string  `json:"build_commit"`
	CPU      string  `json:"cpu_info"`
	Backend  string  `json:"backend"`
	File     string  `json:"model_filename"`
	Type     string  `json:"model_type"`
	Bytes    int64   `json:"model_size"`
	Params   int64   `json:"model_n_params"`
	Chunk    int     `json:"n_batch"`
	Threads  int     `json:"n_threads"`
	TypeK    string  `json:"type_k"`
	TypeV    string  `json:"type_v"`
	Split    string  `json:"split"`
	Batch    int     `json:"batch"`
	Prompt   int     `json:"n_prompt"`
	Gen      int     `json:"n_gen"`
	Depth    int     `json:"n_depth"`
	Time     string  `json:"test_time"`
	AvgNS    int64   `json:"avg_ns"`
	StddevNS int64   `json:"stddev_ns"`
	AvgTS    float64 `json:"avg_ts"`
	StddevTS float64 `json:"stddev_ts"`
	// Speedup is the median, over repetitions, of the rate over that of the first policy in the same turn: the figure
	// to compare policies by. 0 if there is one policy.
	Speedup float64 `json:"speedup,omitempty"`

	SamplesNS []int64   `json:"samples_ns"`
	SamplesTS []float64 `json:"samples_ts"`
}

// Test is the result's short name, as llama-bench prints it: "tg128 @ d2048".
func (r *Result) Test() string {
	name := fmt.Sprintf("tg%d", r.Gen)
	if r.Prompt > 0 {
		name = fmt.Sprintf("pp%d", r.Prompt)
	}
	if r.Depth > 0 {
		name += fmt.Sprintf(" @ d%d", r.Depth)
	}
	return name
}

// add records a repetition that took d.
func (r *Result) add(d time.Duration) {
	ns := max(d.Nanoseconds(), 1)
	r.SamplesNS = append(r.SamplesNS, ns)
	r.SamplesTS = append(r.SamplesTS, float64((r.Prompt+r.Gen)*r.Batch)*1e9/float64(ns))
}

// finish computes averages and deviations.
func (r *Result) finish() {
	ns := make([]float64, len(r.SamplesNS))
	for i, n := range r.SamplesNS {
		ns[i] = float64(n)
	}
	avg, dev := meanDev(ns)
	r.AvgNS, r.StddevNS = int64(avg), int64(dev)
	r.AvgTS, r.StddevTS = meanDev(r.SamplesTS)
}

// meanDev is the mean of x and its sample standard deviation, 0 for a single x.
func meanDev(x []float64) (mean, dev float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		dev += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(dev / float64(len(x)-1))
}

// Report is told how a Run goes on. Both functions are called by Run's goroutine.
type Report struct {
	Result   func(Result) error
	Progress func(what string, done, total int)
}

// run is a Run under way.
type run struct {
	r      *Runner
	t      Tests
	report Report
	head   Result // what all results have in common
	cache  *Cache
	depth  int // tokens of the cache that stay
	tokens []int32
}

// Run measures all tests of t, which r must be large enough for: MaxLogits at least the largest batch. commit and cpu
// are noted in the results.
func (r *Runner) Run(ctx context.Context, t Tests, commit, cpu string, report Report) error {
	if t.Reps < 1 || len(t.Depths) == 0 || len(t.KV) == 0 || len(t.Splits) == 0 || len(t.Batches) == 0 {
		return fmt.Errorf("bench: %d repetitions of nothing", t.Reps)
	}
	l := r.Limits()
	head := Result{
		Commit: commit, CPU: cpu, Backend: l.Name, File: r.source.Name,
		Type: r.Model.Arch + " " + r.source.Type.String(), Bytes: r.source.Bytes, Params: r.source.Params,
		Chunk: r.opts.Chunk, Threads: l.Plan.Workers, Batch: 1,
	}
	for _, kv := range t.KV {
		head.TypeK, head.TypeV = kv.String(), kv.String()
		for i, batch := range t.Batches {
			x := &run{r: r, t: t, report: report, head: head}
			if i > 0 {
				x.t.Prompt = nil // a prompt is one sequence's, whatever the batch
			}
			if err := x.all(ctx, kv, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// all measures every depth of one KV format and batch.
func (x *run) all(ctx context.Context, kv quant.Type, batch int) (err error) {
	longest := max(slices.Max(append([]int{warmSteps}, x.t.Prompt...)), slices.Max(append([]int{0}, x.t.Gen...)))
	if x.cache, err = x.r.NewCache(kv, batch, slices.Max(x.t.Depths)+longest); err != nil {
		return err
	}
	x.tokens = make([]int32, max(longest, slices.Max(x.t.Depths), batch))
	RandomTokens(x.tokens, x.r.Model.Vocab, x.t.Seed)
	for _, depth := range x.t.Depths {
		if err == nil {
			err = x.fill(ctx, depth)
		}
		for _, n := range x.t.Prompt {
			if n > 0 && err == nil {
				err = x.prompt(ctx, n)
			}
		}
		for _, n := range x.t.Gen {
			if n > 0 && err == nil {
				err = x.gen(ctx, n, batch)
			}
		}
	}
	if e := x.cache.Close(); err == nil {
		err = e
	}
	return err
}

// fill brings every sequence to a depth. What is left of a smaller depth is kept.
func (x *run) fill(ctx context.Context, depth int) error {
	from := min(x.depth, depth)
	x.cache.Truncate(from)
	what := fmt.Sprintf("filling the cache to %d tokens", depth)
	x.cache.Policy = plan.Auto()
	err := x.cache.Prefill(ctx, 0, x.tokens[from:depth], func(done, total int) { x.progress(what, done, total) })
	if err != nil {
		return err
	}
	x.depth = depth
	return x.cache.Broadcast(from)
}

func (x *run) progress(what string, done, total int) {
	if x.report.Progress != nil {
		x.report.Progress(what, done, total)
	}
}

// prompt measures a pp test. The first run of all is not counted: it repacks weights and touches memory.
func (x *run) prompt(ctx context.Context, n int) error {
	res := x.result(x.t.Splits[0])
	res.Prompt = n
	x.cache.Policy = x.t.Splits[0]
	for i := range x.t.Reps + 1 {
		x.cache.Truncate(x.depth)
		start := time.Now()
		if err := x.cache.Prefill(ctx, 0, x.tokens[:n], nil); err != nil {
			return err
		}
		if i > 0 {
			res.add(time.Since(start))
		}
		x.progress(res.Test(), i+1, x.t.Reps+1)
	}
	x.cache.Truncate(x.depth)
	return x.done(res)
}

// warmSteps is how many tokens are generated before a tg test is timed.
const warmSteps = 4

// gen measures a tg test of every policy, in turns.
func (x *run) gen(ctx context.Context, n, batch int) error {
	results := make([]*Result, len(x.t.Splits))
	for i, p := range x.t.Splits {
		results[i] = x.result(p)
		results[i].Gen, results[i].Batch = n, batch
		if _, err := x.decode(ctx, p, min(n, warmSteps), batch); err != nil {
			return err
		}
	}
	for rep := range x.t.Reps {
		for i, p := range x.t.Splits {
			d, err := x.decode(ctx, p, n, batch)
			if err != nil {
				return err
			}
			results[i].add(d)
			x.progress(results[i].Test(), rep*len(x.t.Splits)+i+1, x.t.Reps*len(x.t.Splits))
		}
	}
	for _, r := range results {
		if len(results) > 1 {
			r.Speedup = medianRatio(r.SamplesTS, results[0].SamplesTS)
		}
		if err := x.done(r); err != nil {
			return err
		}
	}
	return nil
}

// medianRatio is the median of a[i]/b[i].
func medianRatio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

// decode generates n tokens for every sequence, and takes them back.
func (x *run) decode(ctx context.Context, p plan.Policy, n, batch int) (time.Duration, error) {
	x.cache.Policy = p
	start := time.Now()
	for i := range n {
		at := i % (len(x.tokens) - batch + 1)
		if err := x.cache.Decode(ctx, x.tokens[at:at+batch]); err != nil {
			return 0, err
		}
	}
	d := time.Since(start)
	x.cache.Truncate(x.depth)
	return d, nil
}

func (x *run) result(p plan.Policy) *Result {
	r := x.head
	r.Depth, r.Split, r.Time = x.depth, p.String(), time.Now().UTC().Format(time.RFC3339)
	return &r
}

func (x *run) done(r *Result) error {
	r.finish()
	if x.report.Result == nil {
		return nil
	}
	return x.report.Result(*r)
}
