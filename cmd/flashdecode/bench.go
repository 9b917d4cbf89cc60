package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/internal/host"
	"github.com/flashdecode/flashdecode/internal/plot"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/spf13/cobra"
)

type benchFlags struct {
	model                 string
	prompt, gen, depth    []string
	kv, split             []string
	batch                 []int
	reps, threads, ubatch int
	output, plot, repack  string
	lens                  []string // bench attn
	shape                 shapeFlags
	shuffle               bool
	footprint             int
	cuda                  cudaFlags
}

func (a *app) benchCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure tokens per second: prompts and generation, at any depth, split against no split",
		Long: `Measures a model by llama-bench's conventions: pp N reads a prompt of N random tokens, tg N generates N tokens, each
at depths of tokens that are in the cache already; repetitions follow a run that is not counted.

What is to be compared takes turns: with --split none,auto the policies alternate between repetitions, so that
whatever else the machine does meets both alike, and "× first" is the median of the turns' ratios.`,
		Example: `  flashdecode bench
  flashdecode bench -m model.gguf -p 512 -n 64 -d 0,2k,8k --split none,auto
  flashdecode bench -m model.gguf -p 0 -d 4k -b 1,8 --kv f16,q8_0 -o jsonl
  flashdecode bench -m model.gguf -p 0 -d 0,4k,8k,16k --split none,auto --plot depth.svg
  flashdecode bench -o benchstat > new.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	modelFlag(fs, &f.model)
	fs.StringSliceVarP(&f.prompt, "prompt", "p", []string{"512"}, "prompt tokens of pp tests (0: none)")
	fs.StringSliceVarP(&f.gen, "gen", "n", []string{"128"}, "generated tokens of tg tests (0: none)")
	fs.StringSliceVarP(&f.depth, "depth", "d", []string{"0"}, "tokens in the cache before")
	fs.IntSliceVarP(&f.batch, "batch", "b", []int{1}, "sequences that decode together; t/s are of all")
	fs.IntVarP(&f.reps, "reps", "r", 5, "repetitions")
	threadsFlag(fs, &f.threads)
	fs.IntVar(&f.ubatch, "ubatch", 512, "most tokens of a step")
	fs.StringSliceVar(&f.kv, "kv", []string{"f16"}, "number formats of the KV cache")
	fs.StringSliceVar(&f.split, "split", []string{"auto"}, "how attention is split: none, auto, fixed:N, splits:S; several take turns")
	fs.StringVar(&f.repack, "repack", "auto", "rearrange weights at first use: auto, on, or off")
	fs.StringVarP(&f.output, "output", "o", "md", "format: "+strings.Join(bench.Formats, ", "))
	fs.StringVar(&f.plot, "plot", "", "draw tokens per second against depth to this SVG file, and on standard error")
	cmd.AddCommand(a.benchAttnCommand())
	return cmd
}

// mostBenchTokens bounds a prompt, a depth and a generation: a million tokens, the longest context that is meant.
const mostBenchTokens = 1 << 20

// tests reads the flags' lists.
func (f *benchFlags) tests() (t bench.Tests, err error) {
	if t.Prompt, err = parseList("prompt", f.prompt); err != nil {
		return t, err
	}
	if t.Gen, err = parseList("gen", f.gen); err != nil {
		return t, err
	}
	if t.Depths, err = parseList("depth", f.depth); err != nil {
		return t, err
	}
	if err := f.variants(&t.KV, &t.Splits); err != nil {
		return t, err
	}
	t.Batches, t.Reps, t.Seed = f.batch, f.reps, 1
	switch {
	case f.reps < 1:
		return t, usagef("--reps is %d: want at least 1", f.reps)
	case f.ubatch < 1 || f.ubatch > 1<<16:
		return t, usagef("--ubatch is %d: want 1 to 65536", f.ubatch)
	case slices.Max(slices.Concat(t.Prompt, t.Gen, t.Depths, []int{0})) > mostBenchTokens:
		return t, usagef("--prompt, --gen and --depth go up to %d tokens", mostBenchTokens)
	case len(f.batch) == 0 || slices.Min(f.batch) < 1 || slices.Max(f.batch) > f.ubatch:
		return t, usagef("--batch is %v: want 1 to %d (--ubatch) sequences", f.batch, f.ubatch)
	case len(t.Depths) == 0:
		return t, usagef("--depth is empty")
	case f.repack != "auto" && f.repack != "on" && f.repack != "off":
		return t, usagef("--repack: %q is not one of auto, on, off", f.repack)
	case slices.Max(append(slices.Concat(t.Prompt, t.Gen), 0)) == 0:
		return t, usagef("nothing to measure: --prompt and --gen are 0")
	}
	return t, checkThreads(f.threads)
}

// mostTested is how many tokens the longest of the tests has in the cache at its end.
func mostTested(t bench.Tests) int {
	return slices.Max(append(slices.Clone(t.Depths), 0)) + slices.Max(append(slices.Concat(t.Prompt, t.Gen), 0))
}

// variants reads --kv and --split.
func (f *benchFlags) variants(kvs *[]quant.Type, splits *[]plan.Policy) error {
	for _, name := range f.kv {
		kv, err := kvType(name)
		if err != nil {
			return err
		}
		*kvs = append(*kvs, kv)
	}
	for _, name := range f.split {
		p, err := plan.ParsePolicy(name)
		if err != nil {
			return badFlag("split", err)
		}
		*splits = append(*splits, p)
	}
	if len(*kvs) == 0 || len(*splits) == 0 {
		return usagef("--kv and --split must not be empty")
	}
	return nil
}

func (a *app) bench(ctx context.Context, f *benchFlags) (err error) {
	t, err := f.tests()
	if err != nil {
		return err
	}
	w, err := bench.NewWriter(a.writer(), f.output)
	if err != nil {
		return badFlag("output", err)
	}
	src, err := bench.Open(f.model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for _, kv := range t.KV {
		if err := fitsHeads(src, kv); err != nil {
			return err
		}
	}
	if most := mostTested(t); most > src.Config.Context {
		fmt.Fprintf(a.err, "warning: tests go up to %d tokens, beyond the %d that %s was trained for: speed can be measured there, good text can't be expected\n",
			most, src.Config.Context, src.Name)
	}
	picture, err := openPlot(f.plot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, picture.close(err)) }()
	r, err := bench.NewRunner(src, bench.Options{
		Threads: f.threads, Chunk: f.ubatch, MaxLogits: slices.Max(f.batch), FileOrder: f.repack == "off",
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	bar := &progress{app: a, start: time.Now()}
	var all []bench.Result
	err = r.Run(ctx, t, buildInfo().Commit, host.CPU().Model, bench.Report{
		Result: func(res bench.Result) error {
			bar.clear()
			all = append(all, res)
			return w.Write(res)
		},
		Progress: bar.show,
	})
	bar.clear()
	if e := w.Close(); err == nil {
		err = e
	}
	if err != nil || picture == nil {
		return err
	}
	return a.plot(picture, chart(src.Name, all))
}

// writer is standard output with errors that say so.
func (a *app) writer() writerFunc {
	return func(b []byte) (int, error) { return len(b), a.print(string(b)) }
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// chart draws tg tests, or pp tests if there are no others: a line for each KV format, split and batch.
func chart(name string, all []bench.Result) plot.Chart {
	c := plot.Chart{Title: name, XLabel: "tokens in the cache", YLabel: "tokens/s"}
	gen := slices.ContainsFunc(all, func(r bench.Result) bool { return r.Gen > 0 })
	for _, r := range all {
		if gen != (r.Gen > 0) {
			continue
		}
		line := fmt.Sprintf("%s, KV %s, split %s", strings.Fields(r.Test())[0], r.TypeK, r.Split)
		if r.Batch > 1 {
			line += fmt.Sprintf(", %d sequences", r.Batch)
		}
		at := slices.IndexFunc(c.Series, func(s plot.Series) bool { return s.Name == line })
		if at < 0 {
			at = len(c.Series)
			c.Series = append(c.Series, plot.Series{Name: line})
		}
		c.Series[at].Points = append(c.Series[at].Points, plot.Point{X: float64(r.Depth), Y: r.AvgTS, Err: r.StddevTS})
	}
	for _, s := range c.Series {
		slices.SortStableFunc(s.Points, func(p, q plot.Point) int { return int(p.X - q.X) })
	}
	return c
}

// plotFile is a picture to be: it is opened before anything is measured, because measuring may take an hour.
type plotFile struct {
	file    *os.File
	old     bool // there was a file of that name
	regular bool // and not a device or a pipe
}

// openPlot opens path without touching what is there; "" is no picture.
func openPlot(path string) (*plotFile, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	p := &plotFile{old: err == nil, regular: err != nil || info.Mode().IsRegular()}
	if p.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return nil, badFlag("plot", err)
	}
	return p, nil
}

// close removes a file that is new and was not drawn because of err.
func (p *plotFile) close(err error) error {
	if p == nil {
		return nil
	}
	closed := p.file.Close()
	if err != nil && !p.old {
		closed = errors.Join(closed, os.Remove(p.file.Name()))
	}
	return closed
}

func (a *app) plot(p *plotFile, c plot.Chart) error {
	fmt.Fprint(a.err, "\n", c.Text())
	if p.regular {
		if err := p.file.Truncate(0); err != nil {
			return err
		}
	}
	return c.SVG(p.file)
}
