package model_test

import (
	"math"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// distance is the mean |difference| of the log-probabilities of the generated tokens from transformers' float32.
func distance(t *testing.T, r *realModel, prompts []realPrompt) float64 {
	t.Helper()
	sum, n := 0.0, 0
	for i := range prompts {
		p := &prompts[i]
		ids := append(append([]int32(nil), p.IDs...), p.Greedy...)
		r.forced(t, ids, func(j int, logits []float32) {
			if j+1 >= len(p.IDs) {
				sum += math.Abs(logProb(logits, ids[j+1]) - p.Forced[j])
				n++
			}
		})
	}
	return sum / float64(n)
}

// TestRealQuantised judges the path with 8-bit activations as what it is, an approximation: its log-probabilities
// under teacher forcing may be no further from float32 than llama.cpp's on the same file.
func TestRealQuantised(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for name, file := range realFiles {
		t.Run(name, func(t *testing.T) {
			var golden struct{ Prompts []realPrompt }
			be, err := cpu.New(cpu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := openReal(t, file, be, model.Options{MaxRows: realChunk, MaxLogits: realChunk}, quant.F16)
			readReal(t, name+".json", &golden)
			t.Logf("mean distance from float32: %.5f", distance(t, &r, golden.Prompts))
		})
	}
}
