package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// AttentionTest is one line of bench attn: a batch's decode attention, one query row a sequence.
type AttentionTest struct {
	QHeads, KVHeads, HeadDim int
	KV                       quant.Type
	Lens                     []int // of the batch's sequences
	Splits                   []plan.Policy
	Threads                  int
	Shuffle                  bool  // pages in random order
	Footprint                int64 // bytes that are walked through before any is met again: beyond all caches
	Reps                     int
	Seed                     uint64
}

// AttentionResult is the time of one layer under one policy. The rate and the read are medians.
type AttentionResult struct {
	QHeads  int     `json:"q_heads"`
	KVHeads int     `json:"kv_heads"`
	HeadDim int     `json:"head_dim"`
	KV      string  `json:"kv_type"`
	Lens    []int   `json:"lens"`
	Threads int     `json:"threads"`
	Backend string  `json:"backend"`
	Pages   string  `json:"pages"` // adjacent or shuffled
	Split   string  `json:"split"`
	Items   int     `json:"items"`
	Splits  int     `json:"splits"` // most per sequence and KV head
	Bytes   int64   `json:"bytes"`  // keys and values of one layer
	NS      int64   `json:"ns"`     // of one layer
	GBps    float64 `json:"gb_per_second"`
	Read    float64 `json:"read_gb_per_second"` // of as many bytes, in turns
	Percent float64 `json:"percent_of_read"`    // median of the turns' ratios
}

// attention is a test made ready: layers of keys and values to walk through, and a plain read of as many bytes.
type attention struct {
	t      AttentionTest
	be     *cpu.Backend
	kv     ops.KV
	q, dst ops.Buf
	batch  ops.Batch
	layers int
	bytes  int64 // of a layer
	reader *Reader
}

// Attention measures decode attention alone, on random keys and values. Policies and a read of as many bytes take
// turns. A step walks through Footprint bytes of layers, as a model's step does, so nothing is left in a cache from
// the step before.
func Attention(ctx context.Context, t AttentionTest, progress func(what string, done, total int)) (res []AttentionResult, err error) {
	if t.Reps < 1 || len(t.Lens) == 0 || len(t.Splits) == 0 || slices.Min(t.Lens) < 1 {
		return nil, fmt.Errorf("bench: %d repetitions over lengths %v and %d policies: all must be positive", t.Reps, t.Lens, len(t.Splits))
	}
	if t.KVHeads < 1 || t.QHeads < t.KVHeads || t.QHeads%t.KVHeads != 0 {
		return nil, fmt.Errorf("bench: %d query heads are not a multiple of %d KV heads", t.QHeads, t.KVHeads)
	}
	if !t.KV.Valid() || t.HeadDim < 1 || t.HeadDim%t.KV.BlockSize() != 0 {
		return nil, fmt.Errorf("bench: heads of %d dimensions can't be stored as %v", t.HeadDim, t.KV)
	}
	a := &attention{t: t}
	if a.be, err = cpu.New(cpu.Options{Workers: t.Threads}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.prepare(ctx, progress); err != nil {
		return nil, err
	}
	return a.measure(ctx, progress)
}

func (a *attention) close() error {
	var err error
	if a.reader != nil {
		err = a.reader.Close()
	}
	return errors.Join(err, a.be.Close())
}

// fillRows is how many tokens a step writes.
const fillRows = 256

// prepare fills the cache.
func (a *attention) prepare(ctx context.Context, progress func(string, int, int)) (err error) {
	t := &a.t
	total, pages := 0, 0
	for _, n := range t.Lens {
		total += n
		pages += (n + PageSize - 1) / PageSize
	}
	a.bytes = int64(total) * int64(t.KVHeads) * int64(2*t.KV.RowBytes(t.HeadDim))
	a.layers = int(min(max((t.Footprint+a.bytes-1)/a.bytes, 1), 1<<12))
	if a.kv, err = a.be.NewKV(ops.KVLayout{
		Layers: a.layers, KVHeads: t.KVHeads, HeadDim: t.HeadDim, Pages: pages, PageSize: PageSize, Type: t.KV,
	}); err != nil {
		return err
	}
	if a.reader, err = NewReader(a.bytes*int64(a.layers), a.be.Limits().Plan.Workers); err != nil {
		return err
	}
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(i)
	}
	if t.Shuffle {
		rand.New(rand.NewPCG(t.Seed, 1)).Shuffle(pages, func(i, j int) { table[i], table[j] = table[j], table[i] })
	}
	b := ops.Batch{QIndptr: []int32{0}, PageIndptr: []int32{0}, PageIndices: table}
	for i, n := range t.Lens {
		b.Tokens, b.Positions, b.KVLens = append(b.Tokens, 0), append(b.Positions, int32(n-1)), append(b.KVLens, int32(n))
		b.QIndptr = append(b.QIndptr, int32(i+1))
		b.PageIndptr = append(b.PageIndptr, b.PageIndptr[i]+int32((n+PageSize-1)/PageSize))
	}
	a.batch = b
	return a.fill(ctx, progress)
}

