package model

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Options are what the caller decides about a loaded model.
type Options struct {
	MaxRows   int  // most rows of a step
	MaxLogits int  // most rows of a step whose logits are wanted
	ToFloat   bool // convert quantised matrices to float32 (exact, large; for judging the quantised path)
}

// Model is a model on a backend: weights, and the activations of one step.
type Model struct {
	Config
	be      ops.Backend
	opts    Options
	embed   ops.Weight
	outNorm ops.Weight
	output  ops.Weight
	layers  []layer
	ropes   [2]*ops.Rope // of full and of windowed layers
	attn    [2]*ops.Attention
	bufs    buffers
	keep    [][]byte // converted tensors that the backend may view
}

type layer struct {
	attnNorm, qNorm, kNorm, postAttnNorm ops.Weight
	ffnNorm, postFFNNorm                 ops.Weight
	qkv, o, gateUp, down                 []ops.Projection
	window                               int // index into ropes and attn
}

// Load puts the weights of src on be. On an error nothing of the backend's is released: the caller closes it.
func Load(be ops.Backend, src weights.Source, c Config, o Options) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if o.MaxRows < 1 || o.MaxLogits < 1 || o.MaxLogits > o.MaxRows {
		return nil, fmt.Errorf("model: steps of %d rows, logits of %d (want 1 ≤ logits ≤ rows)", o.MaxRows, o.MaxLogits)
	}
	m := &Model{Config: c, be: be, opts: o}
	l := loader{m: m, src: src}
	if l.probe(); l.err != nil {
		return nil, l.err
	}
	if err := m.bufs.alloc(be, &c, o); err != nil {
		return nil, err
	}
	m.embed = l.matrix(roleEmbed, 0, c.Vocab, c.Hidden)
	m.outNorm = l.norm(roleOutNorm, 0, c.Hidden)
	m.output = l.optionalMatrix(roleOutput, 0, c.Vocab, c.Hidden)
	if m.output == nil {
		m.output = m.embed // tied
	}
	for i := range c.Layers {
		m.layers = append(m.layers, l.layer(i))
		if l.err != nil {
			return nil, l.err
		}
	}
	l.attention()
	return m, l.err
}

// loader uploads tensors and keeps the first error, so that loading reads as a list.
type loader struct {
	m   *Model
	src weights.Source
	err error
}

// probe checks the sizes that buffers are made from against the file's tensors: a file may claim any size, but it
// can't hold the tensors.
func (l *loader) probe() {
	c := &l.m.Config
	for _, p := range []struct{ role, rows, cols int }{
		{roleEmbed, c.Vocab, c.Hidden}, {roleQ, c.QHeads * c.HeadDim, c.Hidden},
		{roleK, c.KVHeads * c.HeadDim, c.Hidden}, {roleGate, c.FFN, c.Hidden},
	} {
		if t, ok := l.tensor(p.role, 0, false); ok {
			l.checkShape(t, p.rows, p.cols)
		}
	}
}

func (l *loader) checkShape(t weights.Tensor, rows, cols int) bool {
	if len(t.Shape) == 2 && t.Shape[0] == rows && t.Shape[1] == cols {
		return true
	}
	l.fail(fmt.Errorf("model: tensor %q has shape %v, want [%d %d]", t.Name, t.Shape, rows, cols))
	return false
}

func (l *loader) layer(i int) layer {
	c, b := &l.m.Config, &l.m.bufs
	q, kv := c.QHeads*c.HeadDim, c.KVHeads*c.HeadDim
	y := layer{
		attnNorm: l.norm(roleAttnNorm, i, c.Hidden),
		ffnNorm:  l.norm(roleFFNNorm, i, c.Hidden),
		qkv: []ops.Projection{
			{W: l.matrix(roleQ, i, q, c.Hidden), Bias: l.optional(roleQBias, i, q), Y: b.q},
			{W: l.matrix(roleK, i, kv, c.Hidden), Bias: l.optional(roleKBias, i, kv), Y: b.k},
			{W: l.matrix(roleV, i, kv, c.Hidden), Bias: l.optional(roleVBias, i, kv), Y: b.v},
		},
		gateUp: []ops.Projection{
			{W: l.matrix(roleGate, i, c.FFN, c.Hidden), Y: b.gate},
			{W: l.matrix(roleUp, i, c.FFN, c.Hidden), Y: b.up},
		},
	}
	x := b.x
	if i == c.Layers-1 {
		x = b.last // the last layer goes on with the rows whose logits are wanted
	}
	out := ops.Projection{W: l.matrix(roleO, i, c.Hidden, q), Bias: l.optional(roleOBias, i, c.Hidden), Y: x, Accumulate: true}
	down := ops.Projection{W: l.matrix(roleDown, i, c.Hidden, c.FFN), Y: x, Accumulate: true}
	if c.PostNorms {
		out.Y, out.Accumulate, down.Y, down.Accumulate = b.branch, false, b.branch, false
		y.postAttnNorm = l.norm(rolePostAttnNorm, i, c.Hidden)
		y.postFFNNorm = l.norm(rolePostFFNNorm, i, c.Hidden)
	}
	if c.QKNorm {
		y.qNorm = l.norm(roleQNorm, i, c.HeadDim)
		y.kNorm = l.norm(roleKNorm, i, c.HeadDim)
	}
	if c.windowed(i) {
		y.window = 1
	}
	y.o, y.down = []ops.Projection{out}, []ops.Projection{down}
	return y
}

