package flashdecode_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/sample"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// stack is a checkpoint of model/testdata on the CPU backend, without the root package's choices.
type stack struct {
	model  *model.Model
	kv     ops.KV
	config model.Config
}

func newStack(t testing.TB, name string, o cpu.Options, rows, seqs, pages, pageSize int, kvType quant.Type) *stack {
	t.Helper()
	f, err := gguf.Open(filepath.Join("model", "testdata", name, "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s := &stack{}
	if s.config, err = model.ConfigFromGGUF(f.Meta, f); err != nil {
		t.Fatal(err)
	}
	be, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { be.Close() })
	if s.model, err = model.Load(be, f, s.config, model.Options{MaxRows: rows, MaxLogits: seqs}); err != nil {
		t.Fatal(err)
	}
	l := s.config.KVLayout()
	l.Pages, l.PageSize, l.Type = pages, pageSize, kvType
	if s.kv, err = be.NewKV(l); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stack) start(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	o.Vocab, o.Context = s.config.Vocab, s.config.Context
	e, err := engine.New(s.model, s.kv, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// collect reads a stream to its end.
func collect(s *engine.Stream) (got []flashdecode.Token, err error) {
	for {
		t, ok := s.Next()
		if !ok {
			return got, s.Err()
		}
		got = append(got, flashdecode.Token{ID: t.ID, LogProb: t.LogProb})
	}
}

// requests share beginnings of many lengths.
func requests(rng *rand.Rand, n int) []engine.Request {
	trunk := make([]int32, 60)
	for i := range trunk {
		trunk[i] = rng.Int32N(250)
	}
	rs := make([]engine.Request, n)
	for i := range rs {
		p := append([]int32(nil), trunk[:rng.IntN(len(trunk))]...)
		for range 1 + rng.IntN(10) {
			p = append(p, rng.Int32N(250))
		}
		params := samplings()["greedy"]
		if i%2 == 1 {
			params = samplings()["seeded"]
			params.Seed = uint64(i)
		}
		rs[i] = engine.Request{Prompt: p, MaxTokens: 50 + rng.IntN(50), Params: params}
	}
	return rs
}

// TestStackInvariance: many sequences at once, over a cache so small that they preempt each other, with prefixes from
// the cache, yield the same bits as each alone on a cache of its own.
func TestStackInvariance(t *testing.T) {
	testkit.SkipEmulated(t, "half a minute for what TestBatchInvariance shows there, too")
	for i, name := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma3"} {
		for _, level := range levels() {
			for _, kvType := range []quant.Type{quant.F16, quant.F32} {
				if level == simd.Generic && kvType != quant.F16 {
					continue // slow
				}
				t.Run(fmt.Sprintf("%s/%v/%v", name, level, kvType), func(t *testing.T) {
					pageSize := []int{8, 16, 32}[i%3]
					policy := plan.Fixed(32)
					rs := requests(testkit.Rand(t), 10)
					o := cpu.Options{Workers: 2, Level: &level}
					alone := newStack(t, name, o, 64, 1, 512/pageSize, pageSize, kvType).
						start(t, engine.Options{MaxRows: 64, MaxSeqs: 1, Policy: policy, NoPrefixCache: true})
					crowd := newStack(t, name, o, 24, 6, 224/pageSize, pageSize, kvType).
						start(t, engine.Options{MaxRows: 24, MaxSeqs: 6, Policy: policy})
					together(t, alone, crowd, rs)
				})
			}
		}
	}
}

func together(t *testing.T, alone, crowd *engine.Engine, rs []engine.Request) {
	submit := func(e *engine.Engine, r engine.Request) *engine.Stream {
		s, err := e.Submit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var wg sync.WaitGroup
	got := make([][]flashdecode.Token, len(rs))
	for i, r := range rs {
		s := submit(crowd, r)
		wg.Go(func() {
			var err error
			if got[i], err = collect(s); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, r := range rs {
		want, err := collect(submit(alone, r))
		if err != nil {
			t.Fatal(err)
		}
		sameTokens(t, fmt.Sprintf("request %d", i), got[i], want)
	}
	crowd.Close()
	st := crowd.Stats()
	if st.Preemptions == 0 || st.Cache.HitTokens == 0 {
		t.Errorf("%d preemptions, %d tokens found in the cache: the test shows nothing", st.Preemptions, st.Cache.HitTokens)
	}
}

// raggedStep returns a step of sequences with so many new rows and tokens, pages dealt out in turn, and the last row
// of each.
func raggedStep(qLens, kvLens []int, pageSize int, policy plan.Policy) (*ops.Batch, []int32) {
	b := &ops.Batch{QIndptr: []int32{0}, PageIndptr: []int32{0}, Policy: policy}
	var last []int32
	page := int32(0)
	for i, q := range qLens {
		for j := range q {
			b.Tokens = append(b.Tokens, int32(7*i+j)%200)
			b.Positions = append(b.Positions, int32(kvLens[i]-q+j))
		}
		for range (kvLens[i] + pageSize - 1) / pageSize {
			b.PageIndices = append(b.PageIndices, page)
			page++
		}
		b.QIndptr, b.KVLens = append(b.QIndptr, int32(len(b.Tokens))), append(b.KVLens, int32(kvLens[i]))
		b.PageIndptr = append(b.PageIndptr, page)
		last = append(last, int32(len(b.Tokens)-1))
	}
	return b, last
}

// TestForwardAllocatesNothing: neither a decode step nor a ragged one, once the buffers have grown, under any policy.
func TestForwardAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the race detector allocates by itself")
	}
	for _, name := range []string{"llama", "gemma3", "qwen2"} {
		for _, fileOrder := range []bool{false, true} {
			for _, policy := range []plan.Policy{{}, plan.Fixed(32), {Mode: plan.ModeNone}} {
				s := newStack(t, name, cpu.Options{Workers: 2, FileOrder: fileOrder}, 128, 8, 128, 16, quant.F16)
				for _, shape := range []struct {
					what       string
					qLens, kvs []int
				}{
					{"one row", []int{1}, []int{333}},
					{"8 decodes", []int{1, 1, 1, 1, 1, 1, 1, 1}, []int{1, 2, 17, 100, 300, 31, 32, 500}},
					{"ragged", []int{1, 90, 1, 5, 1}, []int{300, 120, 17, 5, 64}},
				} {
					b, rows := raggedStep(shape.qLens, shape.kvs, 16, policy)
					logits := make([]float32, len(rows)*s.config.Vocab)
					step := func() {
						if err := s.model.Forward(b, s.kv, rows, logits); err != nil {
							t.Fatal(err)
						}
					}
					step() // AllocsPerRun warms up once more
					if n := testing.AllocsPerRun(20, step); n != 0 {
						t.Errorf("%s, file order %v, %v, %s: %g allocations a step", name, fileOrder, policy, shape.what, n)
					}
				}
			}
		}
	}
}

// TestEngineAllocatesNothing runs two streams for thousands of tokens, from the engine to their readers: once the
// buffers are there, no decode step allocates, however long the sequences get.
func TestEngineAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the race detector allocates by itself")
	}
	for _, policy := range []plan.Policy{{}, plan.Fixed(64), plan.None()} {
		t.Run(policy.String(), func(t *testing.T) {
			const warm, counted = 100, 2000
			s := newStack(t, "llama", cpu.Options{Workers: 2}, 64, 4, 400, 16, quant.F16)
			o := engine.Options{MaxRows: 64, MaxSeqs: 4, Policy: policy, Vocab: s.config.Vocab, Context: 3000}
			paced := &pacedModel{s.model, make(chan struct{}, warm+counted+100)}
			e, err := engine.New(paced, s.kv, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			t.Cleanup(func() { close(paced.steps) })
			params := sample.Default()
			params.TopK, params.LogProbs, params.RepetitionPenalty = 40, true, 1.1
			var streams []*engine.Stream
			for i := range int32(2) {
				r := engine.Request{Prompt: []int32{1, 2, 3 + i}, MaxTokens: warm + counted + 300, Params: params}
				st, err := e.Submit(context.Background(), r)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, st)
			}
			read := func(n int) {
				for range n {
					paced.steps <- struct{}{}
				}
				for range n {
					for _, st := range streams {
						if _, ok := st.Next(); !ok {
							t.Fatal(st.Err())
						}
					}
				}
			}
			for range 10 { // the streams may begin in different steps
				paced.steps <- struct{}{}
			}
			read(warm)
			before := allocations()
			read(counted)
			for where, n := range allocations() {
				// Once is what a second worker needs when both first happen to want the same; anything that
				// belongs to steps, pages or doublings happens more often in 2,000 steps from 100.
				if n -= before[where]; n > 1 {
					t.Errorf("%d allocations in %d steps at %s", n, counted, where)
				}
			}
		})
	}
}

// pacedModel takes a step when it is told to: the engine would run ahead of the readers, and be done before they count.
type pacedModel struct {
	engine.Model
	steps chan struct{}
}

func (m *pacedModel) Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error {
	<-m.steps
	return m.Model.Forward(b, kv, rows, logits)
}

// allocations counts what was allocated since the process began, by where this module's code did it. The first call
// begins to count every allocation.
func allocations() map[string]int64 {
	runtime.MemProfileRate = 1
	runtime.GC()
	runtime.GC() // the profile is that of the last cycle but one
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		panic("more places allocate than expected")
	}
	counts := map[string]int64{}
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function == "runtime.acquireSudog" || strings.Contains(f.File, "_test.go") {
				break // the runtime's own list of waiting goroutines, or this function
			}
			if strings.Contains(f.Function, "/flashdecode.") || strings.Contains(f.Function, "/flashdecode/") {
				counts[fmt.Sprintf("%s:%d", f.Function, f.Line)] += r.AllocObjects
				break
			}
		}
	}
	return counts
}
