package ops

import (
	"fmt"
	"slices"

	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Backend computes. There are at most 16 operations on purpose: it is not a tensor library, and a 17th needs a
// design note (docs/design/0002).
type Backend interface {
	// Limits tells what the backend is and how much of it there is.
	Limits() Limits
	// NewKV makes room for a KV cache. Memory is taken when pages are first written.
	NewKV(KVLayout) (KV, error)
	// Upload accepts a tensor: a matrix [rows, cols], or a vector with rows = 1. A CPU keeps the view, so data must
	// stay valid until Close.
	Upload(name string, t quant.Type, rows, cols int, data []byte) (Weight, error)
	// Alloc makes an activation matrix of at most rows rows, for the life of the backend.
	Alloc(rows, cols int) (Buf, error)

	// Begin starts a step. The batch must not change until End.
	Begin(*Batch) error
	// End finishes the step and returns the first error since Begin.
	End() error

	// Embed sets dst[r] = scale · w[Tokens[r]].
	Embed(dst Buf, w Weight, scale float32)
	// RMSNorm sets dst = x / √(mean(x²)+eps) · w over groups of w's length: a whole row, or each head of it.
	// dst may be x.
	RMSNorm(dst, x Buf, w Weight, eps float32)
	// Linear computes every projection of the same x; activations are converted once.
	Linear(x Buf, ps []Projection)
	// RopeAppend rotates q and k by their positions and writes k and v of every row into the pages of its sequence.
	// rope nil rotates nothing.
	RopeAppend(q, k, v Buf, kv KV, layer int, rope *Rope)
	// Attend sets dst[r] to the attention of q[r] over its sequence's tokens in kv, [QHeads·HeadDim] a row.
	Attend(dst, q Buf, kv KV, layer int, a *Attention)
	// GatedMul sets dst = act(gate) · up. dst may be gate.
	GatedMul(dst, gate, up Buf, act Activation)
	// Add sets dst += x.
	Add(dst, x Buf)
	// Gather sets dst to the given rows of src.
	Gather(dst, src Buf, rows []int32)
	// Logits writes x·wᵀ of every row of x to dst, [rows, vocabulary], after softcap (0: none). dst is host memory,
	// complete when End returns.
	Logits(dst []float32, x Buf, w Weight, softcap float32)

	// Close gives everything back. Bufs, Weights and KVs of the backend are dead afterwards.
	Close() error
}

// Buf is an activation matrix in the backend's memory.
type Buf interface {
	// Shape returns the current number of rows, and the columns.
	Shape() (rows, cols int)
}

// Weight is a tensor the backend has accepted.
type Weight interface {
	Shape() (rows, cols int)
	Type() quant.Type
}

// KV is the keys and values of all layers, in pages.
type KV interface {
	Layout() KVLayout
	// PageBytes is the memory of one page, all layers.
	PageBytes() int64
	// CopyPage copies page src over page dst, all layers.
	CopyPage(dst, src int32) error
	// Release gives the memory of free pages back to the system where that is possible; their contents are lost.
	Release(pages []int32) error
	Close() error
}

// Projection is one y = x·Wᵀ (+ Bias), or y += … with Accumulate (the residual stream).
type Projection struct {
	W          Weight
	Bias       Weight // nil: none
	Y          Buf
	Accumulate bool
}

// KVLayout is the shape of a KV cache.
type KVLayout struct {
	Layers, KVHeads, HeadDim int
	Pages, PageSize          int
	Type                     quant.Type // F32, F16, BF16 or Q8_0

	// Ranges > 0 asks for flat mode: that many address ranges of RangePages pages each, in which sequences see their
	// pages one after the other. The KV is then a Binder, and every Batch names the Ranges of its sequences.
	Ranges, RangePages int
}

// KVTypes are the number formats a KV cache may have.
func KVTypes() []quant.Type { return []quant.Type{quant.F16, quant.BF16, quant.F32, quant.Q8_0} }

// ParseKVType returns the format called name, in any case.
func ParseKVType(name string) (quant.Type, error) {
	t, err := quant.Parse(name)
	if err != nil || !slices.Contains(KVTypes(), t) {
		return 0, fmt.Errorf("ops: KV format %q is not one of f16, bf16, f32, q8_0", name)
	}
	return t, nil
}

// Binder maps pages into the address ranges of a flat KV. Binding takes system calls, so it belongs between steps.
type Binder interface {
	// Bind puts pages at places from, from+1, … of a range, instead of what was there.
	Bind(r int32, from int, pages []int32) error
	// Unbind empties a range.
	Unbind(r int32) error
}

// Attention is how one layer attends.
type Attention struct {
	Scale   float32 // of ⟨q, k⟩
	Softcap float32 // cap·tanh(s/cap); 0: none
	Window  int     // a token sees itself and the Window-1 tokens before it; 0: all
	Sinks   Weight  // [QHeads] logits that join the denominator; nil: none
}

// Rope is a rotary embedding. Pair i of a head turns by Position·InvFreq[i].
type Rope struct {
	InvFreq     []float32 // [rotated dims / 2]; dims past them pass through
	Interleaved bool      // pairs are (2i, 2i+1), else (i, i+len(InvFreq))
	Scale       float32   // of cos and sin (YaRN's attention factor); 0 means 1
}

// Activation is the nonlinearity of a gated feed-forward layer.
type Activation uint8

const (
	SiLU     Activation = iota
	GELUTanh            // the tanh approximation
)

// Limits describes a backend.
type Limits struct {
	Name    string      // "cpu/avx512", for people
	Plan    plan.Limits // what the planner needs to know
	KVTypes []quant.Type
}

// Batch is the input of a step: rows of new tokens, grouped by sequence.
type Batch struct {
	Tokens    []int32 // [rows]
	Positions []int32 // [rows]
	QIndptr   []int32 // [sequences+1]: sequence b brings rows QIndptr[b] … QIndptr[b+1]
	KVLens    []int32 // [sequences]: tokens of the sequence, this step's rows included

	PageIndptr  []int32 // [sequences+1] into PageIndices
	PageIndices []int32 // page numbers in token order

	Ranges []int32     // [sequences] flat KV: the address range of each sequence
	Policy plan.Policy // how attention is split
}

// Rows is the number of new tokens.
func (b *Batch) Rows() int { return len(b.Tokens) }

// Seqs is the number of sequences.
func (b *Batch) Seqs() int { return len(b.KVLens) }

// QLen is the number of rows of sequence s.
func (b *Batch) QLen(s int) int { return int(b.QIndptr[s+1] - b.QIndptr[s]) }

// Table is the page table of sequence s.
func (b *Batch) Table(s int) []int32 { return b.PageIndices[b.PageIndptr[s]:b.PageIndptr[s+1]] }
