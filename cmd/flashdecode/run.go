package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/sample"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// modelFlags say which model to open, and how.
type modelFlags struct {
	path              string
	ctx, threads      int
	kv, split, repack string
}

func (f *modelFlags) register(fs *pflag.FlagSet) {
	modelFlag(fs, &f.path)
	fs.IntVar(&f.ctx, "ctx", 0, "most tokens, prompt included (default: what the model was trained for)")
	fs.StringVar(&f.kv, "kv", "f16", "number format of the KV cache: f16, bf16, f32 or q8_0")
	fs.StringVar(&f.split, "split", "auto", "how attention is split: auto, none, fixed:N (tokens) or splits:S")
	threadsFlag(fs, &f.threads)
	fs.StringVar(&f.repack, "repack", "auto", "rearrange weights at first use: auto, on, or off (the order of the file)")
}

func modelFlag(fs *pflag.FlagSet, path *string) {
	fs.StringVarP(path, "model", "m", "", "GGUF file, or directory with safetensors (default: the embedded model)")
}

func threadsFlag(fs *pflag.FlagSet, n *int) {
	fs.IntVarP(n, "threads", "t", 0, "threads that compute (default: all processors)")
}

// checkThreads refuses more threads than processors: they would spin against each other, and steps take seconds.
func checkThreads(n int) error {
	if most := runtime.NumCPU(); n < 0 || n > most {
		return usagef("--threads is %d: want 1 to %d, the processors of this machine (0: all)", n, most)
	}
	return nil
}

// open opens the model, the embedded one without a path.
func (f *modelFlags) open() (*flashdecode.Model, error) {
	opts := []flashdecode.Option{flashdecode.MaxSequences(1)}
	for _, o := range []struct {
		name string
		opt  flashdecode.Option
	}{
		{"ctx", flashdecode.Context(f.ctx)}, {"kv", flashdecode.KV(f.kv)},
		{"split", flashdecode.Split(f.split)}, {"repack", flashdecode.Repack(f.repack)},
	} {
		opts = append(opts, named(o.name, o.opt))
	}
	if f.threads != 0 {
		opts = append(opts, named("threads", flashdecode.Threads(f.threads)))
	}
	if f.path == "" {
		return flashdecode.Embedded(opts...)
	}
	return flashdecode.Open(f.path, opts...)
}

// named makes what an option complains about a usage error that names the flag. C is what a flashdecode.Option
// changes.
func named[C any](flag string, opt func(*C) error) func(*C) error {
	return func(c *C) error {
		if err := opt(c); err != nil {
			return badFlag(flag, err)
		}
		return nil
	}
}

// badFlag is the usage error for the value of a flag.
func badFlag(flag string, err error) error {
	return usagef("--%s: %s", flag, message(err))
}

