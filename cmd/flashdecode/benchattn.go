package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/spf13/cobra"
)

func (a *app) benchAttnCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "attn",
		Short: "Measure attention alone against this machine's read bandwidth",
		Long: `Measures decode attention over random keys and values, in turns with a plain read of as many bytes in the same
process: the memory bandwidth that attention can at best reach. Times are of one layer; a step walks through
--footprint of memory, so that no cache has what the step before left.

With --device cuda, times are those of launches on the GPU: a graph of many launches is replayed over keys and values
that rotate over --rotate megabytes, and the median of 11 replays counts. The floor is a kernel that only reads as many
bytes; the error is that of the output against attention in double precision.`,
		Example: `  flashdecode bench attn --lens 8k,16k,32k
  flashdecode bench attn -m model.gguf --lens 16k --kv f16,q8_0 --split none,auto
  flashdecode bench attn --lens 32k+512x7 --shuffle -o jsonl
  flashdecode bench attn --device cuda --grid std --save std.jsonl
  flashdecode bench attn --device cuda --lens 2k,8k,32k,128k --variants naive,nosplit,split2,split1 --plot latency.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.cuda.device != "cpu" {
				return a.benchCUDA(cmd.Context(), f)
			}
			if f.cuda.grid != "" || f.cuda.plot != "" || f.cuda.save != "" {
				return usagef("--grid, --plot and --save go with --device cuda")
			}
			return a.benchAttn(cmd.Context(), f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.shape.register(fs)
	fs.StringSliceVar(&f.lens, "lens", []string{"8k"}, "lengths to measure; 32k+512x7 is a batch of one of 32k and seven of 512")
	fs.IntSliceVarP(&f.batch, "batch", "b", []int{1}, "repeat the lengths this often in a batch")
	fs.StringSliceVar(&f.kv, "kv", []string{"f16"}, "number formats of the KV cache")
	fs.StringSliceVar(&f.split, "split", []string{"auto"}, "none, auto, fixed:N, splits:S; several take turns")
	fs.BoolVar(&f.shuffle, "shuffle", false, "pages in random order instead of adjacent")
	threadsFlag(fs, &f.threads)
	fs.IntVarP(&f.reps, "reps", "r", 9, "turns, whose median counts")
	fs.IntVar(&f.footprint, "footprint", 256, "megabytes to walk through")
	fs.StringVarP(&f.output, "output", "o", "md", "format: md, json or jsonl")
	f.cuda.register(fs)
	return cmd
}

func (a *app) benchAttn(ctx context.Context, f *benchFlags) error {
	tests, err := f.attention()
	if err != nil {
		return err
	}
	w := &attnWriter{app: a, format: f.output}
	for _, t := range tests {
		bar := &progress{app: a, start: time.Now()}
		results, err := bench.Attention(ctx, t, bar.show)
		bar.clear()
		if err != nil {
			return err
		}
		for _, r := range results {
			if err := w.write(r); err != nil {
				return err
			}
		}
	}
	return w.close()
}

// mostHeadDim is what the CPU's attention takes.
const mostHeadDim = 512

// attention is the list of what to measure: every combination of length, batch and KV format.
func (f *benchFlags) attention() (tests []bench.AttentionTest, err error) {
	var kvs []quant.Type
	var splits []plan.Policy
	if err := f.variants(&kvs, &splits); err != nil {
		return nil, err
	}
	if err := checkThreads(f.threads); err != nil {
		return nil, err
	}
	switch {
	case f.output != "md" && f.output != "json" && f.output != "jsonl":
		return nil, usagef("--output: %q is not one of md, json, jsonl", f.output)
	case f.reps < 1:
		return nil, usagef("--reps is %d: want at least 1", f.reps)
	case f.footprint < 0 || f.footprint > 1<<20:
		return nil, usagef("--footprint is %d: want 0 to %d megabytes", f.footprint, 1<<20)
	}
	for _, spec := range f.lens {
		lens, err := parseBatch(spec, "+")
		if err != nil {
			return nil, badFlag("lens", err)
		}
		if slices.Min(lens) == 0 {
			return nil, usagef("--lens: %q has a length of 0, of which nothing can be measured", spec)
		}
		for _, batch := range f.batch {
			if batch < 1 || batch > 1<<12 {
				return nil, usagef("--batch is %d: want 1 to %d", batch, 1<<12)
			}
			var all []int
			for range batch {
				all = append(all, lens...)
			}
			for _, kv := range kvs {
				shape, err := f.shape.shape(kv)
				if err != nil {
					return nil, err
				}
				if shape.HeadDim%8 != 0 || shape.HeadDim > mostHeadDim {
					return nil, usagef("--head-dim is %d: the CPU's attention takes multiples of 8 up to %d", shape.HeadDim, mostHeadDim)
				}
				tests = append(tests, bench.AttentionTest{
					QHeads: shape.QHeads, KVHeads: shape.KVHeads, HeadDim: shape.HeadDim, KV: kv, Lens: all, Splits: splits,
					Threads: f.threads, Shuffle: f.shuffle, Footprint: int64(f.footprint) << 20, Reps: f.reps, Seed: 1,
				})
			}
		}
	}
	return tests, nil
}

// attnWriter writes results as they come.
type attnWriter struct {
	app    *app
	format string
	n      int
}

func (w *attnWriter) write(r bench.AttentionResult) error {
	w.n++
	switch w.format {
	case "jsonl":
		return w.app.printLine(r)
	case "json":
		b, err := json.MarshalIndent(r, "  ", "  ")
		if err != nil {
			return err
		}
		before := ",\n  "
		if w.n == 1 {
			before = "[\n  "
		}
		return w.app.print(before + string(b))
	}
	head := ""
	if w.n == 1 {
		head = "| heads         | kv   | lengths        | pages    | split      | items | splits |       µs |   GB/s | read GB/s | % of read |\n" +
			"|---------------|------|----------------|----------|------------|------:|-------:|---------:|-------:|----------:|----------:|\n"
	}
	return w.app.print(head + fmt.Sprintf("| %-13s | %-4s | %-14s | %-8s | %-10s | %5d | %6d | %8.1f | %6.2f | %9.2f | %9.1f |\n",
		fmt.Sprintf("%d/%d of %d", r.QHeads, r.KVHeads, r.HeadDim), r.KV, lengths(r.Lens), r.Pages, r.Split, r.Items, r.Splits,
		float64(r.NS)/1000, r.GBps, r.Read, r.Percent))
}

func (w *attnWriter) close() error {
	if w.format != "json" {
		return nil
	}
	return w.app.print("\n]\n")
}

// lengths words a batch as parseBatch reads it.
func lengths(lens []int) string {
	var parts []string
	for i := 0; i < len(lens); {
		j := i
		for j < len(lens) && lens[j] == lens[i] {
			j++
		}
		part := fmt.Sprint(lens[i])
		if j-i > 1 {
			part += fmt.Sprintf("x%d", j-i)
		}
		parts = append(parts, part)
		i = j
	}
	return strings.Join(parts, "+")
}
