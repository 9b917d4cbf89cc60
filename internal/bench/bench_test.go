package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func runner(t testing.TB, path string, o Options) *Runner {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func cache(t testing.TB, r *Runner, kv quant.Type, seqs, tokens int) *Cache {
	t.Helper()
	c, err := r.NewCache(kv, seqs, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func random(n, vocab int) []int32 {
	tokens := make([]int32, n)
	RandomTokens(tokens, vocab, 7)
	return tokens
}

// forward is the reference: the model's own forward pass over all tokens at once, logits of every row.
func forward(t *testing.T, path string, tokens []int32) []float32 {
	t.Helper()
	r := runner(t, path, Options{Threads: 1, Chunk: len(tokens), MaxLogits: len(tokens)})
	l := r.Model.KVLayout()
	l.Type, l.PageSize, l.Pages = quant.F32, len(tokens), 1
	kv, err := r.be.NewKV(l)
	if err != nil {
		t.Fatal(err)
	}
	n := int32(len(tokens))
	b := ops.Batch{Tokens: tokens, QIndptr: []int32{0, n}, KVLens: []int32{n}, PageIndptr: []int32{0, 1}, PageIndices: []int32{0}}
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	b.Positions = rows
	logits := make([]float32, len(tokens)*r.Model.Vocab)
	if err := r.Model.Forward(&b, kv, rows, logits); err != nil {
		t.Fatal(err)
	}
	return logits
}

// TestCache: in chunks, token by token, after Truncate and after Broadcast, the logits are those of one forward pass.
// The weights are float32, so what differs is the order of sums over some tens of terms and a float16-free cache.
func TestCache(t *testing.T) {
	path := testkit.Root(t) + "/model/testdata/llama"
	r := runner(t, path, Options{Threads: 2, Chunk: 16, MaxLogits: 3})
	vocab := r.Model.Vocab
	tokens := random(50, vocab)
	want := forward(t, path, tokens)
	row := func(i int) []float32 { return want[i*vocab : (i+1)*vocab] }
	tol := testkit.RMS(want, testkit.Tol(testkit.F32, 64*r.Model.Layers*7))
	ctx := t.Context()
	c := cache(t, r, quant.F32, 3, 50)
	check := func(what string, s, i int) {
		t.Helper()
		testkit.Near(t, what, c.Logits[s*vocab:(s+1)*vocab], row(i), tol)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	ok(c.Prefill(ctx, 0, tokens[:40], func(done, total int) { calls++ }))
	if check("chunks", 0, 39); calls != 3 {
		t.Errorf("progress was called %d times", calls)
	}
	c.Truncate(21)
	ok(c.Prefill(ctx, 0, tokens[21:33], nil))
	check("after Truncate", 0, 32)
	ok(c.Broadcast(0))
	c.Policy = plan.Splits(2)
	for i := 33; i < 37; i++ {
		ok(c.Decode(ctx, []int32{tokens[i], tokens[i], tokens[i]}))
		for s := range 3 {
			check(fmt.Sprint("sequence ", s), s, i)
		}
	}
	ok(c.Step(ctx, 1, 1, tokens[37:40], 3))
	for i := range 3 {
		check("rows", i, 37+i)
	}
	if c.Len(0) != 37 || c.Len(1) != 40 || c.TokenBytes() != int64(r.Model.Layers*2*r.Model.KVHeads*r.Model.HeadDim*4) {
		t.Errorf("lengths %d and %d, %d bytes a token", c.Len(0), c.Len(1), c.TokenBytes())
	}
	ok(c.Decode(ctx, []int32{tokens[37], tokens[40], tokens[37]}))
	check("shorter beside longer", 0, 37)
	check("longer beside shorter", 1, 40)
	// A later depth continues an earlier one, so only new pages are copied.
	c.Truncate(35)
	ok(c.Prefill(ctx, 0, tokens[35:48], nil))
	ok(c.Broadcast(35))
	ok(c.Decode(ctx, []int32{tokens[48], tokens[48], tokens[48]}))
	check("after a second Broadcast", 2, 48)
}

func TestCacheErrors(t *testing.T) {
	r := runner(t, "", Options{Threads: 1, Chunk: 16, MaxLogits: 2})
	c := cache(t, r, quant.F16, 2, 20)
	ctx := t.Context()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for what, err := range map[string]error{
		"nothing":         c.Step(ctx, 0, 1, nil, 0),
		"uneven":          c.Step(ctx, 0, 2, random(3, 10), 0),
		"beyond chunk":    c.Step(ctx, 0, 1, random(17, 10), 0),
		"too many logits": c.Step(ctx, 0, 1, random(8, 10), 3),
		"too long":        c.Prefill(ctx, 0, random(21, 10), nil),
		"cancelled":       c.Decode(cancelled, random(2, 10)),
		"bad token":       c.Decode(ctx, []int32{-1, 0}),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := r.NewCache(quant.Q4_K, 1, 1); err == nil {
		t.Error("a cache of Q4_K")
	}
	if _, err := r.NewCache(quant.F16, 17, 1); err == nil {
		t.Error("more sequences than rows of a step")
	}
}

// TestNoAllocations: a decode step leaves the collector nothing to do.
func TestNoAllocations(t *testing.T) {
	r := runner(t, testkit.Root(t)+"/model/testdata/llama", Options{Threads: 2, MaxLogits: 4})
	c := cache(t, r, quant.F16, 4, 600)
	ctx := t.Context()
	if err := errors.Join(c.Prefill(ctx, 0, random(500, r.Model.Vocab), nil), c.Broadcast(0)); err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 2, 3, 4}
	for _, p := range []plan.Policy{plan.None(), plan.Splits(3), plan.Auto()} {
		c.Policy = p
		if n := testing.AllocsPerRun(20, func() {
			if err := c.Decode(ctx, tokens); err != nil {
				t.Error(err)
			}
			c.Truncate(500)
		}); n > 0 {
			t.Errorf("split %v: %v allocations a step", p, n)
		}
	}
}

// TestPerplexity against the definition, in float64, from the logits of one forward pass over each chunk.
func TestPerplexity(t *testing.T) {
	path := testkit.Root(t) + "/model/testdata/llama"
	r := runner(t, path, Options{Threads: 2, Chunk: 8, MaxLogits: 3}) // steps that divide nothing
	const window, bos = 21, 2
	tokens := random(3*window+5, r.Model.Vocab)
	for _, first := range []int32{bos, tokenizer.None} {
		var nll, sq float64
		scored := 0
		for i := range 3 {
			chunk := append([]int32(nil), tokens[i*window:(i+1)*window]...)
			if first != tokenizer.None {
				chunk[0] = first
			}
			logits := forward(t, path, chunk)
			for j := window / 2; j+1 < window; j++ {
				x := logSoftmax(logits[j*r.Model.Vocab:(j+1)*r.Model.Vocab], chunk[j+1])
				nll, sq, scored = nll-x, sq+x*x, scored+1
			}
		}
		mean := nll / float64(scored)
		want := math.Exp(mean)
		wantErr := want * math.Sqrt((sq/float64(scored)-mean*mean)/float64(scored-1))
		var sofar []float64
		p, err := r.Perplexity(t.Context(), quant.F32, tokens, window, first, func(_, _ int, x float64) { sofar = append(sofar, x) })
		if err != nil {
			t.Fatal(err)
		}
		if p.Scored != scored || p.Chunks != 3 || len(sofar) != 3 || sofar[2] != p.Perplexity {
			t.Errorf("%+v, %v", p, sofar)
		}
		// float32 logits of size 1 carry errors of about 1e-6, which the mean does not enlarge.
		testkit.Near(t, "perplexity and its error", []float64{p.Perplexity, p.Stderr}, []float64{want, wantErr}, testkit.Tolerance{Rel: 1e-5})
	}
	if _, err := r.Perplexity(t.Context(), quant.F16, tokens[:2*window-1], window, bos, nil); !errors.Is(err, ErrShort) {
		t.Errorf("a short text: %v", err)
	}
	if _, err := r.Perplexity(t.Context(), quant.F16, tokens, 1<<20, bos, nil); err == nil || !strings.Contains(err.Error(), "context") {
		t.Errorf("chunks beyond the context: %v", err)
	}
}

func logSoftmax(logits []float32, target int32) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[target]) - top - math.Log(sum)
}

// TestRun: the tests, their order and what they say of themselves. Times are whatever they are.
func TestRun(t *testing.T) {
	r := runner(t, testkit.Root(t)+"/model/testdata/llama3", Options{Threads: 2, MaxLogits: 2, Chunk: 32})
	var got []string
	var filled []int
	err := r.Run(t.Context(), Tests{
		Prompt: []int{40, 0}, Gen: []int{3}, Depths: []int{50, 20, 0, 10, 40}, KV: []quant.Type{quant.F16, quant.Q8_0},
		Splits: []plan.Policy{plan.None(), plan.Splits(2)}, Batches: []int{1, 2}, Reps: 3,
	}, "c0ffee", "cpu", Report{Progress: func(what string, done, total int) {
		if strings.HasPrefix(what, "filling") && done == total {
			filled = append(filled, total)
		}
	}, Result: func(x Result) error {
		got = append(got, fmt.Sprintf("%s %s b%d %s", x.TypeK, x.Split, x.Batch, x.Test()))
		if len(x.SamplesNS) != 3 || len(x.SamplesTS) != 3 || x.AvgTS <= 0 || x.Commit != "c0ffee" || x.Type != "llama BF16" || x.Threads != 2 {
			t.Errorf("%+v", x)
		}
		for i, ns := range x.SamplesNS {
			if want := float64(x.Batch*(x.Prompt+x.Gen)) * 1e9 / float64(ns); math.Abs(x.SamplesTS[i]/want-1) > 1e-12 {
				t.Errorf("%d ns are %v tokens/s, not %v", ns, x.SamplesTS[i], want)
			}
		}
		if (x.Gen > 0) != (x.Speedup > 0) || x.Gen > 0 && x.Split == "none" && x.Speedup != 1 {
			t.Errorf("speedup %v of %s", x.Speedup, x.Test())
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, kv := range []string{"F16", "Q8_0"} {
		for b := 1; b <= 2; b++ {
			for _, d := range []string{" @ d50", " @ d20", "", " @ d10", " @ d40"} {
				if b == 1 {
					want = append(want, kv+" none b1 pp40"+d)
				}
				want = append(want, fmt.Sprintf("%s none b%d tg3%s", kv, b, d), fmt.Sprintf("%s splits:2 b%d tg3%s", kv, b, d))
			}
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// What a smaller depth filled stays: 50 first, then back to 0, then 10, then 30 more.
	if want := strings.Repeat("50 10 30 ", 4); fmt.Sprintln(filled) != "["+strings.TrimSpace(want)+"]\n" {
		t.Errorf("filled %v", filled)
	}
	stop := errors.New("stop")
	if err := r.Run(t.Context(), Tests{Gen: []int{1}, Depths: []int{0}, KV: []quant.Type{quant.F16}, Splits: []plan.Policy{{}}, Batches: []int{1}, Reps: 1},
		"", "", Report{Result: func(Result) error { return stop }}); err != stop {
		t.Errorf("the caller's error became %v", err)
	}
}

func TestStatistics(t *testing.T) {
	if m, d := meanDev([]float64{2, 4, 4, 4, 5, 5, 7, 9}); m != 5 || math.Abs(d-math.Sqrt(32.0/7)) > 1e-12 {
		t.Errorf("mean %v, deviation %v", m, d)
	}
	if m, d := meanDev([]float64{3}); m != 3 || d != 0 {
		t.Errorf("one sample: %v ± %v", m, d)
	}
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median %v", m)
	}
	if m := medianRatio([]float64{2, 9, 8, 1}, []float64{1, 3, 2, 1}); m != 2.5 { // 2, 3, 4, 1
		t.Errorf("median ratio %v", m)
	}
	if a := Argmax([]float32{1, 3, 3, -1}); a != 1 {
		t.Errorf("argmax %d", a)
	}
}

func TestFormats(t *testing.T) {
	res := Result{Backend: "cpu", File: "a b.gguf", Type: "llama Q8_0", TypeK: "F16", Split: "auto", Batch: 2, Gen: 8, Depth: 64, Threads: 3,
		SamplesNS: []int64{1e9, 2e9}, SamplesTS: []float64{16, 8}}
	res.finish()
	for format, want := range map[string]string{
		"md":        "| llama Q8_0               |     0.0 MB |    0.00 M | cpu                     | F16  | auto       |     2 |       tg8 @ d64 |      12.00 ± 5.66 |         |\n",
		"csv":       ",cpu,a b.gguf,llama Q8_0,0,0,0,3,F16,,auto,2,0,8,64,,1500000000,707106781,12,5.656854249492381,0\n",
		"json":      "\n  },\n  {\n",
		"jsonl":     `"samples_ns":[1000000000,2000000000],"samples_ts":[16,8]}` + "\n{",
		"benchstat": "BenchmarkModel/model=a_b.gguf/kv=F16/split=auto/batch=2/tg=8/d=64-3\t1\t1000000000 ns/op\t16.00 tok/s\n",
	} {
		var b bytes.Buffer
		w, err := NewWriter(&b, format)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(res), w.Write(res), w.Close()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q:\n%s", format, want, b.String())
		}
	}
	if _, err := NewWriter(nil, "xml"); err == nil {
		t.Error("xml")
	}
}

func TestAttention(t *testing.T) {
	test := AttentionTest{QHeads: 6, KVHeads: 2, HeadDim: 32, KV: quant.F16, Lens: []int{300, 17, 1}, Splits: []plan.Policy{plan.None(), plan.Splits(4)},
		Threads: 2, Footprint: 1 << 20, Reps: 2}
	res, err := Attention(t.Context(), test, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ items, splits int }{{6, 1}, {2*4 + 2*2 + 2, 4}} {
		r := res[i]
		if r.Bytes != 318*2*2*64 || r.Items != want.items || r.Splits != want.splits || r.NS <= 0 || r.Percent <= 0 || r.Read <= 0 {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	for _, bad := range []func(*AttentionTest){
		func(a *AttentionTest) { a.Lens = []int{5, 0} }, func(a *AttentionTest) { a.QHeads = 5 }, func(a *AttentionTest) { a.KVHeads = 0 },
		func(a *AttentionTest) { a.HeadDim = 30 }, func(a *AttentionTest) { a.KV = quant.Q4_K }, func(a *AttentionTest) { a.Reps = 0 },
	} {
		b := test
		bad(&b)
		if _, err := Attention(t.Context(), b, nil); err == nil {
			t.Errorf("no error for %+v", b)
		}
	}
}

func TestReader(t *testing.T) {
	r, err := NewReader(3<<20-1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := r.Read(); err != nil || d <= 0 || r.Bytes() != 3<<20 {
		t.Errorf("%v, %v, %d bytes", d, err, r.Bytes())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	for path, want := range map[string]string{"": "llama Q8_0 6556928", testkit.Root(t) + "/model/testdata/llama3": "llama BF16 64944"} {
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Config.Arch, " ", s.Type, " ", s.Params); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"nowhere", "bench_test.go", "."} {
		if _, err := Open(bad); err == nil {
			t.Errorf("%s opened", bad)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	r := runner(b, "", Options{})
	c := cache(b, r, quant.F16, 1, 4097)
	if err := c.Prefill(b.Context(), 0, random(4096, r.Model.Vocab), nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(4096*c.TokenBytes() + r.source.Bytes)
	for b.Loop() {
		if err := c.Decode(b.Context(), []int32{1}); err != nil {
			b.Fatal(err)
		}
		c.Truncate(4096)
	}
}