// runFlags are all flags of run.
type runFlags struct {
	modelFlags
	file, system string
	chat, raw    bool
	maxTokens    int
	params       sample.Params
	stop         []string
	json         bool
	needle       int
}

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{params: sample.Greedy()}
	cmd := &cobra.Command{
		Use:   "run [prompt]",
		Short: "Generate text",
		Long: `Generates text from a prompt: the argument, --file, or standard input.

A model with a chat template answers the prompt, unless --raw asks to continue it as it is; the embedded model, which
tells stories, continues it unless --chat is given. Without a prompt the embedded model tells a story.

The text goes to standard output as it comes, statistics to standard error. Sampling is greedy unless --temperature
is set.`,
		Example: `  flashdecode run
  flashdecode run "The dragon opened one eye and"
  flashdecode run --needle 12000
  flashdecode run -m model.gguf --temperature 0.7 --min-p 0.05 "Why is the sky blue?"
  flashdecode run -m model.gguf --system "Summarise in three sentences." < report.txt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, f, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.register(fs)
	fs.StringVarP(&f.file, "file", "f", "", "read the prompt from this file; - is standard input")
	fs.BoolVar(&f.chat, "chat", false, "ask through the model's chat template")
	fs.BoolVar(&f.raw, "raw", false, "continue the prompt, without a chat template")
	fs.StringVar(&f.system, "system", "", "system message of the chat")
	fs.IntVarP(&f.maxTokens, "max-tokens", "n", 0, "most tokens to generate (default: until the model ends)")
	fs.Float32Var(&f.params.Temperature, "temperature", 0, "0 takes the likeliest token; higher is more varied")
	fs.IntVar(&f.params.TopK, "top-k", 0, "choose among the K likeliest tokens (0: off)")
	fs.Float32Var(&f.params.TopP, "top-p", 1, "choose among the likeliest tokens that make up this probability (1: off)")
	fs.Float32Var(&f.params.MinP, "min-p", 0, "drop tokens below this part of the likeliest one's probability (0: off)")
	fs.Float32Var(&f.params.RepetitionPenalty, "repeat-penalty", 1, "divide the logits of tokens already generated (1: off)")
	fs.Uint64Var(&f.params.Seed, "seed", 0, "the same seed gives the same text (default: random)")
	fs.StringArrayVar(&f.stop, "stop", nil, "end before this text would appear (repeatable)")
	fs.IntVar(&f.needle, "needle", 0, "plant a fact that many tokens back and ask for it, with and without split attention")
	fs.BoolVar(&f.json, "json", false, "write tokens as lines of JSON, then one with statistics")
	return cmd
}

func (f *runFlags) check(fs *pflag.FlagSet) error {
	if err := checkThreads(f.threads); err != nil {
		return err
	}
	if err := f.params.Validate(); err != nil {
		text := strings.Replace(strings.TrimPrefix(err.Error(), "sample: "), "repetition penalty", "repeat-penalty", 1)
		return usagef("--%s", text)
	}
	switch {
	case f.maxTokens < 0:
		return usagef("--max-tokens is %d: want at least 0 (0: until the model ends)", f.maxTokens)
	case fs.Changed("needle") && f.needle < 1:
		return usagef("--needle is %d: want how many tokens back the fact is to stand, such as 12000", f.needle)
	case f.chat && f.raw:
		return usagef("--chat and --raw exclude each other")
	case f.needle > 0 && (f.file != "" || f.chat || f.raw || f.system != ""):
		return usagef("--needle writes its own prompt: leave out --file, --chat, --raw and --system")
	case f.raw && f.system != "":
		return usagef("--system needs the chat template, which --raw leaves out")
	}
	if _, err := plan.ParsePolicy(f.split); err != nil {
		return badFlag("split", err)
	}
	if !fs.Changed("seed") {
		f.params.Seed = rand.Uint64() >> 11 // 53 bits: JSON readers keep them all
	}
	f.params.LogProbs = f.json
	return nil
}

func (a *app) run(cmd *cobra.Command, f *runFlags, args []string) error {
	if err := f.check(cmd.Flags()); err != nil {
		return err
	}
	if f.needle > 0 {
		if len(args) > 0 {
			return usagef("--needle writes its own prompt: leave out the argument")
		}
		return a.runNeedle(cmd.Context(), f)
	}
	if err := checkModel(f.path); err != nil {
		return err
	}
	prompt, err := a.prompt(f, args)
	if err != nil {
		return err
	}
	m, err := f.open()
	if err != nil {
		return err
	}
	if err := f.checkChat(m.Info().Name, m.HasChatTemplate()); err != nil {
		return errors.Join(err, m.Close())
	}
	demo := prompt == ""
	if demo {
		prompt = tiny.StoryPrompt
	}
	g := &generation{app: a, model: m, json: f.json, sampled: f.params.Temperature > 0, seed: f.params.Seed, stops: len(f.stop) > 0}
	if demo {
		g.lead = prompt
	}
	err = g.run(cmd.Context(), f.source(m, prompt, demo))
	if errors.Is(err, errInterrupted) {
		go m.Close() // the step under way may take long, and nobody waits for it
		return err
	}
	if errors.Is(err, engine.ErrTooLong) {
		err = f.tooLong(err, m.Info())
	}
	if demo && err == nil && !f.json {
		fmt.Fprintln(a.err, "\nThat was the embedded model. Long context is what flashdecode is for; see it find a fact 12,000 tokens back:\n  flashdecode run --needle 12000")
	}
	return errors.Join(err, m.Close())
}

// checkChat refuses what needs a chat template of a model that has none.
func (f *runFlags) checkChat(name string, template bool) error {
	switch {
	case template:
		return nil
	case f.chat:
		return usagef("--chat: %s has no chat template: leave --chat out to have the prompt continued", name)
	case f.system != "":
		return usagef("--system: %s has no chat template to put it in: leave --system out, or write it into the prompt", name)
	}
	return nil
}

// tooLong adds what to do about a prompt that is too long.
func (f *runFlags) tooLong(err error, info flashdecode.Info) error {
	what := "the prompt"
	if f.file != "" && f.file != "-" {
		what = f.file
	}
	if info.KVTokens < info.Context {
		return fmt.Errorf("%w: half of this machine's memory holds %d tokens as %s: choose a smaller --kv, or shorten %s", err, info.KVTokens, info.KVType, what)
	}
	return fmt.Errorf("%w: raise --ctx above %d, or shorten %s", err, info.Context, what)
}

// prompt returns the text to start from, "" if the embedded model is to show a story.
func (a *app) prompt(f *runFlags, args []string) (text string, err error) {
	switch {
	case len(args) > 0 && f.file != "":
		return "", usagef("the prompt is both an argument and in --file %s: give one", f.file)
	case len(args) > 0 && args[0] != "-":
		text = args[0]
	case f.file != "":
		text, err = a.readText(f.file)
	case len(args) > 0 || a.piped:
		text, err = a.readText("-")
	}
	if err != nil {
		return "", err
	}
	if text == "" && (f.path != "" || f.chat || f.system != "" || len(args) > 0 || f.file != "") {
		return "", usagef("no prompt: give it as the argument, with --file, or on standard input")
	}
	return text, nil
}

// source starts the generation: it chats with a model that can, unless told otherwise.
func (f *runFlags) source(m *flashdecode.Model, prompt string, demo bool) source {
	return func(ctx context.Context, opts ...flashdecode.GenerateOption) tokens {
		opts = append(opts, flashdecode.Sampling(f.params), flashdecode.MaxTokens(f.maxTokens), flashdecode.Stop(f.stop...))
		chat := f.chat || f.system != "" || f.path != "" && !f.raw && m.HasChatTemplate()
		if demo || !chat {
			return m.Generate(ctx, prompt, opts...)
		}
		messages := []flashdecode.Message{{Role: "user", Content: strings.TrimSpace(prompt)}}
		if f.system != "" {
			messages = append([]flashdecode.Message{{Role: "system", Content: f.system}}, messages...)
		}
		return m.Chat(ctx, messages, opts...)
	}
}
