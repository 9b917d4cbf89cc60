package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	cudabench "github.com/flashdecode/flashdecode/backend/cuda/bench"
	"github.com/flashdecode/flashdecode/internal/plot"
	"github.com/spf13/pflag"
)

// cudaFlags are those of bench attn that only a GPU has.
type cudaFlags struct {
	device   string
	grid     string
	variants []string
	save     string
	plot     string
	rotate   int
}

func (f *cudaFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.device, "device", "cpu", "cpu, cuda, or cuda:N")
	fs.StringVar(&f.grid, "grid", "", "cuda: cells to measure instead of --lens: "+strings.Join(cudabench.Grids, ", "))
	fs.StringSliceVar(&f.variants, "variants", []string{"naive", "nosplit", "split2", "split1", "split1_pdl", "split1_flat"},
		"cuda: auto, naive, nosplit, split2, split1, with suffixes _pdl, _flat, _contig, _p64")
	fs.StringVar(&f.save, "save", "", "cuda: also write the rows to this file, one JSON object a line")
	fs.StringVar(&f.plot, "plot", "", "cuda: draw time against length to this SVG file, and on standard error")
	fs.IntVar(&f.rotate, "rotate", 512, "cuda: megabytes that keys and values rotate over")
}

// ordinal is the number in cuda:N.
func (f *cudaFlags) ordinal() (int, error) {
	name, number, has := strings.Cut(f.device, ":")
	if name != "cuda" {
		return 0, usagef("--device: %q is not cpu, cuda or cuda:N", f.device)
	}
	if !has {
		return 0, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return 0, usagef("--device: %q is not a number of a GPU", number)
	}
	return n, nil
}

// options are the cells and variants to measure.
func (f *benchFlags) cudaOptions() (o cudabench.Options, err error) {
	if o.Device, err = f.cuda.ordinal(); err != nil {
		return o, err
	}
	switch {
	case f.reps < 1:
		return o, usagef("--reps is %d: want at least 1", f.reps)
	case f.cuda.rotate < 1 || f.cuda.rotate > 1<<17:
		return o, usagef("--rotate is %d: want 1 to %d megabytes", f.cuda.rotate, 1<<17)
	case f.output != "md" && f.output != "jsonl":
		return o, usagef("--output: %q is not one of md, jsonl", f.output)
	}
	o.Reps, o.Rotate, o.Commit = f.reps, int64(f.cuda.rotate)<<20, buildInfo().Commit
	for _, name := range f.cuda.variants {
		v, err := cudabench.ParseVariant(name)
		if err != nil {
			return o, badFlag("variants", err)
		}
		o.Variants = append(o.Variants, v)
	}
	if err := f.shape.checkHeads(); err != nil {
		return o, err
	}
	if f.cuda.grid != "" {
		if o.Cells, err = cudabench.Grid(f.cuda.grid); err != nil {
			return o, badFlag("grid", err)
		}
		return o, nil
	}
	o.Cells, err = f.cudaCells()
	return o, err
}

// cudaCells are the combinations of --lens, --batch and --kv.
func (f *benchFlags) cudaCells() (cells []cudabench.Cell, err error) {
	for _, name := range f.kv {
		kv, ok := map[string]attention.Type{"bf16": attention.BF16, "f16": attention.BF16, "e4m3": attention.E4M3}[name]
		if !ok {
			return nil, usagef("--kv: %q is not one of bf16, e4m3 on a GPU", name)
		}
		for _, spec := range f.lens {
			lens, err := parseBatch(spec, "+")
			if err != nil {
				return nil, badFlag("lens", err)
			}
			for _, batch := range f.batch {
				if batch < 1 || batch > 1<<12 {
					return nil, usagef("--batch is %d: want 1 to %d", batch, 1<<12)
				}
				c := cudabench.Cell{QHeads: f.shape.qHeads, KVHeads: f.shape.kvHeads, HeadDim: f.shape.headDim, KV: kv, Seqs: batch * len(lens), KVLen: slices.Max(lens)}
				if slices.Min(lens) < 1 || slices.Max(lens) > 1<<20 {
					return nil, usagef("--lens: %s: want 1 to %d tokens", spec, 1<<20)
				}
				if slices.Min(lens) != c.KVLen {
					for range batch {
						for _, n := range lens {
							c.Lens = append(c.Lens, int32(n))
						}
					}
					c.Note = spec
				}
				cells = append(cells, c)
			}
		}
	}
	return cells, nil
}