// attention prepares the rotations and the two kinds of attention.
func (l *loader) attention() {
	m := l.m
	c := &m.Config
	for i := range m.attn {
		m.attn[i] = &ops.Attention{Scale: c.AttnScale, Softcap: c.AttnSoftcap}
	}
	m.attn[1].Window = c.Window
	m.ropes[0] = &ops.Rope{InvFreq: c.Rope.InvFreq(), Interleaved: c.Rope.Interleaved}
	m.ropes[1] = m.ropes[0] // one table of angles a step, unless windowed layers turn otherwise
	if r := c.WindowedRope; r != nil {
		m.ropes[1] = &ops.Rope{InvFreq: r.InvFreq(), Interleaved: r.Interleaved}
	}
	if c.naming == ggufNames {
		l.ropeFactors(m.ropes[0])
	}
}

// ropeFactors divides the angles by the factors that GGUF files of Llama 3.1 and later carry instead of the formula.
func (l *loader) ropeFactors(r *ops.Rope) {
	t, ok := l.tensor(roleRopeFactors, 0, true)
	if !ok {
		return
	}
	f, err := floats(t, len(r.InvFreq))
	if err != nil {
		l.fail(err)
		return
	}
	for i := range f {
		if !(f[i] > 0) {
			l.fail(fmt.Errorf("model: tensor %q: factor %d is %g, must be positive", t.Name, i, f[i]))
			return
		}
		r.InvFreq[i] /= f[i]
	}
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *loader) tensor(role, i int, optional bool) (weights.Tensor, bool) {
	if l.err != nil {
		return weights.Tensor{}, false
	}
	t, err := l.src.Tensor(l.m.name(role, i))
	if err != nil {
		if !optional || !errors.Is(err, weights.ErrNotFound) {
			l.fail(fmt.Errorf("model: %w", err))
		}
		return weights.Tensor{}, false
	}
	return t, true
}

func (l *loader) matrix(role, i, rows, cols int) ops.Weight {
	t, ok := l.tensor(role, i, false)
	if !ok {
		return nil
	}
	return l.upload(t, rows, cols)
}

func (l *loader) optionalMatrix(role, i, rows, cols int) ops.Weight {
	t, ok := l.tensor(role, i, true)
	if !ok {
		return nil
	}
	return l.upload(t, rows, cols)
}

func (l *loader) upload(t weights.Tensor, rows, cols int) ops.Weight {
	if !l.checkShape(t, rows, cols) {
		return nil
	}
	if l.m.opts.ToFloat && t.Type != quant.F32 {
		f := make([]float32, rows*cols)
		if err := quant.Dequantize(t.Type, f, t.Data); err != nil {
			l.fail(fmt.Errorf("model: tensor %q: %w", t.Name, err))
			return nil
		}
		t.Type, t.Data = quant.F32, bytesOf(f)
		l.m.keep = append(l.m.keep, t.Data)
	}
	return l.put(t, rows, cols)
}

func (l *loader) put(t weights.Tensor, rows, cols int) ops.Weight {
	w, err := l.m.be.Upload(t.Name, t.Type, rows, cols, t.Data)
	if err != nil {
		l.fail(fmt.Errorf("model: tensor %q: %w", t.Name, err))
		return nil
	}
	return w
}

func (l *loader) norm(role, i, n int) ops.Weight { return l.vector(role, i, n, false, l.m.NormPlusOne) }

func (l *loader) optional(role, i, n int) ops.Weight { return l.vector(role, i, n, true, false) }

// vector uploads a vector as float32: it is small, and every backend wants it so.
func (l *loader) vector(role, i, n int, optional, plusOne bool) ops.Weight {
	t, ok := l.tensor(role, i, optional)
	if !ok {
		return nil
	}
	f, err := floats(t, n)
	if err != nil {
		l.fail(err)
		return nil
	}
	if plusOne {
		for j := range f {
			f[j]++
		}
	}
	t.Type, t.Data = quant.F32, bytesOf(f)
	l.m.keep = append(l.m.keep, t.Data)
	return l.put(t, 1, n)
}

// floats returns a copy of a vector of n numbers.
func floats(t weights.Tensor, n int) ([]float32, error) {
	if len(t.Shape) != 1 || t.Shape[0] != n {
		return nil, fmt.Errorf("model: tensor %q has shape %v, want [%d]", t.Name, t.Shape, n)
	}
	f := make([]float32, n)
	if err := quant.Dequantize(t.Type, f, t.Data); err != nil {
		return nil, fmt.Errorf("model: tensor %q: %w", t.Name, err)
	}
	return f, nil
}

// bytesOf views float32s as the bytes a file would hold (little endian, as every supported machine is).
func bytesOf(f []float32) []byte {
	if len(f) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*len(f))
}
