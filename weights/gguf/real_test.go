package gguf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// realModel returns the path of a model that scripts/fetch_models.sh fetches, or skips.
func realModel(t testing.TB, name string) string {
	dir := os.Getenv("FLASHDECODE_MODELS")
	if dir == "" {
		dir = filepath.Join("..", "..", ".models")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: run scripts/fetch_models.sh", path)
	}
	return path
}

var realModels = []struct {
	name, arch   string
	tensors      int
	vocabulary   int
	token        int // its text:
	text         string
	types        map[quant.Type]bool
	embedding    string
	embeddingRow int
}{
	{
		name: "SmolLM2-135M-Instruct.Q4_1.gguf", arch: "llama", tensors: 272, vocabulary: 49152, token: 1, text: "<|im_start|>",
		types: map[quant.Type]bool{quant.F32: true, quant.Q4_1: true, quant.Q8_0: true}, embedding: "token_embd.weight", embeddingRow: 576,
	},
	{
		name: "gemma-3-270m-q4_k_m.gguf", arch: "gemma3", tensors: 236, vocabulary: 262144, token: 2, text: "<bos>",
		types: map[quant.Type]bool{quant.F32: true, quant.Q5_0: true, quant.Q8_0: true, quant.Q4_K: true, quant.Q6_K: true}, embedding: "token_embd.weight", embeddingRow: 640,
	},
}

func TestRealModels(t *testing.T) {
	for _, c := range realModels {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(realModel(t, c.name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if arch, err := f.Meta.String("general.architecture"); arch != c.arch || err != nil {
				t.Errorf("architecture %q, %v", arch, err)
			}
			words, err := f.Meta.Strings("tokenizer.ggml.tokens")
			if err != nil || len(words) != c.vocabulary || words[c.token] != c.text {
				t.Errorf("%d tokens, error %v", len(words), err)
			}
			if types, err := f.Meta.Int32s("tokenizer.ggml.token_type"); err != nil || len(types) != c.vocabulary {
				t.Errorf("%d token types, error %v", len(types), err)
			}
			if len(f.Tensors) != c.tensors {
				t.Errorf("%d tensors, want %d", len(f.Tensors), c.tensors)
			}
			types := make(map[quant.Type]bool)
			for _, name := range f.Names() {
				w, err := f.Tensor(name)
				if err != nil {
					t.Error(err)
					continue
				}
				types[w.Type] = true
				// A row of weights: all finite, none absurd, not all zero.
				row := make([]float32, w.Shape[len(w.Shape)-1])
				if err := quant.Dequantize(w.Type, row, w.Data[:w.Type.RowBytes(len(row))]); err != nil {
					t.Error(err)
				}
				var top float32
				for _, v := range row {
					if !(v > -1e4 && v < 1e4) {
						t.Errorf("%s: weight %g", name, v)
						break
					}
					top = max(top, v, -v)
				}
				if top == 0 {
					t.Errorf("%s: first row is zero", name)
				}
			}
			for typ := range c.types {
				if !types[typ] {
					t.Errorf("no tensor of %v", typ)
				}
			}
			if w, err := f.Tensor(c.embedding); err != nil || w.Shape[0] != c.vocabulary || w.Shape[1] != c.embeddingRow {
				t.Errorf("embedding %v, %v", w.Shape, err)
			}
		})
	}
}

// TestOpenAllocates: opening decodes no array, so it allocates far less than the vocabulary's text,
// some megabytes: keys, scalars (a chat template is some kilobytes) and the list of tensors.
func TestOpenAllocates(t *testing.T) {
	path := realModel(t, realModels[1].name)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Open(path)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<19 {
		t.Errorf("%d bytes allocated", spent)
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, c := range realModels {
		b.Run("model="+c.name, func(b *testing.B) {
			path := realModel(b, c.name)
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

func BenchmarkVocabulary(b *testing.B) {
	for _, c := range realModels {
		b.Run("model="+c.name, func(b *testing.B) {
			f, err := Open(realModel(b, c.name))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			for b.Loop() {
				if _, err := f.Meta.Strings("tokenizer.ggml.tokens"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
