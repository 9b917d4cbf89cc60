package model_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// mostBytes bounds what opening a hostile file of 220 kB may allocate on the heap. The activations of a step lie
// outside it, and take memory as they are used.
const mostBytes = 16 << 20

// tryModel loads c, and if that works runs a step. It reports panics by not catching them.
func tryModel(t *testing.T, c model.Config, src weights.Source) error {
	be, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer be.Close()
	m, err := model.Load(be, src, c, model.Options{MaxRows: 8, MaxLogits: 1})
	if err != nil {
		return err
	}
	l := c.KVLayout()
	l.Pages, l.PageSize, l.Type = 1, 16, quant.F16
	kv, err := be.NewKV(l)
	if err != nil {
		return err
	}
	b := ops.Batch{
		Tokens: []int32{0, int32(c.Vocab - 1), 1}, Positions: []int32{0, 1, 2}, QIndptr: []int32{0, 3}, KVLens: []int32{3},
		PageIndptr: []int32{0, 1}, PageIndices: []int32{0},
	}
	return m.Forward(&b, kv, []int32{2}, make([]float32, c.Vocab))
}

// allocated returns the bytes that f allocates on the heap.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzConfig: whatever a GGUF file claims about itself, loading it and running a step neither panics nor takes much
// memory, and what is refused is refused in the package's words.
func FuzzConfig(f *testing.F) {
	dirs := []string{"llama", "qwen3", "gemma3"}
	files := make([]*gguf.File, len(dirs))
	for i, d := range dirs {
		var err error
		if files[i], err = gguf.Open(filepath.Join("testdata", d, "model.gguf")); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { files[i].Close() })
	}
	keys := files[2].Meta.Keys() // of the longest list
	for _, k := range keys {
		k = strings.TrimPrefix(k, "gemma3.")
		for i, v := range []int64{0, -1, 1, 7, 1 << 20, math.MinInt64, math.MaxInt64} {
			f.Add(uint8(i), k, v, float64(v), "attention.head_count", int64(3))
		}
	}
	f.Add(uint8(0), "attn_logit_softcapping", int64(0), math.NaN(), "final_logit_softcapping", int64(30))
	f.Add(uint8(1), "rope.scaling.factor", int64(4), math.Inf(1), "rope.scaling.type", int64(0))
	f.Add(uint8(2), "attention.sliding_window_pattern", int64(-5), 0.0, "attention.sliding_window", int64(1<<40))
	f.Fuzz(func(t *testing.T, file uint8, key string, n int64, x float64, other string, m int64) {
		src := files[int(file)%len(files)]
		arch, err := src.Meta.String("general.architecture")
		if err != nil {
			t.Fatal(err)
		}
		meta := edited{Meta: src.Meta, ints: map[string]int64{arch + "." + key: n, arch + "." + other: m}, floats: map[string]float64{arch + "." + key: x}}
		used := allocated(func() {
			var c model.Config
			if c, err = model.ConfigFromGGUF(meta, src); err == nil {
				err = tryModel(t, c, src)
			}
		})
		if err != nil && !strings.HasPrefix(err.Error(), "model: ") && !strings.HasPrefix(err.Error(), "cpu: ") {
			t.Errorf("error %q", err)
		}
		if used > mostBytes {
			t.Errorf("%d bytes allocated, error %v", used, err)
		}
	})
}

// edited is the metadata of a file with some numbers changed.
type edited struct {
	*gguf.Meta
	ints   map[string]int64
	floats map[string]float64
}

func (e edited) Has(key string) bool {
	_, ok := e.ints[key]
	return ok || e.Meta.Has(key)
}

func (e edited) Int(key string) (int, error) {
	if v, ok := e.ints[key]; ok {
		return int(v), nil
	}
	return e.Meta.Int(key)
}

func (e edited) IntOr(key string, def int) (int, error) {
	if e.Has(key) {
		return e.Int(key)
	}
	return def, nil
}

func (e edited) Float(key string) (float64, error) {
	if v, ok := e.floats[key]; ok {
		return v, nil
	}
	return e.Meta.Float(key)
}

func (e edited) FloatOr(key string, def float64) (float64, error) {
	if _, ok := e.floats[key]; ok {
		return e.Float(key)
	}
	return e.Meta.FloatOr(key, def)
}

// FuzzConfigJSON does the same for Hugging Face's config.json.
func FuzzConfigJSON(f *testing.F) {
	_, src := open(f, "llama", true)
	for _, d := range goldens {
		data, err := os.ReadFile(filepath.Join("testdata", d, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		for _, s := range []string{"null", "-1", "0", "1e99", "4294967296", `"x"`, "[]", "{}", "8", "3.5"} {
			for _, key := range []string{"hidden_size", "num_key_value_heads", "head_dim", "max_position_embeddings", "rope_theta", "rope_scaling", "rms_norm_eps", "vocab_size"} {
				if at := strings.Index(string(data), `"`+key+`": `); at >= 0 {
					at += len(key) + 4
					end := at + strings.IndexAny(string(data[at:]), ",\n")
					f.Add([]byte(string(data[:at]) + s + string(data[end:])))
				}
			}
		}
	}
	f.Add([]byte(`{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","layer_types":["sliding_attention"],"sliding_window":4}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		used := allocated(func() {
			var c model.Config
			if c, err = model.ConfigFromHF(data); err == nil {
				err = tryModel(t, c, src)
			}
		})
		if err != nil && !strings.HasPrefix(err.Error(), "model: ") && !strings.HasPrefix(err.Error(), "cpu: ") {
			t.Errorf("error %q", err)
		}
		if used > mostBytes {
			t.Errorf("%d bytes allocated, error %v", used, err)
		}
	})
}
