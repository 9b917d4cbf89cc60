package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/internal/host"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/spf13/cobra"
)

// diagnosis is what doctor reports.
type diagnosis struct {
	Build     build          `json:"build"`
	CPU       host.Processor `json:"cpu"`
	Threads   int            `json:"threads"` // that computing uses unless told otherwise
	Memory    host.Memory    `json:"memory"`
	Bandwidth []bandwidth    `json:"read_bandwidth"`
	GPUs      host.GPUs      `json:"gpus"`
	Models    []testModel    `json:"models"`
	Advice    []string       `json:"advice"`
}

type bandwidth struct {
	Threads int     `json:"threads"`
	GBps    float64 `json:"gb_per_second"`
}

type testModel struct {
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Found bool   `json:"found"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine offers, what is missing and how to get it",
		Long: `Shows processor, instruction sets, memory, measured read bandwidth, GPUs and test models, and what would make things
faster or is missing. Generating a token reads every weight and the whole KV cache, so bandwidth divided by their size
bounds the tokens per second.`,
		Example: "  flashdecode doctor\n  flashdecode doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := diagnose(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(d)
			}
			return a.print(d.text())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func diagnose(ctx context.Context) (*diagnosis, error) {
	d := &diagnosis{
		Build: buildInfo(), CPU: host.CPU(), Threads: runtime.GOMAXPROCS(0), Memory: host.Mem(), GPUs: host.FindGPUs("/"),
		Models: testModels(),
	}
	for _, n := range slices.Compact([]int{1, d.Threads}) {
		gbps, err := readBandwidth(ctx, n, d.Memory.AvailableBytes)
		if err != nil {
			return nil, err
		}
		d.Bandwidth = append(d.Bandwidth, bandwidth{n, gbps})
	}
	d.advise()
	return d, nil
}

// readBandwidth is the best of a few reads, in GB/s: what disturbs a read only ever makes it slower.
func readBandwidth(ctx context.Context, threads int, available int64) (best float64, err error) {
	bytes := int64(512 << 20) // beyond the caches of most machines
	if available > 0 {
		bytes = max(min(bytes, available/4), 1<<20)
	}
	r, err := bench.NewReader(bytes, threads)
	if err != nil {
		return 0, err
	}
	for range 6 {
		if err := ctx.Err(); err != nil {
			return 0, errors.Join(err, r.Close())
		}
		d, err := r.Read()
		if err != nil {
			return 0, errors.Join(err, r.Close())
		}
		best = max(best, float64(r.Bytes())/float64(d.Nanoseconds()))
	}
	return best, r.Close()
}

// testModels looks where the tests look.
func testModels() []testModel {
	dir := os.Getenv("FLASHDECODE_MODELS")
	if dir == "" {
		dir = ".models"
	}
	models := []testModel{{Name: tiny.Name + " (embedded)", Bytes: int64(len(tiny.Data())), Found: true}}
	for _, name := range []string{"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"} {
		m := testModel{Name: name}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil {
			m.Path, m.Bytes, m.Found = path, info.Size(), true
		}
		models = append(models, m)
	}
	return models
}

// advise says what is missing and how to get it.
func (d *diagnosis) advise() {
	add := func(format string, args ...any) { d.Advice = append(d.Advice, fmt.Sprintf(format, args...)) }
	if d.Build.Instructions == "generic" {
		add("this program computes in plain Go here: the fast bodies need an amd64 processor with AVX2 and FMA, and a build without the tag noasm")
	}
	if d.Memory.HugePages == "never" {
		add("huge pages are off, which costs up to half of the speed of a fragmented KV cache: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
	}
	if d.Threads < d.CPU.CPUs {
		add("GOMAXPROCS limits computing to %d of %d processors", d.Threads, d.CPU.CPUs)
	}
	if d.CPU.Governor == "powersave" {
		add("the processor's frequency governor is powersave: cpupower frequency-set -g performance")
	}
	if g := d.GPUs; g.Driver != "" || g.Library != "" {
		add("an NVIDIA driver is here, but this version computes on the processor only: CUDA support is planned")
	}
	for _, m := range d.Models {
		if !m.Found {
			add("%s is not here; tests that need it are skipped: scripts/fetch_models.sh in a clone of the repository fetches it, FLASHDECODE_MODELS names another folder", m.Name)
		}
	}
}

func (d *diagnosis) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("flashdecode", "%s, %s, %s", strings.TrimSpace(d.Build.Version+" "+d.Build.Commit), d.Build.Go, d.Build.Platform)
	row("processor", "%s, %s", orUnknown(d.CPU.Model), plural(d.CPU.CPUs, "CPU"))
	row("features", "%s", orUnknown(strings.Join(d.CPU.Features, " ")))
	row("uses", "%s instructions, %s", d.Build.Instructions, plural(d.Threads, "thread"))
	memory := "unknown"
	if d.Memory.TotalBytes > 0 {
		memory = fmt.Sprintf("%s, %s available", size(d.Memory.TotalBytes), size(d.Memory.AvailableBytes))
	}
	if n := d.Memory.LimitBytes; n > 0 {
		memory += ", control group's limit " + size(n)
	}
	row("memory", "%s", memory)
	row("huge pages", "%s, of memory files %s", orUnknown(d.Memory.HugePages), orUnknown(d.Memory.FileHugePages))
	for _, x := range d.Bandwidth {
		row("read bandwidth", "%.1f GB/s with %s", x.GBps, plural(x.Threads, "thread"))
	}
	gpu := "no NVIDIA driver found"
	if g := d.GPUs; g.Driver != "" || g.Library != "" {
		gpu = fmt.Sprintf("%s; driver %s, library %s; not used by this version", orUnknown(strings.Join(g.Names, ", ")), orUnknown(g.Driver), orUnknown(g.Library))
	}
	row("GPUs", "%s", gpu)
	for _, m := range d.Models {
		if m.Found {
			row("model", "%s, %s", m.Name, size(m.Bytes))
		} else {
			row("model", "%s is missing", m.Name)
		}
	}
	w.Flush()
	for _, s := range d.Advice {
		fmt.Fprintf(&b, "\n- %s", s)
	}
	if len(d.Advice) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
