package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Options are the sizes of a Runner.
type Options struct {
	Threads   int // 0: all processors
	Chunk     int // most rows of a step; 0: 512
	MaxLogits int // most rows of a step whose logits are wanted; 0: 1
	FileOrder bool
	Float32   bool
	Level     *simd.Level
}

// PageSize is the page size of Caches, in tokens.
const PageSize = 16

// Runner is a model on a backend.
type Runner struct {
	Model  *model.Model
	be     *cpu.Backend
	source *Source
	opts   Options
}

// NewRunner puts the weights of s on a CPU backend. s stays open while it is used.
func NewRunner(s *Source, o Options) (*Runner, error) {
	if o.Chunk == 0 {
		o.Chunk = 512
	}
	if o.MaxLogits == 0 {
		o.MaxLogits = 1
	}
	be, err := cpu.New(cpu.Options{
		Workers: o.Threads, Level: o.Level, FileOrder: o.FileOrder, Evict: s.file.Evict,
		Fault: func(v any) error { return weights.Fault(v, s.file) },
	})
	if err != nil {
		return nil, err
	}
	r := &Runner{be: be, source: s, opts: o}
	err = weights.Guard(func() (err error) {
		r.Model, err = model.Load(be, s.Weights, s.Config, model.Options{MaxRows: o.Chunk, MaxLogits: o.MaxLogits, ToFloat: o.Float32})
		return err
	}, s.file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.Name, err), be.Close())
	}
	return r, nil
}

// Limits describes the backend.
func (r *Runner) Limits() ops.Limits { return r.be.Limits() }

// Close gives the weights' copies and all Caches back.
func (r *Runner) Close() error { return r.be.Close() }

// Cache is some sequences of one length, whose pages follow one another. After its first step it allocates nothing.
type Cache struct {
	Policy plan.Policy // of the steps to come
	// Logits are those of the last step's last rows, [rows wanted][vocabulary].
	Logits []float32

	r        *Runner
	kv       ops.KV
	seqs     int
	capacity int     // tokens of a sequence
	length   []int32 // [seqs]
	pages    []int32 // [seqs·perSeq], in order
	perSeq   int
	batch    ops.Batch
	wanted   []int32
	arrays   ops.Batch // the batch's arrays at full length
}

// NewCache makes a cache for a number of sequences of at most tokens tokens each.
func (r *Runner) NewCache(t quant.Type, seqs, tokens int) (*Cache, error) {
	if seqs < 1 || tokens < 1 || seqs > r.opts.Chunk {
		return nil, fmt.Errorf("bench: cache of %d sequences of %d tokens: want 1 to %d sequences", seqs, tokens, r.opts.Chunk)
	}
	l := r.Model.KVLayout()
	perSeq := (tokens + PageSize - 1) / PageSize
	l.Type, l.PageSize, l.Pages = t, PageSize, seqs*perSeq
	kv, err := r.be.NewKV(l)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		r: r, kv: kv, seqs: seqs, capacity: tokens, perSeq: perSeq,
		length: make([]int32, seqs), pages: make([]int32, l.Pages), wanted: make([]int32, max(r.opts.MaxLogits, seqs)),
		Logits: make([]float32, max(r.opts.MaxLogits, 1)*r.Model.Vocab),
		arrays: ops.Batch{
			Tokens: make([]int32, r.opts.Chunk), Positions: make([]int32, r.opts.Chunk),
			QIndptr: make([]int32, seqs+1), KVLens: make([]int32, seqs), PageIndptr: make([]int32, seqs+1),
		},
	}
	for i := range c.pages {
		c.pages[i] = int32(i)
	}
	return c, nil
}

// Close gives the memory back.
func (c *Cache) Close() error { return c.kv.Close() }

// Len is the length of a sequence.
func (c *Cache) Len(seq int) int { return int(c.length[seq]) }

// TokenBytes is the memory of one token, all layers.
func (c *Cache) TokenBytes() int64 { return c.kv.PageBytes() / PageSize }

