package model_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/backend/ref"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/flashdecode/flashdecode/weights/safetensors"
)

// goldens are the tiny checkpoints of testdata (see its README).
var goldens = []string{"llama", "llama3", "mistral", "qwen2", "qwen3", "gemma3", "gemma3-scaled"}

// tolerance of a logit. Transformers' own float32 differs from a float64 pass by up to 3e-5 on these networks; a
// correct float32 path errs about as much in another direction, and ten times the noise still is a hundredth of what
// the smallest wrong convention moves.
const tolerance = 2e-4

// open loads a golden from its GGUF or its Hugging Face files.
func open(t testing.TB, name string, hf bool) (model.Config, weights.Source) {
	t.Helper()
	dir := filepath.Join("testdata", name)
	if hf {
		s, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		c, err := model.ConfigFromHF(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		return c, s
	}
	f, err := gguf.Open(filepath.Join(dir, "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c, err := model.ConfigFromGGUF(f.Meta, f)
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}

// backends lists every backend that must agree with transformers.
func backends() map[string]func() (ops.Backend, error) {
	m := map[string]func() (ops.Backend, error){
		"ref": func() (ops.Backend, error) { return ref.New(), nil },
	}
	for _, l := range simd.Levels() {
		m["cpu/"+l.String()] = func() (ops.Backend, error) { return cpu.New(cpu.Options{Workers: 2, Level: &l}) }
	}
	return m
}

type golden struct {
	tokens, greedy []int32
	gap            []float64
	logits         []float32 // [tokens, vocab]
}

func readGolden(t testing.TB, name string) golden {
	t.Helper()
	var j struct {
		Tokens []int32   `json:"tokens"`
		Greedy []int32   `json:"greedy"`
		Gap    []float64 `json:"greedy_gap"`
	}
	data, err := os.ReadFile(filepath.Join("testdata", name, "tokens.json"))
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join("testdata", name, "logits.bin"))
	if err != nil {
		t.Fatal(err)
	}
	g := golden{tokens: j.Tokens, greedy: j.Greedy, gap: j.Gap, logits: make([]float32, len(raw)/4)}
	for i := range g.logits {
		g.logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return g
}

// runner feeds one sequence to a model.
type runner struct {
	m      *model.Model
	kv     ops.KV
	tokens []int32
	table  []int32
	policy plan.Policy
}

const (
	testPages    = 24
	testPageSize = 16
)

func newRunner(t testing.TB, be ops.Backend, c model.Config, src weights.Source, o model.Options, kvType quant.Type) *runner {
	t.Helper()
	m, err := model.Load(be, src, c, o)
	if err != nil {
		t.Fatal(err)
	}
	l := c.KVLayout()
	l.Pages, l.PageSize, l.Type = testPages, testPageSize, kvType
	kv, err := be.NewKV(l)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{m: m, kv: kv}
	for i := range testPages { // a shuffled table
		r.table = append(r.table, int32((i*7+3)%testPages))
	}
	return r
}

// step appends tokens and returns the logits of the last `want` of them, [want, vocab].
func (r *runner) step(t testing.TB, tokens []int32, want int) []float32 {
	t.Helper()
	n := len(r.tokens)
	b := ops.Batch{Tokens: tokens, QIndptr: []int32{0, int32(len(tokens))}, KVLens: []int32{int32(n + len(tokens))}, Policy: r.policy}
	pages := (n + len(tokens) + testPageSize - 1) / testPageSize
	b.PageIndptr, b.PageIndices = []int32{0, int32(pages)}, r.table[:pages]
	var rows []int32
	for i := range tokens {
		b.Positions = append(b.Positions, int32(n+i))
		if i >= len(tokens)-want {
			rows = append(rows, int32(i))
		}
	}
	logits := make([]float32, want*r.m.Vocab)
	if err := r.m.Forward(&b, r.kv, rows, logits); err != nil {
		t.Fatal(err)
	}
	r.tokens = append(r.tokens, tokens...)
	return logits
}

func compare(t *testing.T, what string, got, want []float32) {
	t.Helper()
	worst, at := 0.0, 0
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if !(d <= worst) { // a NaN too
			worst, at = d, i
		}
	}
	if !(worst <= tolerance) {
		t.Errorf("%s: logit %d is %g, want %g (tolerance %g)", what, at, got[at], want[at], tolerance)
	}
}

// TestGoldenLogits compares every architecture, both file formats and all backends with transformers: the whole
// sequence in one step, in ragged steps, and token by token.
func TestGoldenLogits(t *testing.T) {
	for _, name := range goldens {
		for _, hf := range []bool{false, true} {
			for beName, newBackend := range backends() {
				t.Run(fmt.Sprintf("%s/hf=%v/%s", name, hf, beName), func(t *testing.T) {
					c, src := open(t, name, hf)
					g := readGolden(t, name)
					for _, chunks := range [][]int{{40}, {7, 1, 20, 12}, {1}} {
						be, err := newBackend()
						if err != nil {
							t.Fatal(err)
						}
						r := newRunner(t, be, c, src, model.Options{MaxRows: 64, MaxLogits: 64}, quant.F32)
						for i := 0; len(r.tokens) < len(g.tokens); i++ {
							at, n := len(r.tokens), chunks[i%len(chunks)]
							got := r.step(t, g.tokens[at:at+n], n)
							compare(t, fmt.Sprintf("chunks %v, tokens %d+%d", chunks, at, n), got, g.logits[at*c.Vocab:(at+n)*c.Vocab])
						}
						be.Close()
					}
				})
			}
		}
	}
}

// TestGoldenGreedy decodes on: every step must choose transformers' token unless its two best are closer than the
// error of their logits.
func TestGoldenGreedy(t *testing.T) {
	for _, name := range goldens {
		for beName, newBackend := range backends() {
			t.Run(name+"/"+beName, func(t *testing.T) {
				c, src := open(t, name, false)
				g := readGolden(t, name)
				be, err := newBackend()
				if err != nil {
					t.Fatal(err)
				}
				defer be.Close()
				r := newRunner(t, be, c, src, model.Options{MaxRows: 64, MaxLogits: 1}, quant.F32)
				logits := r.step(t, g.tokens, 1)
				for i, want := range g.greedy {
					got := argMax(logits)
					if got != want {
						if g.gap[i] > 2*tolerance {
							t.Fatalf("step %d: token %d, want %d (ahead by %g)", i, got, want, g.gap[i])
						}
						t.Logf("step %d is a near-tie (%g): stopped", i, g.gap[i])
						return
					}
					logits = r.step(t, []int32{want}, 1)
				}
			})
		}
	}
}

func argMax(x []float32) (best int32) {
	for i, v := range x {
		if v > x[best] {
			best = int32(i)
		}
	}
	return best
}