// benchCUDA measures on a GPU.
func (a *app) benchCUDA(ctx context.Context, f *benchFlags) (err error) {
	o, err := f.cudaOptions()
	if err != nil {
		return err
	}
	save := io.Writer(io.Discard)
	if f.cuda.save != "" {
		file, err := os.Create(f.cuda.save)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		save = file
	}
	picture, err := openPlot(f.cuda.plot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, picture.close(err)) }()
	var rows []*cudabench.Row
	err = cudabench.Run(ctx, o, func(r *cudabench.Row) error {
		if err := json.NewEncoder(save).Encode(r); err != nil {
			return err
		}
		rows = append(rows, r)
		if f.output == "jsonl" {
			return a.printLine(r)
		}
		return a.print(cudaTable(o.Variants, r, len(rows) == 1))
	})
	if err != nil || f.cuda.plot == "" {
		return err
	}
	return a.plot(picture, cudaChart(o.Variants, rows))
}

// cudaTable is the lines of a row: one for each variant, and before them the cell's own.
func cudaTable(variants []cudabench.Variant, r *cudabench.Row, first bool) string {
	var b strings.Builder
	if first {
		b.WriteString("| B × N           | heads  | kv   |       MB |   floor µs | variant        |       µs | % floor |   GB/s |   error | launch\n" +
			"|-----------------|--------|------|---------:|-----------:|----------------|---------:|--------:|-------:|--------:|-------\n")
	}
	cell := fmt.Sprintf("%d × %d", r.B, r.N)
	if r.Note != "" {
		cell += " " + r.Note
	}
	for _, v := range variants {
		head := fmt.Sprintf("| %-15s | %-6s | %-4s | %8.2f | %10.2f |", cell, fmt.Sprintf("%d/%d", r.Hq, r.Hkv), r.KV, r.MB, r.Floor)
		if r.Time(v.Name) == 0 {
			fmt.Fprintf(&b, "%s %-14s | %v\n", head, v.Name, r.US[v.Name])
			continue
		}
		fmt.Fprintf(&b, "%s %-14s | %8.2f | %7.1f | %6.0f | %7.1e | %s\n",
			head, v.Name, r.Time(v.Name), r.Percent[v.Name], r.GBps[v.Name], r.Err[v.Name], r.Launch[v.Name])
	}
	return b.String()
}

// cudaChart draws time against length: of the batch and heads that were measured at most lengths.
func cudaChart(variants []cudabench.Variant, rows []*cudabench.Row) plot.Chart {
	type shape struct {
		b, hq, hkv int
		kv         string
	}
	count, best := map[shape]int{}, shape{}
	of := func(r *cudabench.Row) shape { return shape{r.B, r.Hq, r.Hkv, r.KV} }
	for _, r := range rows {
		s := of(r)
		if count[s]++; count[s] > count[best] || count[s] == count[best] && s.hkv == 8 {
			best = s
		}
	}
	c := plot.Chart{XLabel: "tokens in the cache", YLabel: "µs",
		Title: fmt.Sprintf("decode attention, %d × %d/%d heads, KV %s", best.b, best.hq, best.hkv, best.kv)}
	if len(rows) > 0 {
		c.Title += ", " + rows[0].GPU
	}
	for _, v := range variants {
		s := plot.Series{Name: v.Name}
		for _, r := range rows {
			if of(r) == best && r.Time(v.Name) > 0 {
				s.Points = append(s.Points, plot.Point{X: float64(r.N), Y: r.Time(v.Name)})
			}
		}
		slices.SortStableFunc(s.Points, func(p, q plot.Point) int { return int(p.X - q.X) })
		c.Series = append(c.Series, s)
	}
	return c
}