// Truncate shortens every sequence to at most n tokens.
func (c *Cache) Truncate(n int) {
	for s := range c.length {
		c.length[s] = min(c.length[s], int32(n))
	}
}

// Prefill appends tokens to a sequence, in steps of at most a chunk; Logits are then the last token's. progress, if
// not nil, is told how many are done.
func (c *Cache) Prefill(ctx context.Context, seq int, tokens []int32, progress func(done, total int)) error {
	for done := 0; done < len(tokens); {
		n := min(c.r.opts.Chunk, len(tokens)-done)
		want := 0
		if done+n == len(tokens) {
			want = 1
		}
		if err := c.Step(ctx, seq, 1, tokens[done:done+n], want); err != nil {
			return err
		}
		done += n
		if progress != nil {
			progress(done, len(tokens))
		}
	}
	return nil
}

// Decode appends one token to every sequence; Logits have a row for each.
func (c *Cache) Decode(ctx context.Context, tokens []int32) error {
	return c.Step(ctx, 0, c.seqs, tokens, 1)
}

// Step appends equally many tokens to each of the sequences first … first+seqs-1, one sequence's after the other's,
// and computes the logits of the last want of each.
func (c *Cache) Step(ctx context.Context, first, seqs int, tokens []int32, want int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rows := len(tokens) / seqs
	if rows == 0 || rows*seqs != len(tokens) || len(tokens) > c.r.opts.Chunk || want > rows || want*seqs > c.r.opts.MaxLogits {
		return fmt.Errorf("bench: step of %d tokens over %d sequences, logits of %d", len(tokens), seqs, want*seqs)
	}
	b, a := &c.batch, &c.arrays
	b.Policy, b.Tokens, b.Positions = c.Policy, tokens, a.Positions[:len(tokens)]
	b.QIndptr, b.KVLens, b.PageIndptr = a.QIndptr[:seqs+1], a.KVLens[:seqs], a.PageIndptr[:seqs+1]
	b.PageIndices = c.pages[first*c.perSeq : (first+seqs)*c.perSeq]
	wanted := c.wanted[:0]
	for s := range seqs {
		n := c.length[first+s]
		if int(n)+rows > c.capacity {
			return fmt.Errorf("bench: %d tokens after %d in a cache of %d", rows, n, c.capacity)
		}
		for i := range rows {
			b.Positions[s*rows+i] = n + int32(i)
		}
		b.KVLens[s] = n + int32(rows)
		b.QIndptr[s+1], b.PageIndptr[s+1] = int32((s+1)*rows), int32((s+1)*c.perSeq)
		for i := rows - want; i < rows; i++ {
			wanted = append(wanted, int32(s*rows+i))
		}
	}
	if err := c.r.Model.Forward(b, c.kv, wanted, c.Logits); err != nil {
		return err
	}
	for s := range seqs {
		c.length[first+s] += int32(rows)
	}
	return nil
}

// Broadcast gives every sequence the tokens of the first from token from on, by copying pages.
func (c *Cache) Broadcast(from int) error {
	for p := from / PageSize; p*PageSize < c.Len(0); p++ {
		for s := 1; s < c.seqs; s++ {
			if err := c.kv.CopyPage(c.pages[s*c.perSeq+p], c.pages[p]); err != nil {
				return err
			}
		}
	}
	for s := range c.length {
		c.length[s] = c.length[0]
	}
	return nil
}

// RandomTokens fills tokens with the same random ones for the same seed.
func RandomTokens(tokens []int32, vocab int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range tokens {
		tokens[i] = r.Int32N(int32(vocab))
	}
}

// Argmax is the token of the largest logit, the lowest of equals.
func Argmax(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// Shape is what the planner needs to know about a model's attention.
func Shape(c *model.Config, kv quant.Type) plan.Shape {
	return plan.Shape{
		QHeads: c.QHeads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, PageSize: PageSize,
		TokenBytes: 2 * kv.RowBytes(c.HeadDim), Causal: true,
	}
}
