package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/fake"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// rig is a fake device with the kernels loaded.
type rig struct {
	t      testing.TB
	drv    *cudatest.Driver
	ctx    *cuda.Context
	stream *cuda.Stream
	ks     *Kernels
	bufs   []*cuda.Buffer
}

func newRig(t testing.TB, specs ...cudatest.Spec) *rig {
	t.Helper()
	d, drv := cudatest.Open(t, cudatest.Options{Devices: specs})
	dev, err := d.Device(0)
	must(t, err)
	r := &rig{t: t, drv: drv}
	image := fake.Install(drv, fake.Decode(), fake.Merge(), fake.Naive(), fake.Check(), fake.Plan(), fake.Oracle(), fake.Append(), fake.Prefill(len(specs) == 0), fake.Latent(), fake.Pairs())
	r.ctx, err = dev.Open()
	must(t, err)
	r.stream, err = r.ctx.NewStream(cuda.NormalPriority)
	must(t, err)
	r.ks = LoadImage(r.ctx, image)
	t.Cleanup(func() {
		for _, b := range r.bufs {
			must(t, b.Close())
		}
		must(t, r.ks.Close())
		must(t, r.stream.Close())
		must(t, r.ctx.Close())
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alloc returns device memory, NaN in every format until written.
func (r *rig) alloc(bytes int64) Ptr {
	r.t.Helper()
	b, err := r.ctx.Alloc(max(bytes, 16))
	must(r.t, err)
	r.bufs = append(r.bufs, b)
	return b.Ptr()
}

func upload[T any](r *rig, v []T) Ptr {
	r.t.Helper()
	b := cuda.AsBytes(v)
	p := r.alloc(int64(len(b)))
	must(r.t, r.stream.Upload(p, b))
	return p
}

func download[T any](r *rig, p Ptr, n int) []T {
	r.t.Helper()
	v := make([]T, n)
	must(r.t, r.stream.Download(cuda.AsBytes(v), p))
	return v
}

// plan makes a Plan with its workspace bound.
func (r *rig) plan(c Config) *Plan {
	r.t.Helper()
	p, err := r.ks.Plan(c)
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, p.Close()) })
	must(r.t, p.Bind(r.alloc(p.WorkspaceBytes()), p.WorkspaceBytes()))
	return p
}

// scene is a batch in device memory: random K and V in pages of random order, NaN in all slots past the lengths.
type scene struct {
	cfg    Config
	lens   []int32
	qLens  []int32
	window *attn.Window
	cap    float32
	sinks  []float32
	ragged bool // QIndptr

	calls []*attn.Call
	step  Step
	layer Layer
	rows  int
}

// store rounds x to the type and returns the bytes.
func store(t Type, x []float32) []byte {
	b := make([]byte, 0, len(x)*t.Bytes())
	for i, f := range x {
		switch t {
		case BF16:
			v := quant.F32ToBF16(f)
			x[i], b = quant.BF16ToF32(v), append(b, byte(v), byte(v>>8))
		case F16:
			v := quant.F32ToF16(f)
			x[i], b = quant.F16ToF32(v), append(b, byte(v), byte(v>>8))
		default:
			v := byte(int(f*8)&0x3f | 0x20) // any number will do; E4M3 has no rounding here
			x[i], b = fake.E4M3(v), append(b, v)
		}
	}
	return b
}

