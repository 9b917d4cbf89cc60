package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/flashdecode/flashdecode/weights/safetensors"
	"github.com/spf13/cobra"
)

// inspection is what inspect prints.
type inspection struct {
	Name     string       `json:"name"`
	Format   string       `json:"format"`
	Metadata []metadatum  `json:"metadata"`
	Model    *modelFacts  `json:"model"` // null if the architecture is not supported
	Types    []typeTotal  `json:"types"`
	Memory   *memoryNeed  `json:"memory"`
	Problems []string     `json:"problems"` // why this program can't run it
	Tensors  []tensorFact `json:"tensors"`
}

type metadatum struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

type modelFacts struct {
	Architecture string `json:"architecture"`
	Layers       int    `json:"layers"`
	Hidden       int    `json:"hidden"`
	FFN          int    `json:"ffn"`
	QHeads       int    `json:"q_heads"`
	KVHeads      int    `json:"kv_heads"`
	HeadDim      int    `json:"head_dim"`
	Vocabulary   int    `json:"vocabulary"`
	Context      int    `json:"context"`
	Window       int    `json:"window,omitempty"`
}

type tensorFact struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Shape     []int  `json:"shape"`
	Bytes     int64  `json:"bytes"`
	Supported bool   `json:"supported"`
}

type typeTotal struct {
	Type      string `json:"type"`
	Tensors   int    `json:"tensors"`
	Params    int64  `json:"params"`
	Bytes     int64  `json:"bytes"`
	Supported bool   `json:"supported"`
}

// memoryNeed is what running takes, apart from some megabytes for activations.
type memoryNeed struct {
	Context      int              `json:"context"`
	WeightsBytes int64            `json:"weights_bytes"`
	KVBytes      map[string]int64 `json:"kv_bytes"` // of one full sequence, by format
}

