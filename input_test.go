package flashdecode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/sample"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
)

const tinyLlama = "model/testdata/llama/model.gguf"

// wantError fails the test unless err says all of words.
func wantError(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one about %q", what, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want it to name %q", what, err, w)
		}
	}
}

// open opens a file of these bytes and closes it again.
func open(t *testing.T, data []byte, opts ...flashdecode.Option) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := flashdecode.Open(path, opts...)
	if err != nil {
		return err
	}
	return m.Close()
}

func TestOpenWhatIsNoModel(t *testing.T) {
	dir := t.TempDir()
	_, err := flashdecode.Open(filepath.Join(dir, "missing.gguf"))
	wantError(t, "missing file", err, "missing.gguf")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v, want os.ErrNotExist", err)
	}
	_, err = flashdecode.Open(dir)
	wantError(t, "empty directory", err, dir, "model.safetensors")
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = flashdecode.Open(dir)
	wantError(t, "directory with a configuration alone", err, dir)
	wantError(t, "empty file", open(t, nil), "model.gguf")
	wantError(t, "text", open(t, []byte("this is no model, but long enough to be one")), "GGUF")
	wantError(t, "zeros", open(t, make([]byte, 1000)), "GGUF")
	_, err = flashdecode.OpenTokenizer(filepath.Join(dir, "missing.gguf"))
	wantError(t, "tokenizer of a missing file", err, "missing.gguf")
}

// TestOpenTruncated cuts a file at every 97th byte and at the last.
func TestOpenTruncated(t *testing.T) {
	whole, err := os.ReadFile(tinyLlama)
	if err != nil {
		t.Fatal(err)
	}
	step := 97
	for n := 0; n < len(whole); n += step {
		if n > 8000 {
			step = 9001 // in the tensors
		}
		if err := open(t, whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were opened", n, len(whole))
		}
	}
	wantError(t, "without its last byte", open(t, whole[:len(whole)-1]), "tensor")
	if err := open(t, whole); err != nil {
		t.Errorf("the whole file: %v", err)
	}
}