// fill writes random keys and values of every sequence, then random queries.
func (a *attention) fill(ctx context.Context, progress func(string, int, int)) error {
	t := &a.t
	src := &randomSource{rows: max(fillRows, len(t.Lens)), seed: t.Seed}
	if err := src.init(a.be, t.QHeads*t.HeadDim, t.KVHeads*t.HeadDim); err != nil {
		return err
	}
	a.q = src.q
	var err error
	if a.dst, err = a.be.Alloc(len(t.Lens), t.QHeads*t.HeadDim); err != nil {
		return err
	}
	for i, n := range t.Lens {
		for pos := 0; pos < n; pos += fillRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			rows := min(fillRows, n-pos)
			b := ops.Batch{
				QIndptr: []int32{0, int32(rows)}, KVLens: []int32{int32(pos + rows)},
				PageIndptr: []int32{0, int32(len(a.batch.Table(i)))}, PageIndices: a.batch.Table(i),
			}
			if err := src.step(a.be, &b, rows, pos, func() {
				for l := range a.layers {
					a.be.RopeAppend(src.q, src.k, src.v, a.kv, l, nil)
				}
			}); err != nil {
				return err
			}
			if progress != nil {
				progress("filling the cache", pos+rows, n)
			}
		}
	}
	// The queries stay in src.q for all steps that follow.
	b := a.batch
	return src.step(a.be, &b, len(t.Lens), 0, func() {})
}

// turn runs one step under a policy and returns the time of all layers.
func (a *attention) turn(p plan.Policy, att *ops.Attention) (time.Duration, error) {
	a.batch.Policy = p
	if err := a.be.Begin(&a.batch); err != nil {
		return 0, err
	}
	start := time.Now()
	for l := range a.layers {
		a.be.Attend(a.dst, a.q, a.kv, l, att)
	}
	d := time.Since(start)
	return d, a.be.End()
}

// measure takes turns. The first is not counted.
func (a *attention) measure(ctx context.Context, progress func(string, int, int)) ([]AttentionResult, error) {
	t := &a.t
	att := &ops.Attention{Scale: float32(1 / math.Sqrt(float64(t.HeadDim)))}
	times := make([][]float64, len(t.Splits))
	ratios := make([][]float64, len(t.Splits))
	var reads []float64
	for rep := range t.Reps + 1 {
		for i, p := range t.Splits {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			read, err := a.reader.Read()
			if err != nil {
				return nil, err
			}
			d, err := a.turn(p, att)
			if err != nil {
				return nil, err
			}
			if rep == 0 {
				continue
			}
			readGBps := float64(a.reader.Bytes()) / float64(read.Nanoseconds())
			reads = append(reads, readGBps)
			times[i] = append(times[i], float64(d.Nanoseconds())/float64(a.layers))
			ratios[i] = append(ratios[i], float64(a.bytes*int64(a.layers))/float64(d.Nanoseconds())/readGBps)
		}
		if progress != nil {
			progress("measuring", rep+1, t.Reps+1)
		}
	}
	results := make([]AttentionResult, len(t.Splits))
	for i, p := range t.Splits {
		r := AttentionResult{
			QHeads: t.QHeads, KVHeads: t.KVHeads, HeadDim: t.HeadDim, KV: t.KV.String(), Lens: t.Lens,
			Threads: a.be.Limits().Plan.Workers, Backend: a.be.Limits().Name, Pages: "adjacent", Split: p.String(),
			Bytes: a.bytes, NS: int64(median(times[i])), Read: median(reads), Percent: 100 * median(ratios[i]),
		}
		if t.Shuffle {
			r.Pages = "shuffled"
		}
		r.GBps = float64(r.Bytes) / float64(max(r.NS, 1))
		if err := a.plan(&r, p); err != nil {
			return nil, err
		}
		results[i] = r
	}
	return results, nil
}

// plan notes what the planner made of the batch.
func (a *attention) plan(r *AttentionResult, pol plan.Policy) error {
	t := &a.t
	var pl plan.Planner
	var p plan.Plan
	shape := plan.Shape{
		QHeads: t.QHeads, KVHeads: t.KVHeads, HeadDim: t.HeadDim, PageSize: PageSize,
		TokenBytes: 2 * t.KV.RowBytes(t.HeadDim), Causal: true,
	}
	seqs := make([]plan.Seq, len(t.Lens))
	for i, n := range t.Lens {
		seqs[i] = plan.Seq{QLen: 1, KVLen: int32(n)}
	}
	if err := pl.Plan(&p, shape, seqs, a.be.Limits().Plan, pol); err != nil {
		return err
	}
	r.Items, r.Splits = len(p.Items), 1
	for _, m := range p.Merges {
		r.Splits = max(r.Splits, int(m.Splits))
	}
	return nil
}

// median is the middle of x, the mean of the two middle ones if x is even.
func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
