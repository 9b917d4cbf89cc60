package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func TestPlan(t *testing.T) {
	out, _ := must(t, "", "plan", "--lens", "32k,512x3", "--device", "h200")
	for _, want := range []string{"4 of 32768, 512, 512, 512 tokens", "h200, 132 workers", "imbalance", "workspace", "reason", "split"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	js, _ := must(t, "", "plan", "--lens", "1000,2k", "--batch", "2", "--q-len", "3", "--kv", "q8_0", "--device", "SMs=40", "--policy", "fixed:512", "--page-size", "64", "--json")
	type report struct {
		Shape  plan.Shape
		Seqs   []plan.Seq
		Limits plan.Limits
		Policy plan.Policy
		Plan   struct{ Items []plan.Item }
	}
	r := unmarshal[report](t, js)
	want := plan.Shape{QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 64, TokenBytes: 2 * 128 / 32 * 34, Causal: true}
	if r.Shape != want || len(r.Seqs) != 4 || r.Seqs[3] != (plan.Seq{QLen: 3, KVLen: 2048}) || r.Limits.Workers != 40 || r.Policy != plan.Fixed(512) {
		t.Errorf("%+v", r)
	}
	if n := len(r.Plan.Items); n != 2*8*(2+4) {
		t.Errorf("%d items", n)
	}
	out, _ = must(t, "", "plan", "--lens", "0,8k")
	if !strings.Contains(out, "2 of 0, 8192 tokens") {
		t.Error(out)
	}
	js, _ = must(t, "", "plan", "-m", filepath.Join(testkit.Root(t), "model/testdata/llama3"), "--json")
	if r := unmarshal[report](t, js); r.Shape.QHeads != 3 || r.Shape.KVHeads != 1 || r.Shape.HeadDim != 32 {
		t.Errorf("shape of the model: %+v", r.Shape)
	}
}

func TestInspect(t *testing.T) {
	js, _ := must(t, "", "inspect", "--ctx", "1000", "--json")
	i := unmarshal[inspection](t, js)
	if i.Model == nil || i.Model.Layers != 6 || len(i.Tensors) != 56 || i.Memory.KVBytes["F16"] != 1000*6*2*2*64*2 ||
		i.Memory.KVBytes["Q8_0"] != 1000*6*2*2*68 || i.Memory.WeightsBytes != 6976512 || len(i.Problems) != 0 {
		t.Errorf("%+v", i.Model)
	}
	out, _ := must(t, "", "inspect", "--tensors")
	for _, want := range []string{"tokenizer.ggml.merges", "3837 in all", "token_embd.weight", "[4096 256]", "KV F16 50.3 MB", "6556928"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q", want)
		}
	}
	root := testkit.Root(t)
	out, _ = must(t, "", "inspect", filepath.Join(root, "model/testdata/qwen3"))
	if !strings.Contains(out, "qwen3: ") || !strings.Contains(out, "safetensors") {
		t.Error(out)
	}
	out, _ = must(t, "", "inspect", filepath.Join(root, "model/testdata/qwen3/model.safetensors"))
	if !strings.Contains(out, "cannot run") || !strings.Contains(out, "config.json") {
		t.Error(out)
	}
}

// TestInspectUnsupported: a file of an unknown architecture and with an unknown number format is shown, and why it
// can't be run.
func TestInspectUnsupported(t *testing.T) {
	var b bytes.Buffer
	err := gguf.Write(&b, []gguf.KV{{Key: "general.architecture", Value: "mamba"}, {Key: "general.name", Value: "a\x1b[31mb"}},
		[]weights.Tensor{{Name: "strange.weight", Type: quant.F16, Shape: []int{2, 256}, Data: make([]byte, 1024)}})
	if err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	at := bytes.Index(data, []byte("strange.weight")) + len("strange.weight") + 4 + 2*8 // its name, number of dimensions, dimensions
	binary.LittleEndian.PutUint32(data[at:], 16)                                        // IQ2_XXS
	name := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(name, data, 0o666); err != nil {
		t.Fatal(err)
	}
	out, _ := must(t, "", "inspect", name)
	for _, want := range []string{`"mamba"`, "IQ2_XXS, which is not supported", "1 tensors are"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a file's name steers the terminal")
	}
	i := unmarshal[inspection](t, firstOf(must(t, "", "inspect", name, "--json")))
	if i.Model != nil || i.Tensors[0].Supported || i.Tensors[0].Type != "IQ2_XXS" {
		t.Errorf("%+v", i)
	}
}

func firstOf(out, _ string) string { return out }