func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// build puts the scene on the device.
func (s *scene) build(r *rig, seed uint64) {
	c, rng := &s.cfg, rand.New(rand.NewPCG(seed, 7))
	size := c.PageSize
	if c.Address == Contiguous {
		size = c.KVLen // one page a sequence
	}
	perSeq := (c.KVLen + size - 1) / size
	pages := perSeq*len(s.lens) + 3
	rowBytes := c.HeadDim * c.KVType.Bytes()
	pageBytes := size * c.KVHeads * rowBytes
	k, v := make([]byte, pages*pageBytes), make([]byte, pages*pageBytes)
	for i := range k {
		k[i], v[i] = 0xff, 0xff
	}
	order := rng.Perm(pages)
	s.step = Step{Seqs: len(s.lens)}
	table, indptr, qIndptr := []int32{}, []int32{0}, []int32{0}
	var q []float32
	for b, n := range s.lens {
		kv := attn.Tensors{K: s.view(normal(rng, int(n)*c.KVHeads*c.HeadDim)), V: s.view(normal(rng, int(n)*c.KVHeads*c.HeadDim))}
		for i := range perSeq {
			page := int32(order[b*perSeq+i])
			if c.Address != BlockTable {
				page = int32(b*perSeq + i)
			}
			if i*size >= int(n) {
				page = 1 << 30 // must not be used
			}
			table = append(table, page)
		}
		for j := range int(n) {
			page := int(table[b*perSeq+j/size])
			for h := range c.KVHeads {
				at := page*pageBytes + (h*size+j%size)*rowBytes
				if c.Address == Contiguous {
					at = page*pageBytes + (j*c.KVHeads+h)*rowBytes
				}
				copy(k[at:], store(c.KVType, kv.Key(j, h)))
				copy(v[at:], store(c.KVType, kv.Value(j, h)))
			}
		}
		qn := 1
		if s.qLens != nil {
			qn = int(s.qLens[b])
		}
		x := normal(rng, qn*c.QHeads*c.HeadDim)
		store(c.Type, x)
		call := &attn.Call{Shape: attn.Shape{QHeads: c.QHeads, KVHeads: c.KVHeads, HeadDim: c.HeadDim},
			Options: attn.Options{Causal: true, Window: s.window, Softcap: s.cap, Sinks: s.sinks}, Q: x, QLen: qn, KV: kv, KVLen: int(n)}
		s.calls = append(s.calls, call)
		q = append(q, x...)
		s.rows += qn
		s.step.QLen = max(s.step.QLen, qn)
		indptr, qIndptr = append(indptr, int32(len(table))), append(qIndptr, int32(s.rows))
	}
	s.step.KVLen, s.step.Lens = upload(r, s.lens), s.lens
	if s.ragged || s.qLens != nil {
		s.step.QIndptr, s.step.Rows = upload(r, qIndptr), s.rows
	}
	s.layer = Layer{Q: upload(r, store(c.Type, q)), K: upload(r, k), V: upload(r, v), Out: r.alloc(int64(s.rows * c.QHeads * c.HeadDim * 2)),
		LSE: r.alloc(int64(s.rows * c.QHeads * 4)), Softcap: s.cap, Window: s.window}
	if s.sinks != nil {
		s.layer.Sinks = upload(r, s.sinks)
	}
	switch c.Address {
	case BlockTable:
		s.step.Table = upload(r, table)
		if s.ragged {
			s.step.TableIndptr = upload(r, indptr)
		} else {
			s.step.TableStride = perSeq
		}
	case Flat:
		base := make([]uint64, len(s.lens))
		for b := range base {
			base[b] = uint64(s.layer.K) + uint64(b*perSeq*pageBytes)
		}
		s.step.SeqBase = upload(r, base)
		s.layer.K, s.layer.V = 0, s.layer.V-s.layer.K
	}
}

func (s *scene) view(data []float32) attn.View {
	c := &s.cfg
	return attn.View{Data: data, Dim: c.HeadDim, TokenStride: c.KVHeads * c.HeadDim, HeadStride: c.HeadDim}
}

// halves converts numbers of 16 bits.
func halves(t Type, b []uint16) []float32 {
	x := make([]float32, len(b))
	for i, v := range b {
		if x[i] = quant.BF16ToF32(v); t == F16 {
			x[i] = quant.F16ToF32(v)
		}
	}
	return x
}

// errorBound is the relative error (Frobenius) that kernels may have: half as much again as FlashAttention-3 in bf16,
// whose 2.2e-3 is the rounding of the weights and of the output, and an eighth of that in f16.
func errorBound(t Type) float64 {
	if t == F16 {
		return 3.3e-3 / 8
	}
	return 3.3e-3
}

// frobenius is the relative error of a whole output.
func frobenius(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff, norm = diff+d*d, norm+float64(w)*float64(w)
	}
	if diff == 0 {
		return 0 // of zeros too
	}
	return math.Sqrt(diff / norm)
}

// check compares output and LSE with the reference. On the device in Go the output is rounded once and everything
// else float32, so every element is held to that; real kernels round their weights too.
func (s *scene) check(r *rig, what string) {
	r.t.Helper()
	s.checkDim(r, what, s.cfg.HeadDim)
}

// checkDim is check of outputs of dim dimensions a head.
func (s *scene) checkDim(r *rig, what string, dim int) {
	r.t.Helper()
	c, unit := &s.cfg, testkit.BF16
	if c.Type == F16 {
		unit = testkit.F16
	}
	out := halves(c.Type, download[uint16](r, s.layer.Out, s.rows*c.QHeads*dim))
	lse := download[float32](r, s.layer.LSE, s.rows*c.QHeads)
	for b, call := range s.calls {
		want, err := attn.Reference(call)
		must(r.t, err)
		n := call.QLen * c.QHeads
		lseTol := testkit.Tolerance{Abs: 1e-5, Rel: 1e-6}
		if r.drv != nil {
			lseTol = testkit.Tolerance{Abs: 1e-4, Rel: 1e-5} // package attn sums in float32, one by one
			tol := testkit.RMS(want.Out, 128*testkit.F32)
			tol.Rel = unit
			if err := testkit.Compare(out[:n*dim], want.Out, tol); err != nil {
				r.t.Fatalf("%s: sequence %d of %d tokens: %v", what, b, call.KVLen, err)
			}
		} else if e := frobenius(out[:n*dim], want.Out); !(e <= errorBound(c.Type)) {
			r.t.Fatalf("%s: sequence %d of %d tokens: relative error %.3g", what, b, call.KVLen, e)
		}
		testkit.Near(r.t, what, lse[:n], want.LSE, lseTol)
		out, lse = out[n*dim:], lse[n:]
	}
}

// run attends once.
func (s *scene) run(r *rig, p *Plan) {
	r.t.Helper()
	must(r.t, p.Begin(r.stream, &s.step))
	must(r.t, p.Run(r.stream, &s.layer))
	must(r.t, r.stream.Synchronize())
}

var inf = float32(math.Inf(1))