// edited returns the tiny llama with some of its keys changed; nil removes a key.
func edited(t testing.TB, edits map[string]any) []byte {
	t.Helper()
	f, err := gguf.Open(tinyLlama)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var meta []gguf.KV
	for _, k := range f.Meta.Keys() {
		if _, ok := edits[k]; !ok {
			meta = append(meta, gguf.KV{Key: k, Value: valueOf(t, f.Meta, k)})
		}
	}
	for k, v := range edits {
		if v != nil {
			meta = append(meta, gguf.KV{Key: k, Value: v})
		}
	}
	var tensors []weights.Tensor
	for _, name := range f.Names() {
		w, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, w)
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, meta, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// valueOf reads a value of one of the types that the tiny checkpoints have.
func valueOf(t testing.TB, m *gguf.Meta, key string) any {
	t.Helper()
	typ, elem, _, _ := m.TypeOf(key)
	var v any
	var err error
	switch {
	case typ == gguf.String:
		v, err = m.String(key)
	case typ == gguf.Uint32:
		var n int
		n, err = m.Int(key)
		v = uint32(n)
	case typ == gguf.Float32:
		var x float64
		x, err = m.Float(key)
		v = float32(x)
	case typ == gguf.Bool:
		v, err = m.Bool(key)
	case elem == gguf.String:
		v, err = m.Strings(key)
	default:
		v, err = m.Int32s(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOpenAbsurd: a configuration that can't be is refused by the key that says so, at once and without the memory it
// asks for.
func TestOpenAbsurd(t *testing.T) {
	none := []string(nil)
	for _, c := range []struct {
		key   string
		value any
		words []string // that the error names besides the key; nil: it opens
	}{
		{"llama.context_length", uint32(512), none},
		{"llama.context_length", uint32(0), []string{"want 1 to"}},
		{"llama.context_length", uint32(math.MaxUint32), []string{"4294967295"}},
		{"llama.context_length", uint32(1 << 24), none},
		{"llama.context_length", "512", []string{"string"}},
		{"llama.context_length", nil, []string{"not found"}},
		{"llama.block_count", uint32(0), []string{"want 1 to"}},
		{"llama.block_count", uint32(5000), []string{"5000"}},
		{"llama.embedding_length", uint32(0), []string{"want 1 to"}},
		{"llama.embedding_length", int32(-36), []string{"-36"}},
		{"llama.feed_forward_length", uint64(1 << 60), []string{"1152921504606846976"}},
		{"llama.attention.head_count", uint32(0), []string{"want 1 to"}},
		{"llama.attention.head_count_kv", uint32(0), []string{"want 1 to"}},
		{"llama.attention.head_count_kv", uint32(4), []string{"llama.attention.head_count", "6"}},
		{"llama.attention.head_count_kv", []int32{2, 1}, []string{"layers"}},
		{"llama.attention.key_length", uint32(12), []string{"llama.attention.value_length", "12", "16"}},
		{"llama.attention.layer_norm_rms_epsilon", float32(math.NaN()), []string{"NaN"}},
		{"llama.attention.layer_norm_rms_epsilon", float32(-1), []string{"-1"}},
		{"llama.attention.scale", float32(math.Inf(1)), []string{"+Inf"}},
		{"llama.attn_logit_softcapping", float32(-3), []string{"-3"}},
		{"llama.rope.freq_base", float32(0), []string{"0"}},
		{"llama.rope.freq_base", float32(math.NaN()), []string{"NaN"}},
		{"llama.rope.dimension_count", uint32(15), []string{"15"}},
		{"llama.rope.dimension_count", uint32(18), []string{"16"}},
		{"tokenizer.ggml.tokens", []string{"a"}, []string{}},
		{"tokenizer.ggml.token_type", []int32{1, 2}, []string{}},
		{"tokenizer.ggml.merges", []string{"no such merge"}, []string{}},
	} {
		what := fmt.Sprintf("%s = %v", c.key, c.value)
		err := open(t, edited(t, map[string]any{c.key: c.value}))
		switch {
		case c.words == nil && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.words != nil:
			name := c.key
			if strings.HasPrefix(name, "tokenizer.") {
				name = "token" // the tokenizer has words of its own
			}
			wantError(t, what, err, append(c.words, name)...)
		}
	}
	// Sizes that no tensor has: the error names the tensor and what its size would be.
	for key, size := range map[string]string{
		"llama.embedding_length": "1048576", "llama.feed_forward_length": "1048576", "llama.attention.head_count": "16777216",
	} {
		wantError(t, key, open(t, edited(t, map[string]any{key: uint32(1 << 20)})), "tensor", size)
	}
	both := map[string]any{"llama.attention.key_length": uint32(12), "llama.attention.value_length": uint32(12)}
	wantError(t, "head dimension", open(t, edited(t, both)), "llama.attention.key_length", "multiple of 8")
	wantError(t, "block_count", open(t, edited(t, map[string]any{"llama.block_count": uint32(3)})), "blk.2.")
}

// TestOpenUnknown: what is not supported is named, with what is.
func TestOpenUnknown(t *testing.T) {
	err := open(t, edited(t, map[string]any{"general.architecture": "mamba", "mamba.context_length": uint32(5)}))
	wantError(t, "architecture", err, `"mamba"`, "llama", "qwen3", "gemma3")
	err = open(t, edited(t, map[string]any{"general.architecture": nil}))
	wantError(t, "no architecture", err, "general.architecture")
	err = open(t, edited(t, map[string]any{"tokenizer.ggml.pre": "klingon"}))
	wantError(t, "pre-tokeniser", err, `"klingon"`, "llama-bpe", "qwen2", "smollm")
	err = open(t, edited(t, map[string]any{"tokenizer.ggml.model": "wordpiece"}))
	wantError(t, "tokenizer", err, `"wordpiece"`, "gpt2", "llama")
	err = open(t, edited(t, map[string]any{"llama.rope.scaling.type": "longrope"}))
	wantError(t, "rope scaling", err, `"longrope"`, "linear")
	err = open(t, edited(t, map[string]any{"llama.expert_count": uint32(8)}))
	wantError(t, "experts", err, "8 experts")

	data := edited(t, nil)
	name := []byte("blk.1.ffn_down.weight")
	at := bytes.Index(data, name) + len(name) + 4 + 2*8 // behind the name: dimensions, their number first
	data[at] = 26                                       // I32
	wantError(t, "tensor type", open(t, data), string(name), "I32", "Q4_K")
}

func TestOptionValues(t *testing.T) {
	for what, o := range map[string]flashdecode.Option{
		"split":         flashdecode.Split("sideways"),
		"split 0":       flashdecode.Split("fixed:0"),
		"KV":            flashdecode.KV("q4_k"),
		"KV empty":      flashdecode.KV(""),
		"repack":        flashdecode.Repack("maybe"),
		"instructions":  flashdecode.Instructions("mmx"),
		"addresses":     flashdecode.KVAddresses("round"),
		"context":       flashdecode.Context(-1),
		"context 1":     flashdecode.Context(1),
		"context huge":  flashdecode.Context(math.MaxInt),
		"cache":         flashdecode.KVTokens(0),
		"cache huge":    flashdecode.KVTokens(math.MaxInt),
		"cache of 3 TB": flashdecode.KVTokens(1 << 30), // the machine has less
		"threads":       flashdecode.Threads(0),
		"threads huge":  flashdecode.Threads(1 << 20),
		"sequences":     flashdecode.MaxSequences(0),
		"sequences big": flashdecode.MaxSequences(1000), // more than a step has rows
		"chunk":         flashdecode.PrefillChunk(0),
		"chunk small":   flashdecode.PrefillChunk(7), // fewer than sequences
		"chunk huge":    flashdecode.PrefillChunk(1 << 30),
	} {
		if what == "cache of 3 TB" && runtime.GOOS != "linux" {
			continue // nobody tells how much memory there is
		}
		m, err := flashdecode.Embedded(o)
		if err == nil {
			t.Errorf("%s: accepted", what)
			m.Close()
		} else if !strings.HasPrefix(err.Error(), "flashdecode: ") {
			t.Errorf("%s: %v, want it to begin with the package", what, err)
		}
	}
}

// TestPromptDoesNotFit: refused when it is submitted, with the numbers.
func TestPromptDoesNotFit(t *testing.T) {
	prompt := make([]int32, 200)
	for _, c := range []struct {
		opt   flashdecode.Option
		words []string
	}{
		{flashdecode.Context(100), []string{"200", "100"}},
		{flashdecode.Context(200), []string{"200"}}, // no room for an answer
		{flashdecode.KVTokens(160), []string{"200", "13 pages", "10"}},
	} {
		m := embedded(t, c.opt)
		_, err := generate(m, prompt)
		wantError(t, "prompt of 200", err, c.words...)
		if !errors.Is(err, engine.ErrTooLong) {
			t.Errorf("%v is not engine.ErrTooLong", err)
		}
		if _, err := generate(m, prompt[:50], flashdecode.MaxTokens(2)); err != nil {
			t.Errorf("a prompt that fits, afterwards: %v", err)
		}
	}
	m := embedded(t, flashdecode.KVTokens(64))
	got, err := generate(m, prompt[:50]) // the answer outgrows the cache
	if !errors.Is(err, engine.ErrCacheFull) || len(got) != 64-50+1 {
		t.Errorf("%d tokens and %v, want 15 and engine.ErrCacheFull", len(got), err)
	}
}

func TestRequestValues(t *testing.T) {
	m := embedded(t)
	nan := float32(math.NaN())
	for what, change := range map[string]func(*sample.Params){
		"temperature":    func(p *sample.Params) { p.Temperature = -1 },
		"temperature ":   func(p *sample.Params) { p.Temperature = nan },
		"top-k":          func(p *sample.Params) { p.TopK = -1 },
		"top-p":          func(p *sample.Params) { p.TopP = 0 },
		"min-p":          func(p *sample.Params) { p.MinP = 2 },
		"repetition":     func(p *sample.Params) { p.RepetitionPenalty = 0 },
		"bias for token": func(p *sample.Params) { p.LogitBias = map[int32]float32{1 << 30: 1} },
		"log-probs":      func(p *sample.Params) { p.LogProbs, p.TopLogProbs = true, 21 },
	} {
		p := sample.Default()
		change(&p)
		_, err := generate(m, []int32{5}, flashdecode.Sampling(p), flashdecode.MaxTokens(1))
		wantError(t, what, err, "flashdecode: ", strings.TrimSpace(what))
	}
	_, err := generate(m, []int32{5}, flashdecode.MaxTokens(-1))
	wantError(t, "max tokens", err, "-1")
	_, err = generate(m, nil)
	wantError(t, "no prompt", err, "empty")
	for _, id := range []int32{-1, 4096, math.MaxInt32} {
		_, err = generate(m, []int32{5, id})
		wantError(t, "token", err, fmt.Sprint(id), "4096")
	}
	if m, err = flashdecode.Open(tinyLlama); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, err := range m.Chat(context.Background(), []flashdecode.Message{{Role: "user", Content: "x"}}) {
		wantError(t, "chat without a template", err, "template")
		break
	}
}
