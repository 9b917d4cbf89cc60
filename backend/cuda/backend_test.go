package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/fake"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/verify"
	"github.com/flashdecode/flashdecode/backend/cuda/kvmem"
	"github.com/flashdecode/flashdecode/backend/ref"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// newFake returns a backend on the driver in Go.
func newFake(t *testing.T, o Options) (*Backend, *cudatest.Driver) {
	t.Helper()
	drv, fakeDrv := cudatest.Open(t, cudatest.Options{})
	image := fake.Install(fakeDrv, fake.Decode(), fake.Merge(), fake.Check(), fake.Plan(), fake.Append(), fake.Prefill(true))
	b, err := newBackend(drv, o, func(c *attention.Context) (*attention.Kernels, error) { return attention.LoadImage(c, image), nil })
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b, fakeDrv
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// twin is a backend and the reference, fed alike.
type twin struct {
	t      *testing.T
	b      *Backend
	ref    *ref.Backend
	kv     ops.KV
	refKV  ops.KV
	layout ops.KVLayout
	qHeads int
	rope   *ops.Rope
	att    ops.Attention
	sinks  []float32
	pol    plan.Policy
	lens   []int
	rng    *rand.Rand
}

// step appends some tokens to each sequence, attends them in the last layer and compares.
func (w *twin) step(add ...int) {
	w.t.Helper()
	batch := &ops.Batch{QIndptr: []int32{0}, PageIndptr: []int32{0}, Policy: w.pol}
	for s, n := range add {
		for range n {
			batch.Tokens = append(batch.Tokens, int32(len(batch.Tokens)))
			batch.Positions = append(batch.Positions, int32(w.lens[s]))
			w.lens[s]++
		}
		batch.QIndptr = append(batch.QIndptr, int32(len(batch.Tokens)))
		batch.KVLens = append(batch.KVLens, int32(w.lens[s]))
		for p := range (w.lens[s] + w.layout.PageSize - 1) / w.layout.PageSize {
			batch.PageIndices = append(batch.PageIndices, int32((p*len(add)+s)*7%w.layout.Pages))
		}
		batch.PageIndptr = append(batch.PageIndptr, int32(len(batch.PageIndices)))
		batch.Ranges = append(batch.Ranges, int32(s))
		if f, ok := w.kv.(ops.Binder); ok {
			must(w.t, f.Bind(int32(s), 0, batch.Table(s)))
		}
	}
	must(w.t, batch.Check(w.layout))
	rows, qn, kn := batch.Rows(), w.qHeads*w.layout.HeadDim, w.layout.KVHeads*w.layout.HeadDim
	must(w.t, w.b.Begin(batch))
	must(w.t, w.ref.Begin(batch))
	var bufs, refs [4]ops.Buf
	for i, cols := range []int{qn, kn, kn, qn} {
		var err error
		bufs[i], err = w.b.Alloc(rows, cols)
		must(w.t, err)
		refs[i], err = w.ref.Alloc(rows, cols)
		must(w.t, err)
		x := make([]float32, rows*cols)
		for j := range x {
			x[j] = quant.BF16ToF32(quant.F32ToBF16(float32(w.rng.NormFloat64())))
		}
		if i == 3 {
			break
		}
		must(w.t, w.b.Write(bufs[i], x))
		data := make([]byte, 4*len(x))
		must(w.t, quant.Quantize(quant.F32, data, x))
		table, err := w.ref.Upload("x", quant.F32, rows, cols, data)
		must(w.t, err)
		w.ref.Embed(refs[i], table, 1)
	}
	layer := w.layout.Layers - 1
	att, refAtt := w.att, w.att
	if w.sinks != nil {
		data := make([]byte, 4*len(w.sinks))
		must(w.t, quant.Quantize(quant.F32, data, w.sinks))
		var err error
		att.Sinks, err = w.b.Upload("sinks", quant.F32, 1, len(w.sinks), data)
		must(w.t, err)
		refAtt.Sinks, err = w.ref.Upload("sinks", quant.F32, 1, len(w.sinks), data)
		must(w.t, err)
	}
	w.b.RopeAppend(bufs[0], bufs[1], bufs[2], w.kv, layer, w.rope)
	w.b.Attend(bufs[3], bufs[0], w.kv, layer, &att)
	w.ref.RopeAppend(refs[0], refs[1], refs[2], w.refKV, layer, w.rope)
	w.ref.Attend(refs[3], refs[0], w.refKV, layer, &refAtt)
	must(w.t, w.b.End())
	got, err := w.b.Read(bufs[3])
	must(w.t, err)
	want := w.ref.Values(refs[3])
	must(w.t, w.ref.End())
	var diff, norm float64
	for i, x := range want {
		d := float64(got[i]) - x
		diff, norm = diff+d*d, norm+x*x
	}
	// Queries and keys are rounded to bf16 after they turn, weights and output too: four roundings of up to 2^-9 each, of
	// which scores see √HeadDim times their own size.
	if e := math.Sqrt(diff / norm); !(e < 1e-2) {
		w.t.Errorf("lengths %v, %v new: relative error %.3g", w.lens, add, e)
	}
}

// stories runs prompts and decoding on a backend beside the reference.
func stories(t *testing.T, b *Backend) {
	for i, flat := range []bool{false, true} {
		for j, rope := range []*ops.Rope{nil, {InvFreq: []float32{1, .5, .25, .1, .03, .01, .003, .001}}, {InvFreq: []float32{1, .1, .01}, Interleaved: true, Scale: 1.1}} {
			w := &twin{t: t, b: b, ref: ref.New(), qHeads: 6, rope: rope, pol: []plan.Policy{plan.Auto(), plan.Fixed(48), plan.Splits(2)}[j],
				layout: ops.KVLayout{Layers: 3, KVHeads: 2, HeadDim: 64, Pages: 97, PageSize: 16, Type: quant.BF16},
				att:    ops.Attention{Scale: 0.125}, lens: make([]int, 3), rng: rand.New(rand.NewPCG(uint64(i), uint64(j)))}
			switch (i + j) % 3 {
			case 1:
				w.att.Window = 40
			case 2:
				w.att.Softcap, w.sinks = 5, []float32{1, 2, -3, 0, 0.5, 1}
			}
			if flat {
				w.layout.Ranges, w.layout.RangePages = 3, 30
			}
			var err error
			w.kv, err = b.NewKV(w.layout)
			must(t, err)
			w.refKV, err = w.ref.NewKV(w.layout)
			must(t, err)
			w.step(100, 1, 17) // a prompt, in a mixed batch
			w.step(1, 1, 1)
			w.step(1, 8, 3) // drafts
			w.step(30, 1, 0)
			w.step(1, 1, 1)
		}
	}
}

func TestStories(t *testing.T) {
	b, _ := newFake(t, Options{MaxSeqs: 8, MaxRows: 200, Checked: true})
	stories(t, b)
}

// TestDevice runs them on a real device.
func TestDevice(t *testing.T) {
	drv, ctx := verify.Open(t)
	must(t, ctx.Close())
	var c verify.Count
	var images map[string]string
	var dev *cuda.Device
	c.Run(t, "stories", func(t *testing.T) {
		b, err := newBackend(drv, Options{MaxSeqs: 8, MaxRows: 200, Checked: true}, attention.Load)
		must(t, err)
		stories(t, b)
		images, dev = b.ks.Images(), b.ctx.Device()
		must(t, b.Close())
	})
	must(t, c.Write(drv, dev, images))
}

// TestCopyPage copies a page in both modes.
func TestCopyPage(t *testing.T) {
	b, _ := newFake(t, Options{MaxSeqs: 2, MaxRows: 64})
	for _, ranges := range []int{0, 1} {
		kv, err := b.NewKV(ops.KVLayout{Layers: 2, KVHeads: 1, HeadDim: 64, Pages: 4, PageSize: 16, Type: quant.BF16, Ranges: ranges, RangePages: 4 * ranges})
		must(t, err)
		c := cacheOf(kv)
		at := func(p int32) cuda.Ptr {
			if c.flat != nil {
				a, err := c.flat.Address(p)
				must(t, err)
				return a
			}
			return c.pool.Ptr() + cuda.Ptr(int64(p)*c.pageBytes)
		}
		must(t, b.stream.Fill(at(1), 7, c.pageBytes))
		must(t, b.stream.Fill(at(2), 9, c.pageBytes))
		must(t, kv.CopyPage(2, 1))
		got := make([]byte, c.pageBytes)
		must(t, b.stream.Download(got, at(2)))
		if got[0] != 7 || got[len(got)-1] != 7 {
			t.Errorf("%d ranges: %d … %d", ranges, got[0], got[len(got)-1])
		}
		if kv.CopyPage(4, 0) == nil || kv.CopyPage(0, -1) == nil || kv.Release([]int32{4}) == nil {
			t.Error("pages that don't exist")
		}
		must(t, kv.Release([]int32{1, 2}))
	}
}

// TestRefusals hands over what the backend can't do.
func TestRefusals(t *testing.T) {
	b, drv := newFake(t, Options{MaxSeqs: 2, MaxRows: 64})
	ok := ops.KVLayout{Layers: 1, KVHeads: 1, HeadDim: 64, Pages: 4, PageSize: 16, Type: quant.BF16}
	for _, edit := range []func(*ops.KVLayout){
		func(l *ops.KVLayout) { l.Layers = 0 }, func(l *ops.KVLayout) { l.Type = quant.Q8_0 }, func(l *ops.KVLayout) { l.HeadDim = 260 },
		func(l *ops.KVLayout) { l.HeadDim = 12 }, func(l *ops.KVLayout) { l.Ranges = 1 },
	} {
		l := ok
		edit(&l)
		if _, err := b.NewKV(l); err == nil || !strings.HasPrefix(err.Error(), "cuda: ") {
			t.Errorf("%+v: %v", l, err)
		}
	}
	drv.FailAlloc(1)
	if _, err := b.NewKV(ok); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Error(err)
	}
	if _, err := b.Upload("w", quant.Q4_0, 1, 32, make([]byte, 18)); err == nil {
		t.Error("a quantised vector")
	}
	many := &ops.Batch{QIndptr: make([]int32, 4), PageIndptr: make([]int32, 4), KVLens: make([]int32, 3)}
	if err := b.Begin(many); err == nil {
		t.Error("3 sequences of 2")
	}
	kv, err := b.NewKV(ok)
	must(t, err)
	batch := &ops.Batch{Tokens: []int32{0}, Positions: []int32{0}, QIndptr: []int32{0, 1}, KVLens: []int32{1}, PageIndptr: []int32{0, 1}, PageIndices: []int32{0}}
	q, err := b.Alloc(1, 96)
	must(t, err)
	must(t, b.Begin(batch))
	b.Attend(q, q, kv, 0, &ops.Attention{})
	b.RopeAppend(q, q, q, kv, 0, nil)
	if err := b.End(); err == nil || !strings.Contains(err.Error(), "attention of 0 × 96") {
		t.Error(err)
	}
	full, err := b.NewKV(ops.KVLayout{Layers: 1, KVHeads: 1, HeadDim: 64, Pages: 2, PageSize: 16, Type: quant.BF16, Ranges: 1, RangePages: 4})
	must(t, err)
	drv.FailAlloc(1)
	if err := full.(ops.Binder).Bind(0, 0, []int32{1}); !errors.Is(err, kvmem.ErrFull) {
		t.Error(err)
	}
}
