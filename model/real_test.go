package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/backend/ref"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// realPrompt is a prompt of testdata/real: what transformers computes in float32.
type realPrompt struct {
	Prompt string    `json:"prompt"`
	IDs    []int32   `json:"ids"`
	Greedy []int32   `json:"greedy"`
	Gap    []float64 `json:"gap"`
	Forced []float64 `json:"forced"`
}

func readReal(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "real", name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// realModel is a real model on a backend with room for n tokens.
type realModel struct {
	m  *model.Model
	kv ops.KV
	be ops.Backend
}

func openReal(t *testing.T, file string, be ops.Backend, o model.Options, kvType quant.Type) realModel {
	t.Helper()
	f, err := gguf.Open(testkit.Model(t, file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { be.Close(); f.Close() })
	c, err := model.ConfigFromGGUF(f.Meta, f)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(be, f, c, o)
	if err != nil {
		t.Fatal(err)
	}
	l := c.KVLayout()
	l.Pages, l.PageSize, l.Type = 64, 16, kvType
	kv, err := be.NewKV(l)
	if err != nil {
		t.Fatal(err)
	}
	return realModel{m, kv, be}
}

const realChunk = 64 // tokens of a step

// forced calls f with the position and the logits after every token of ids but the last.
func (r *realModel) forced(t *testing.T, ids []int32, f func(i int, logits []float32)) {
	t.Helper()
	table := make([]int32, 64)
	for i := range table {
		table[i] = int32(i)
	}
	logits := make([]float32, realChunk*r.m.Vocab)
	for at := 0; at < len(ids)-1; at += realChunk {
		n := min(realChunk, len(ids)-1-at)
		b := ops.Batch{
			Tokens: ids[at : at+n], QIndptr: []int32{0, int32(n)}, KVLens: []int32{int32(at + n)},
			PageIndptr: []int32{0, int32(len(table))}, PageIndices: table,
		}
		var rows []int32
		for i := range n {
			b.Positions, rows = append(b.Positions, int32(at+i)), append(rows, int32(i))
		}
		if err := r.m.Forward(&b, r.kv, rows, logits); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			f(at+i, logits[i*r.m.Vocab:(i+1)*r.m.Vocab])
		}
	}
}

// logProb is the natural log of the probability of id.
func logProb(logits []float32, id int32) float64 {
	top := float64(logits[argMax(logits)])
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}

// nearTie is a gap of two logits below which float32 may choose either.
const nearTie = 1e-3

// checkFloat compares one prompt with transformers: log-probabilities within 1e-3, and the greedy tokens up to the
// first near-tie.
func checkFloat(t *testing.T, r *realModel, p *realPrompt) {
	t.Helper()
	ids := append(append([]int32(nil), p.IDs...), p.Greedy...)
	worst, tied := 0.0, false
	r.forced(t, ids, func(i int, logits []float32) {
		d := math.Abs(logProb(logits, ids[i+1]) - p.Forced[i])
		if !(d <= worst) {
			worst = d
		}
		g := i + 1 - len(p.IDs)
		if g < 0 || tied {
			return
		}
		if tied = p.Gap[g] < nearTie; tied {
			t.Logf("%.20q: step %d is a near-tie (%g)", p.Prompt, g, p.Gap[g])
			return
		}
		if got := argMax(logits); got != p.Greedy[g] {
			t.Errorf("%.20q: step %d chooses %d, transformers %d (ahead by %g)", p.Prompt, g, got, p.Greedy[g], p.Gap[g])
			tied = true
		}
	})
	t.Logf("%.20q: %d tokens, worst log-probability off by %.2g", p.Prompt, len(ids), worst)
	if !(worst <= 1e-3) {
		t.Errorf("%.20q: a log-probability is off by %g", p.Prompt, worst)
	}
}

var realFiles = map[string]string{
	"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
	"gemma3":  "gemma-3-270m-q4_k_m.gguf",
}

// TestRealFloat32 holds the float32 path of the CPU backend, weights dequantised, against transformers.
func TestRealFloat32(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for name, file := range realFiles {
		t.Run(name, func(t *testing.T) {
			var golden struct{ Prompts []realPrompt }
			testkit.Model(t, file) // skips without it
			readReal(t, name+".json", &golden)
			be, err := cpu.New(cpu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := openReal(t, file, be, model.Options{MaxRows: realChunk, MaxLogits: realChunk, ToFloat: true}, quant.F32)
			for i := range golden.Prompts {
				checkFloat(t, &r, &golden.Prompts[i])
			}
		})
	}
}

// allPromptsEnv makes TestRealReference take the whole of every prompt: tens of minutes.
const allPromptsEnv = "FLASHDECODE_ALL_PROMPTS"

// TestRealReference holds the float64 reference backend against transformers on the shortest prompt of each model.
func TestRealReference(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for name, file := range realFiles {
		t.Run(name, func(t *testing.T) {
			var golden struct{ Prompts []realPrompt }
			readReal(t, name+".json", &golden)
			r := openReal(t, file, ref.New(), model.Options{MaxRows: realChunk, MaxLogits: realChunk}, quant.F32)
			if os.Getenv(allPromptsEnv) != "" {
				for i := range golden.Prompts {
					checkFloat(t, &r, &golden.Prompts[i])
				}
				return
			}
			shortest := &golden.Prompts[0]
			for i := range golden.Prompts {
				if p := &golden.Prompts[i]; len(p.IDs) < len(shortest.IDs) {
					shortest = p
				}
			}
			short := *shortest
			short.Greedy = short.Greedy[:16] // seconds for each token
			checkFloat(t, &r, &short)
		})
	}
}