func TestTokenize(t *testing.T) {
	text := "Once upon a time, ünï\n<|im_end|> 12345"
	for _, args := range [][]string{{"tokenize"}, {"tokenize", "-m", filepath.Join(testkit.Root(t), "model/testdata/llama")}} {
		js, _ := must(t, text, append(slices.Clone(args), "--json", "--no-special", "--literal")...)
		r := unmarshal[struct {
			Count  int
			Tokens []tokenJSON
		}](t, js)
		ids, whole := "", ""
		for _, tok := range r.Tokens {
			ids += fmt.Sprint(tok.ID, ", ")
			whole += string(tok.Bytes)
		}
		if r.Count != len(r.Tokens) || r.Count < 5 {
			t.Errorf("%d tokens, count %d", len(r.Tokens), r.Count)
		}
		if len(args) == 1 && whole != text {
			t.Errorf("pieces spell %q", whole)
		}
		if out, _ := must(t, "", append(slices.Clone(args), "--ids", ids)...); out != text+"\n" {
			t.Errorf("decoded %q", out)
		}
	}
	out, errs := must(t, "", "tokenize", "<|im_end|>")
	if !strings.Contains(out, `       2  "<|im_end|>"`) || !strings.Contains(errs, "2 tokens, 10 bytes") {
		t.Errorf("%q %q", out, errs)
	}
}

func TestPerplexity(t *testing.T) {
	file := filepath.Join(testkit.Root(t), "models/tiny/filler.txt")
	js, _ := must(t, "", "perplexity", "--file", file, "--ctx", "64", "--chunks", "3", "--json")
	p := unmarshal[bench.Perplexity](t, js)
	if p.Chunks != 3 || p.Scored != 3*31 || p.Perplexity < 2 || p.Perplexity > 100 || p.Stderr <= 0 {
		t.Errorf("%+v", p)
	}
	out, errs := must(t, "", "perplexity", "--file", file, "--ctx", "64", "--chunks", "3")
	if out != fmt.Sprintf("perplexity %.4f ± %.4f\n", p.Perplexity, p.Stderr) || !strings.Contains(errs, "93 tokens scored in 3 chunks of 64") {
		t.Errorf("%q %q", out, errs)
	}
}

func TestBench(t *testing.T) {
	args := func(more ...string) []string {
		return append([]string{"bench", "-m", filepath.Join(testkit.Root(t), "model/testdata/llama3"), "-p", "8", "-n", "4", "-d", "0,32", "-r", "2", "--split", "none,auto", "-t", "2"}, more...)
	}
	js, _ := must(t, "", args("-o", "json", "-b", "1,3", "--kv", "f16,q8_0")...)
	all := unmarshal[[]bench.Result](t, js)
	// 2 formats × 2 depths × (1 prompt + 2 batches × 2 policies)
	if len(all) != 2*2*(1+2*2) {
		t.Fatalf("%d results", len(all))
	}
	keys := unmarshal[[]map[string]any](t, js)[0]
	for _, k := range strings.Fields("build_commit cpu_info backend model_filename model_type model_size n_threads type_k type_v n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts samples_ns samples_ts split batch") {
		if _, ok := keys[k]; !ok {
			t.Errorf("no key %s", k)
		}
	}
	svg := filepath.Join(t.TempDir(), "x.svg")
	md, errs := must(t, "", args("--plot", svg)...)
	if strings.Count(md, "\n") != 2+6 || !strings.Contains(md, "tg4 @ d32") || !strings.Contains(errs, "* tg4, KV F16, split none") {
		t.Errorf("%s%s", md, errs)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || xml.Unmarshal(picture, new(struct{})) != nil || !bytes.Contains(picture, []byte("split auto")) {
		t.Errorf("%v: %s", err, picture)
	}
	out, _ := must(t, "", args("-o", "csv")...)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 1+6 {
		t.Errorf("%d rows of CSV: %v", len(rows), err)
	}
	out, _ = must(t, "", args("-o", "jsonl")...)
	if n := len(lines[bench.Result](t, out)); n != 6 {
		t.Errorf("%d lines of JSON", n)
	}
	out, _ = must(t, "", args("-o", "benchstat")...)
	if strings.Count(out, "BenchmarkModel/model=llama3/kv=F16/split=auto/batch=1/tg=4/d=32-2\t1\t") != 2 {
		t.Error(out)
	}
}

func TestBenchAttn(t *testing.T) {
	args := []string{"bench", "attn", "--q-heads", "4", "--kv-heads", "2", "--head-dim", "64", "--lens", "100,64+16x3", "--split", "none,splits:2",
		"--footprint", "1", "-r", "2", "-t", "2", "--kv", "q8_0"}
	out, _ := must(t, "", append(args, "-o", "jsonl", "--shuffle")...)
	all := lines[bench.AttentionResult](t, out)
	if len(all) != 4 {
		t.Fatalf("%d results", len(all))
	}
	if r := all[1]; r.Bytes != 100*2*2*68 || r.Items != 4 || r.Splits != 2 || r.Pages != "shuffled" || r.Split != "splits:2" || r.Percent <= 0 {
		t.Errorf("%+v", r)
	}
	if r := all[2]; len(r.Lens) != 4 || r.Items != 8 || r.Splits != 1 || r.NS <= 0 {
		t.Errorf("%+v", r)
	}
	out, _ = must(t, "", args...)
	if strings.Count(out, "\n") != 2+4 || !strings.Contains(out, "64+16x3") || !strings.Contains(out, "% of read") {
		t.Error(out)
	}
	out, _ = must(t, "", append(args, "-o", "json")...)
	if n := len(unmarshal[[]bench.AttentionResult](t, out)); n != 4 {
		t.Errorf("%d results", n)
	}
}

func TestDoctorAndVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes")
	}
	d := unmarshal[diagnosis](t, firstOf(must(t, "", "doctor", "--json")))
	if d.Threads < 1 || d.CPU.Model == "" || len(d.Bandwidth) == 0 || d.Bandwidth[0].GBps <= 0 || len(d.Models) != 3 {
		t.Errorf("%+v", d)
	}
	if out := d.text(); strings.Contains(out, " ,") || strings.Contains(out, " 1 threads") || !strings.Contains(out, "read bandwidth") || !strings.Contains(out, "GPUs") {
		t.Error(out)
	}
	b := unmarshal[build](t, firstOf(must(t, "", "version", "--json")))
	if b.Go != runtime.Version() || b.Instructions == "" || b.Version == "" {
		t.Errorf("%+v", b)
	}
	if out, _ := must(t, "", "version"); !strings.Contains(out, b.Instructions+" instructions") {
		t.Error(out)
	}
	if out, _ := must(t, "", "completion", "bash"); !strings.Contains(out, "flashdecode") {
		t.Error("no completion")
	}
}

