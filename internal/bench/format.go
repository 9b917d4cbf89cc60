package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Formats are what NewWriter knows.
var Formats = []string{"md", "csv", "json", "jsonl", "benchstat"}

// Writer writes results one by one.
type Writer interface {
	Write(Result) error
	Close() error
}

// NewWriter returns a writer of one of Formats.
func NewWriter(w io.Writer, format string) (Writer, error) {
	switch format {
	case "md":
		return &markdown{w: w}, nil
	case "csv":
		return &table{w: csv.NewWriter(w)}, nil
	case "json":
		return &array{w: w}, nil
	case "jsonl":
		return &lines{json.NewEncoder(w)}, nil
	case "benchstat":
		return &benchstat{w: w}, nil
	}
	return nil, fmt.Errorf("bench: unknown format %q: want one of %s", format, strings.Join(Formats, ", "))
}

type markdown struct {
	w       io.Writer
	started bool
}

// column is a column of the table: widths are fixed, because rows are printed as they come.
type column struct {
	name  string
	width int // negative: left
	value func(*Result) string
}

var columns = []column{
	{"model", -24, func(r *Result) string { return r.Type }},
	{"size", 10, func(r *Result) string { return fmt.Sprintf("%.1f MB", float64(r.Bytes)/1e6) }},
	{"params", 9, func(r *Result) string { return fmt.Sprintf("%.2f M", float64(r.Params)/1e6) }},
	{"backend", -23, func(r *Result) string { return r.Backend }},
	{"kv", -4, func(r *Result) string { return r.TypeK }},
	{"split", -10, func(r *Result) string { return r.Split }},
	{"batch", 5, func(r *Result) string { return fmt.Sprint(r.Batch) }},
	{"test", 15, func(r *Result) string { return r.Test() }},
	{"t/s", 17, func(r *Result) string { return fmt.Sprintf("%.2f ± %.2f", r.AvgTS, r.StddevTS) }},
	{"× first", 7, func(r *Result) string {
		if r.Speedup == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", r.Speedup)
	}},
}

func (m *markdown) Write(r Result) error {
	var b strings.Builder
	if !m.started {
		m.started = true
		for _, c := range columns {
			fmt.Fprintf(&b, "| %*s ", c.width, c.name)
		}
		b.WriteString("|\n")
		for _, c := range columns {
			left, right := "-", "-"
			if c.width > 0 {
				right = ":"
			}
			b.WriteString("|" + left + strings.Repeat("-", max(c.width, -c.width)) + right)
		}
		b.WriteString("|\n")
	}
	for _, c := range columns {
		fmt.Fprintf(&b, "| %*s ", c.width, c.value(&r))
	}
	b.WriteString("|\n")
	_, err := io.WriteString(m.w, b.String())
	return err
}

func (m *markdown) Close() error { return nil }

// table is CSV: the keys and values of the JSON form, without the samples.
type table struct {
	w       *csv.Writer
	started bool
}

func (t *table) Write(r Result) error {
	keys := []string{"build_commit", "cpu_info", "backend", "model_filename", "model_type", "model_size", "model_n_params",
		"n_batch", "n_threads", "type_k", "type_v", "split", "batch", "n_prompt", "n_gen", "n_depth", "test_time",
		"avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "speedup"}
	values := []any{r.Commit, r.CPU, r.Backend, r.File, r.Type, r.Bytes, r.Params,
		r.Chunk, r.Threads, r.TypeK, r.TypeV, r.Split, r.Batch, r.Prompt, r.Gen, r.Depth, r.Time,
		r.AvgNS, r.StddevNS, r.AvgTS, r.StddevTS, r.Speedup}
	if !t.started {
		t.started = true
		if err := t.w.Write(keys); err != nil {
			return err
		}
	}
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = fmt.Sprint(v)
	}
	if err := t.w.Write(row); err != nil {
		return err
	}
	t.w.Flush()
	return t.w.Error()
}

func (t *table) Close() error { return nil }

// array is one JSON array.
type array struct {
	w io.Writer
	n int
}

func (a *array) Write(r Result) error {
	b, err := json.MarshalIndent(r, "  ", "  ")
	if err != nil {
		return err
	}
	before := "[\n  "
	if a.n > 0 {
		before = ",\n  "
	}
	a.n++
	_, err = io.WriteString(a.w, before+string(b))
	return err
}

func (a *array) Close() error {
	end := "\n]\n"
	if a.n == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(a.w, end)
	return err
}

type lines struct{ enc *json.Encoder }

func (l *lines) Write(r Result) error { return l.enc.Encode(r) }
func (l *lines) Close() error         { return nil }

// benchstat writes a line for every repetition, in the format of Go's benchmarks (golang.org/design/14313-benchmark-format).
type benchstat struct {
	w       io.Writer
	started bool
}

func (s *benchstat) Write(r Result) error {
	var b strings.Builder
	if !s.started {
		s.started = true
		fmt.Fprintf(&b, "goos: %s\ngoarch: %s\ncpu: %s\ncommit: %s\n", runtime.GOOS, runtime.GOARCH, r.CPU, r.Commit)
	}
	name := fmt.Sprintf("tg=%d", r.Gen)
	if r.Prompt > 0 {
		name = fmt.Sprintf("pp=%d", r.Prompt)
	}
	for i, ns := range r.SamplesNS {
		fmt.Fprintf(&b, "BenchmarkModel/model=%s/kv=%s/split=%s/batch=%d/%s/d=%d-%d\t1\t%d ns/op\t%.2f tok/s\n",
			strings.ReplaceAll(r.File, " ", "_"), r.TypeK, r.Split, r.Batch, name, r.Depth, r.Threads, ns, r.SamplesTS[i])
	}
	_, err := io.WriteString(s.w, b.String())
	return err
}

func (s *benchstat) Close() error { return nil }
