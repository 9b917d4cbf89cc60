package model

import (
	"fmt"

	"github.com/flashdecode/flashdecode/ops"
)

// buffers are the activations of a step.
type buffers struct {
	x, h, branch      ops.Buf // [rows, Hidden]: residual stream, normalised input, a branch before its own norm
	q, k, v, attended ops.Buf // [rows, heads·HeadDim]
	gate, up          ops.Buf // [rows, FFN]
	last, lastAtt     ops.Buf // [MaxLogits, …]: x and attended of the rows whose logits are wanted
}

func (b *buffers) alloc(be ops.Backend, c *Config, o Options) error {
	q, kv := c.QHeads*c.HeadDim, c.KVHeads*c.HeadDim
	for _, a := range []struct {
		dst        *ops.Buf
		rows, cols int
	}{
		{&b.x, o.MaxRows, c.Hidden}, {&b.h, o.MaxRows, c.Hidden}, {&b.branch, o.MaxRows, c.Hidden},
		{&b.q, o.MaxRows, q}, {&b.k, o.MaxRows, kv}, {&b.v, o.MaxRows, kv}, {&b.attended, o.MaxRows, q},
		{&b.gate, o.MaxRows, c.FFN}, {&b.up, o.MaxRows, c.FFN},
		{&b.last, o.MaxLogits, c.Hidden}, {&b.lastAtt, o.MaxLogits, q},
	} {
		var err error
		if *a.dst, err = be.Alloc(a.rows, a.cols); err != nil {
			return err
		}
	}
	return nil
}

// Forward runs one step: it writes the keys and values of the batch's rows to kv, and the logits of the rows named
// in rows to logits, [len(rows), Vocab]. With no rows it only fills the cache.
func (m *Model) Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error {
	if err := m.checkStep(b, rows, logits); err != nil {
		return err
	}
	if err := b.Check(kv.Layout()); err != nil {
		return err
	}
	be, buf := m.be, &m.bufs
	if err := be.Begin(b); err != nil {
		return err
	}
	be.Embed(buf.x, m.embed, m.EmbedScale)
	for i := range m.layers {
		m.attention(&m.layers[i], kv, i)
		x, attended := buf.x, buf.attended
		if i == len(m.layers)-1 {
			if len(rows) == 0 { // the cache is filled, and nothing else is wanted
				return be.End()
			}
			be.Gather(buf.last, x, rows)
			be.Gather(buf.lastAtt, attended, rows)
			x, attended = buf.last, buf.lastAtt
		}
		m.projectOut(&m.layers[i], x, attended)
		m.feedForward(&m.layers[i], x)
	}
	be.RMSNorm(buf.h, buf.last, m.outNorm, m.NormEps)
	be.Logits(logits[:len(rows)*m.Vocab], buf.h, m.output, m.LogitSoftcap)
	return be.End()
}

// attention computes the attention of layer i into buffers.attended.
func (m *Model) attention(l *layer, kv ops.KV, i int) {
	be, b := m.be, &m.bufs
	be.RMSNorm(b.h, b.x, l.attnNorm, m.NormEps)
	be.Linear(b.h, l.qkv)
	if m.QKNorm {
		be.RMSNorm(b.q, b.q, l.qNorm, m.NormEps)
		be.RMSNorm(b.k, b.k, l.kNorm, m.NormEps)
	}
	be.RopeAppend(b.q, b.k, b.v, kv, i, m.ropes[l.window])
	be.Attend(b.attended, b.q, kv, i, m.attn[l.window])
}

// projectOut adds the projected attention to the residual stream x.
func (m *Model) projectOut(l *layer, x, attended ops.Buf) {
	m.be.Linear(attended, l.o)
	if m.PostNorms {
		m.be.RMSNorm(m.bufs.branch, m.bufs.branch, l.postAttnNorm, m.NormEps)
		m.be.Add(x, m.bufs.branch)
	}
}

// feedForward adds the gated feed-forward layer of x to x.
func (m *Model) feedForward(l *layer, x ops.Buf) {
	be, b := m.be, &m.bufs
	be.RMSNorm(b.h, x, l.ffnNorm, m.NormEps)
	be.Linear(b.h, l.gateUp)
	be.GatedMul(b.gate, b.gate, b.up, m.Activation)
	be.Linear(b.gate, l.down)
	if m.PostNorms {
		be.RMSNorm(b.branch, b.branch, l.postFFNNorm, m.NormEps)
		be.Add(x, b.branch)
	}
}

func (m *Model) checkStep(b *ops.Batch, rows []int32, logits []float32) error {
	switch n := b.Rows(); {
	case n == 0 || n > m.opts.MaxRows:
		return fmt.Errorf("model: a step of %d rows, want 1 to %d", n, m.opts.MaxRows)
	case len(rows) > m.opts.MaxLogits:
		return fmt.Errorf("model: logits of %d rows wanted, at most %d fit", len(rows), m.opts.MaxLogits)
	case len(logits) < len(rows)*m.Vocab:
		return fmt.Errorf("model: room for %d logits, %d rows of %d need %d", len(logits), len(rows), m.Vocab, len(rows)*m.Vocab)
	}
	for _, t := range b.Tokens {
		if t < 0 || int(t) >= m.Vocab {
			return fmt.Errorf("model: token %d is not in the vocabulary of %d", t, m.Vocab)
		}
	}
	for _, r := range rows {
		if r < 0 || int(r) >= b.Rows() {
			return fmt.Errorf("model: logits of row %d wanted of a step of %d rows", r, b.Rows())
		}
	}
	return nil
}