func TestAdvice(t *testing.T) {
	d := &diagnosis{Models: []testModel{{Name: "big.gguf"}}}
	d.Build.Instructions, d.Memory.HugePages, d.GPUs.Driver, d.Threads, d.CPU.CPUs = "generic", "never", "550", 1, 2
	d.advise()
	for _, want := range []string{"plain Go", "madvise", "CUDA support is planned", "fetch_models.sh", "GOMAXPROCS"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("no advice about %q:\n%s", want, d.text())
		}
	}
}

// TestDoctorsWords: nothing known leaves no gaps, and one of a thing is no plural.
func TestDoctorsWords(t *testing.T) {
	d := &diagnosis{Threads: 1, Bandwidth: []bandwidth{{1, 10}, {2, 20}}}
	d.Build = build{Version: "(devel)", Go: "go1.26", Platform: "linux/amd64", Instructions: "generic"}
	d.CPU.CPUs, d.GPUs.Driver = 1, "550"
	text := d.text()
	for _, bad := range []string{" ,", ", ,", "1 threads", "1 CPUs", " ; ", "0 B"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q in\n%s", bad, text)
		}
	}
	for _, want := range []string{"(devel), ", "unknown, 1 CPU\n", ", 1 thread\n", "with 1 thread\n", "with 2 threads\n", "unknown; driver 550"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestBenchRefuses: what can't be done is said before anything is measured, and a picture that was not drawn leaves
// no file.
func TestBenchRefuses(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	const odd = "../../model/testdata/llama" // heads of 16 dimensions
	for _, args := range [][]string{
		{"bench", "--plot", filepath.Join(dir, "none", "x.svg")}, {"bench", "--plot", dir},
		{"bench", "-m", odd, "--kv", "f16,q8_0", "--plot", filepath.Join(dir, "new.svg")}, {"bench", "-m", odd, "--kv", "f16,q8_0", "--plot", old},
		{"run", "-m", odd, "--needle", "500", "--kv", "q8_0"}, {"perplexity", "-m", odd, "--kv", "q8_0", "--ctx", "16", "--file", "tools_test.go"},
		{"plan", "-m", odd, "--kv", "q8_0"}, {"bench", "attn", "-m", odd, "--kv", "q8_0"},
	} {
		code, out, errs := call(t, "", args...)
		flag := "--kv: Q8_0 stores blocks of 32, which heads of 16 don't fill"
		if !slices.Contains(args, odd) {
			flag = "--plot: open "
		}
		if code != exitUsage || out != "" || !strings.Contains(errs, flag) {
			t.Errorf("%v: exit code %d, %q, %q", args, code, errs, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"new.svg", "old.svg"} {
		a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
		if code := a.execute(ctx, []string{"bench", "--plot", filepath.Join(dir, name)}); code != exitInterrupted {
			t.Errorf("exit code %d", code)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "old" {
		t.Errorf("what was there is %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.svg")); err == nil {
		t.Error("an empty picture was left")
	}
}

func TestParseBatch(t *testing.T) {
	got, err := parseBatch("32k+512x3+1m", "+")
	if err != nil || fmt.Sprint(got) != "[32768 512 512 512 1048576]" || lengths(got) != "32768+512x3+1048576" {
		t.Errorf("%v, %v, %s", got, err, lengths(got))
	}
	for _, bad := range []string{"", "x2", "1x", "1x-1", "-1", "1025m", "9999999999999999999", "1x70000"} {
		if got, err := parseBatch(bad, "+"); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