func (a *app) inspectCommand() *cobra.Command {
	var ctx int
	var tensors, asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [FILE|DIR]",
		Short: "Show a model file's metadata, tensors and memory needs",
		Long: `Shows what is in a GGUF file, a safetensors file or a directory of them: metadata, number formats, and the memory
that weights and KV cache take at a context length. It reads no weights, and works on models that can't be run, of
which it says why. Without a path it shows the embedded model.`,
		Example: `  flashdecode inspect
  flashdecode inspect model.gguf --ctx 32768
  flashdecode inspect model.gguf --tensors
  flashdecode inspect ./model-directory --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if ctx < 0 || ctx > mostTokens {
				return usagef("--ctx is %d: want 0 to %d", ctx, mostTokens)
			}
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			if len(args) > 0 && path == "" {
				return usagef("the path is empty: give one, or none for the embedded model")
			}
			i, err := inspect(path, ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(i)
			}
			return a.print(i.text(tensors))
		},
	}
	cmd.Flags().IntVar(&ctx, "ctx", 0, "context length to compute memory for (default: the model's)")
	cmd.Flags().BoolVar(&tensors, "tensors", false, "list all tensors")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, tensors included")
	return cmd
}

func inspect(path string, ctx int) (*inspection, error) {
	if path == "" {
		f, err := gguf.Parse(tiny.Data())
		if err != nil {
			return nil, err
		}
		return inspectGGUF(tiny.Name, f, ctx), f.Close()
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(filepath.Clean(path))
	open := safetensors.Open
	switch {
	case info.IsDir():
		open = safetensors.OpenDir
	case !strings.HasSuffix(path, ".safetensors"):
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		return withTokenizer(inspectGGUF(name, f, ctx), path), f.Close()
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	i := inspectSafetensors(name, f, info.IsDir(), ctx)
	if info.IsDir() {
		withTokenizer(i, path)
	}
	return i, f.Close()
}

// withTokenizer adds why the tokenizer can't be used, if so.
func withTokenizer(i *inspection, path string) *inspection {
	if _, err := flashdecode.OpenTokenizer(path); err != nil {
		i.Problems = append(i.Problems, message(err))
	}
	return i
}

func inspectGGUF(name string, f *gguf.File, ctx int) *inspection {
	i := &inspection{Name: name, Format: "GGUF"}
	for _, k := range f.Meta.Keys() {
		typ, elem, count, _ := f.Meta.TypeOf(k)
		t := typ.String()
		if typ == gguf.Array {
			t = fmt.Sprintf("%v[%d]", elem, count)
		}
		i.Metadata = append(i.Metadata, metadatum{k, t, f.Meta.Format(k)})
	}
	for _, t := range f.Tensors {
		_, ok := t.Quant()
		i.addTensor(tensorFact{t.Name, t.Type, t.Shape, t.Bytes, ok})
	}
	c, err := model.ConfigFromGGUF(f.Meta, f)
	i.addModel(c, err, ctx)
	return i
}

func inspectSafetensors(name string, f *safetensors.File, dir bool, ctx int) *inspection {
	i := &inspection{Name: name, Format: "safetensors"}
	for k, v := range f.Meta {
		i.Metadata = append(i.Metadata, metadatum{k, "string", v})
	}
	slices.SortFunc(i.Metadata, func(x, y metadatum) int { return strings.Compare(x.Key, y.Key) })
	for _, t := range f.Tensors {
		_, ok := t.Quant()
		i.addTensor(tensorFact{t.Name, t.DType, t.Shape, t.Bytes, ok})
	}
	if !dir {
		i.Problems = append(i.Problems, "config.json and tokenizer.json are needed too: give the directory")
		return i
	}
	c, err := model.ConfigFromHF(f.Config)
	i.addModel(c, err, ctx)
	return i
}

func (i *inspection) addTensor(t tensorFact) {
	i.Tensors = append(i.Tensors, t)
	at := slices.IndexFunc(i.Types, func(x typeTotal) bool { return x.Type == t.Type })
	if at < 0 {
		at = len(i.Types)
		i.Types = append(i.Types, typeTotal{Type: t.Type, Supported: t.Supported})
	}
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	x := &i.Types[at]
	x.Tensors, x.Params, x.Bytes = x.Tensors+1, x.Params+n, x.Bytes+t.Bytes
}

// addModel adds what the configuration tells, or why there is none.
func (i *inspection) addModel(c model.Config, err error, ctx int) {
	var bytes int64
	for _, t := range i.Types {
		bytes += t.Bytes
		if !t.Supported {
			i.Problems = append(i.Problems, fmt.Sprintf("%d tensors are %s, which is not supported (supported: %s)",
				t.Tensors, t.Type, quant.Supported()))
		}
	}
	if err != nil {
		i.Problems = append(i.Problems, message(err))
		return
	}
	i.Model = &modelFacts{
		Architecture: c.Arch, Layers: c.Layers, Hidden: c.Hidden, FFN: c.FFN, QHeads: c.QHeads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim, Vocabulary: c.Vocab, Context: c.Context, Window: c.Window,
	}
	if ctx == 0 {
		ctx = c.Context
	}
	i.Memory = &memoryNeed{Context: ctx, WeightsBytes: bytes, KVBytes: map[string]int64{}}
	for _, t := range ops.KVTypes() {
		if c.HeadDim%t.BlockSize() == 0 {
			i.Memory.KVBytes[t.String()] = int64(ctx) * int64(c.Layers*c.KVHeads*2*t.RowBytes(c.HeadDim))
		}
	}
}

// longestValue is how much of a metadata value the text shows: chat templates are pages long.
const longestValue = 100

func (i *inspection) text(tensors bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s\n", i.Name, i.Format)
	if m := i.Model; m != nil {
		fmt.Fprintf(w, "architecture\t%s: %d layers of width %d, feed-forward %d\n", m.Architecture, m.Layers, m.Hidden, m.FFN)
		fmt.Fprintf(w, "attention\t%d query heads over %d KV heads of %d\n", m.QHeads, m.KVHeads, m.HeadDim)
		if m.Window > 0 {
			fmt.Fprintf(w, "window\t%d tokens, in some or all layers\n", m.Window)
		}
		fmt.Fprintf(w, "vocabulary, context\t%d, %d tokens\n", m.Vocabulary, m.Context)
	}
	for _, p := range i.Problems {
		fmt.Fprintf(w, "cannot run\t%s\n", p)
	}
	w.Flush()
	b.WriteByte('\n')
	for _, m := range i.Metadata {
		v := []rune(strings.Join(strings.Fields(m.Value), " "))
		if len(v) > longestValue {
			v = append(v[:longestValue], '…')
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Key, m.Type, string(v))
	}
	w.Flush()
	b.WriteByte('\n')
	i.totals(&b)
	if m := i.Memory; m != nil {
		fmt.Fprintf(&b, "\nmemory for one sequence of %d tokens: weights %s", m.Context, size(m.WeightsBytes))
		for _, t := range []string{"F16", "Q8_0", "BF16", "F32"} {
			if n, ok := m.KVBytes[t]; ok {
				fmt.Fprintf(&b, ", KV %s %s", t, size(n))
			}
		}
		b.WriteByte('\n')
	}
	if tensors {
		b.WriteByte('\n')
		fmt.Fprintln(w, "tensor\ttype\tshape\tbytes")
		for _, t := range i.Tensors {
			fmt.Fprintf(w, "%s\t%s\t%v\t%d\n", t.Name, t.Type, t.Shape, t.Bytes)
		}
		w.Flush()
	}
	return printable(b.String())
}

// printable takes out what would steer a terminal: names and values are the file's.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// totals writes the table of number formats.
func (i *inspection) totals(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "type\ttensors\tnumbers\tbytes\t")
	var all typeTotal
	for _, t := range i.Types {
		note := ""
		if !t.Supported {
			note = "  not supported"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", t.Type, t.Tensors, t.Params, t.Bytes, note)
		all.Tensors, all.Params, all.Bytes = all.Tensors+t.Tensors, all.Params+t.Params, all.Bytes+t.Bytes
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", all.Tensors, all.Params, all.Bytes)
	w.Flush()
}
