package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/spf13/cobra"
)

type perplexityFlags struct {
	model, file, kv      string
	ctx, threads, chunks int
	f32, json            bool
}

func (a *app) perplexityCommand() *cobra.Command {
	f := &perplexityFlags{}
	cmd := &cobra.Command{
		Use:   "perplexity --file TEXT",
		Short: "Score a text: how well a model predicts it",
		Long: `Computes the perplexity of a text by llama.cpp's convention, so that numbers compare: chunks of --ctx tokens, each
begun with the model's first token if it has one, and the second half of each scored.`,
		Example: `  flashdecode perplexity -m model.gguf --file wiki.test.raw
  flashdecode perplexity -m model.gguf --file text.txt --kv q8_0 --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("perplexity takes no argument: give the text with --file, or on standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.perplexity(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	modelFlag(fs, &f.model)
	fs.StringVarP(&f.file, "file", "f", "", "the text; - is standard input")
	fs.IntVar(&f.ctx, "ctx", 512, "tokens of a chunk")
	fs.IntVar(&f.chunks, "chunks", 0, "score only that many chunks, at least 2 (default: all)")
	fs.StringVar(&f.kv, "kv", "f16", "number format of the KV cache: f16, bf16, f32 or q8_0")
	threadsFlag(fs, &f.threads)
	fs.BoolVar(&f.f32, "float32", false, "convert quantised weights to float32 first: four bytes a weight, slow, nothing but their own rounding")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (f *perplexityFlags) check() error {
	switch {
	case f.ctx < 4 || f.ctx > mostTokens:
		return usagef("--ctx is %d: want 4 to %d", f.ctx, mostTokens)
	case f.chunks < 0 || f.chunks == 1:
		return usagef("--chunks is %d: want at least 2 (0: all)", f.chunks)
	}
	return checkThreads(f.threads)
}

func (a *app) perplexity(ctx context.Context, f *perplexityFlags) (err error) {
	kv, err := kvType(f.kv)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := checkModel(f.model); err != nil {
		return err
	}
	if f.file == "" && !a.piped {
		return usagef("no text: give it with --file, or on standard input")
	}
	text, err := a.input(f.file, nil)
	if err != nil {
		return err
	}
	vocab, err := vocabulary(f.model)
	if err != nil {
		return err
	}
	src, err := bench.Open(f.model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	tokens := vocab.Encode(nil, strings.TrimSuffix(text, "\n"), tokenizer.EncodeOptions{AddSpecial: true})
	if tokens, err = f.cut(tokens, src, kv); err != nil {
		return err
	}
	r, err := bench.NewRunner(src, bench.Options{Threads: f.threads, MaxLogits: bench.PerplexityLogits, Float32: f.f32})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	start := time.Now()
	bar := &progress{app: a, what: "scoring", unit: "chunks", start: start}
	p, err := r.Perplexity(ctx, kv, tokens, f.ctx, firstToken(vocab), func(done, total int, sofar float64) {
		bar.what = fmt.Sprintf("perplexity %.4f", sofar)
		bar.set(done, total)
	})
	bar.clear()
	if err != nil {
		return err
	}
	return a.printPerplexity(f, &p, src.Name, kv, time.Since(start))
}

func (a *app) printPerplexity(f *perplexityFlags, p *bench.Perplexity, name string, kv quant.Type, took time.Duration) error {
	if f.json {
		return a.printJSON(struct {
			bench.Perplexity
			Model   string  `json:"model"`
			Context int     `json:"context"`
			KVType  string  `json:"kv_type"`
			Seconds float64 `json:"seconds"`
		}{*p, name, f.ctx, kv.String(), took.Seconds()})
	}
	if err := a.print(fmt.Sprintf("perplexity %.4f ± %.4f\n", p.Perplexity, p.Stderr)); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%d tokens scored in %d chunks of %d, %.2f s, %.0f tok/s\n",
		p.Scored, p.Chunks, f.ctx, took.Seconds(), float64(p.Chunks*f.ctx)/took.Seconds())
	return nil
}

// cut is the tokens to score: all, or --chunks of them. It refuses what can't be scored.
func (f *perplexityFlags) cut(tokens []int32, src *bench.Source, kv quant.Type) ([]int32, error) {
	name := f.file
	if name == "" || name == "-" {
		name = "the text"
	}
	switch have := len(tokens) / f.ctx; {
	case f.ctx > src.Config.Context:
		return nil, usagef("--ctx is %d: %s was trained for %d tokens", f.ctx, src.Name, src.Config.Context)
	case have < 2:
		return nil, fmt.Errorf("%s has %d tokens, which are less than two chunks of %d: give a longer text or a smaller --ctx", name, len(tokens), f.ctx)
	case f.chunks > have:
		return nil, usagef("--chunks is %d: %s has %d tokens, %d chunks of %d", f.chunks, name, len(tokens), have, f.ctx)
	case f.chunks > 0:
		return tokens[:f.chunks*f.ctx], fitsHeads(src, kv)
	}
	return tokens, fitsHeads(src, kv)
}

// firstToken is the token that a vocabulary puts before every text, or tokenizer.None.
func firstToken(v *tokenizer.Tokenizer) int32 {
	if ids := v.Encode(nil, "", tokenizer.EncodeOptions{AddSpecial: true}); len(ids) > 0 && ids[0] == v.BOS() {
		return v.BOS()
	}
	return tokenizer.None
}
