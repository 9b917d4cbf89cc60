package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/plan"
)

// Type is a number format.
type Type uint8

// The formats. E4M3 is for K and V only, with BF16 queries.
const (
	BF16 Type = iota
	F16
	E4M3
)

var typeNames = [...]string{"bf16", "f16", "e4m3"}

// String is the name that kernels have it by.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Bytes is the size of one number.
func (t Type) Bytes() int {
	if t == E4M3 {
		return 1
	}
	return 2
}

// Address is how a sequence's tokens are found.
type Address uint8

const (
	// BlockTable: page numbers in a table, rows of a fixed length or CSR. A page is at K + number·PageStride.
	BlockTable Address = iota
	// Contiguous: sequence b is at K + b·SeqStride, token after token.
	Contiguous
	// Flat: sequence b is at SeqBase[b] + K, page after page, as virtual memory maps them (package kvmem). K and
	// V are offsets of the layer then.
	Flat
)

var addressNames = [...]string{"table", "contiguous", "flat"}

// String names the mode.
func (a Address) String() string {
	if int(a) < len(addressNames) {
		return addressNames[a]
	}
	return fmt.Sprintf("Address(%d)", uint8(a))
}

// Variant is an algorithm. Auto is the fastest by the cost model; the others exist to be compared.
type Variant uint8

const (
	Auto    Variant = iota
	Naive           // three passes with the scores in memory
	NoSplit         // FlashAttention: one CTA for a sequence and KV head
	Split2          // Flash-Decoding: partial States, then a second launch that merges them
	Split1          // Flash-Decoding in one launch
	Prefill         // FlashAttention by tiles of query rows: for any number of query tokens, and for mixed batches
	Latent          // MLA: one KV head of 576 numbers, of which the first 512 are the value too
)

var variantNames = [...]string{"auto", "naive", "nosplit", "split2", "split1", "prefill", "latent"}

// String is what ParseVariant reads.
func (v Variant) String() string {
	if int(v) < len(variantNames) {
		return variantNames[v]
	}
	return fmt.Sprintf("Variant(%d)", uint8(v))
}

// ParseVariant reads a variant's name.
func ParseVariant(name string) (Variant, error) {
	for i, n := range variantNames {
		if n == name {
			return Variant(i), nil
		}
	}
	return 0, fmt.Errorf("attention: unknown variant %q: want auto, naive, nosplit, split2, split1, prefill or latent", name)
}

// Config is what a Plan is made for: a shape, and capacities. Within the capacities any batch of any lengths may
// run, through the same captured graph if need be.
type Config struct {
	QHeads, KVHeads, HeadDim int
	Type                     Type // of queries and outputs: BF16 or F16
	KVType                   Type // of keys and values: the same, or E4M3 with BF16 queries
	Address                  Address
	PageSize                 int // tokens; without meaning if Contiguous

	Seqs  int // sequences of a call
	QLen  int // most query tokens of one of them: 0 means 1, at most MaxQLen unless the variant is Prefill
	KVLen int // most tokens of one of them
	// Entries is the length of a CSR table, which bounds the tokens of all sequences together. 0 means as much as
	// Seqs and KVLen allow.
	Entries int
	// Pages is the number of pages there are. Checked mode refuses others; elsewhere it may be 0.
	Pages int

	Variant Variant
	Policy  plan.Policy // how a KV range is cut: Fixed makes results independent of the batch
	// Uneven says that lengths will differ much without the host knowing them: work is then cut on the device.
	Uneven bool
	// Chained makes each launch a link of a programmatic dependent launch: it may begin while its predecessor
	// in the stream ends. It then copies K and V before it waits, but for the last Step.Fresh tokens of each
	// sequence. What else it reads (lengths, tables) must be older than the predecessor.
	Chained bool
	// Checked validates lengths and tables on the device before they are used. A sequence with a bad one is
	// treated as empty, and Plan.Fault says so; nothing waits for the device.
	Checked bool
}

const (
	// MaxQLen is the most query tokens of a sequence in one call; longer ones are prefill.
	MaxQLen = 8
	// MaxHeadDim is the largest head dimension.
	MaxHeadDim = 256
	// LatentDim is the head dimension of latent attention, and LatentValueDim that of its values and outputs.
	LatentDim, LatentValueDim = 576, 512

	maxGroup = 1 << 10
	maxSeqs  = 1 << 15
	maxKVLen = 1 << 30
)

// group is the query heads of a KV head.
func (c *Config) group() int { return c.QHeads / c.KVHeads }

// rows is the most rows, query tokens × heads of the group, of a sequence and KV head.
func (c *Config) rows() int { return c.QLen * c.group() }

// dim is the head dimension that a kernel is compiled for.
func (c *Config) dim() int {
	switch {
	case c.HeadDim <= 64:
		return 64
	case c.HeadDim <= 128:
		return 128
	}
	return 256
}

// shape is what the planner knows of it.
func (c *Config) shape() plan.Shape {
	page := c.PageSize
	if c.Address == Contiguous {
		page = abi.TileTokens
	}
	return plan.Shape{QHeads: c.QHeads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, PageSize: page,
		TokenBytes: 2 * c.HeadDim * c.KVType.Bytes(), Causal: true}
}

// tokens is the most tokens of all sequences together.
func (c *Config) tokens() int64 {
	all := int64(c.Seqs) * int64(c.KVLen)
	if c.Address == BlockTable && c.Entries > 0 {
		all = min(all, int64(c.Entries)*int64(c.PageSize))
	}
	return all
}

// complete fills in what 0 stands for and checks the rest.
func (c *Config) complete() error {
	if c.QLen == 0 {
		c.QLen = 1
	}
	if c.Address == Contiguous {
		c.PageSize = 0
	}
	if err := c.checkShape(); err != nil {
		return err
	}
	switch {
	case c.Address > Flat:
		return unsupported("addressing %v: want BlockTable, Contiguous or Flat", c.Address)
	case c.Address != Contiguous && (c.PageSize < 1 || c.PageSize > 1<<16):
		return unsupported("page size %d: want 1 to %d tokens", c.PageSize, 1<<16)
	case c.Seqs < 1 || c.Seqs > maxSeqs:
		return &CapacityError{"sequences", int64(c.Seqs), maxSeqs}
	case c.QLen < 1 || c.QLen > MaxQLen && c.Variant < Prefill || c.QLen > maxKVLen:
		return &CapacityError{"query tokens of a sequence", int64(c.QLen), MaxQLen}
	case c.KVLen < 1 || c.KVLen > maxKVLen:
		return &CapacityError{"tokens of a sequence", int64(c.KVLen), maxKVLen}
	case c.Entries < 0 || c.Pages < 0 || c.Entries > 1<<31-1 || c.Pages > 1<<31-1:
		return &CapacityError{"table entries or pages", int64(max(c.Entries, c.Pages)), 1<<31 - 1}
	case c.Variant >= Prefill && (c.KVType == E4M3 || c.Policy != plan.Policy{} || c.Chained || c.Variant == Prefill && c.group() > abi.PrefillRows):
		return unsupported("prefill and latent attention of %v with policy %v: want 16-bit K and V, no policy, no chain and a group up to %d", c.KVType, c.Policy, abi.PrefillRows)
	case c.Variant > Latent:
		return unsupported("variant %v", c.Variant)
	case c.Checked && c.Address == BlockTable && c.Pages == 0:
		return unsupported("checked mode of a block table without Config.Pages: set it to the number of pages")
	case c.Checked && c.Chained:
		return unsupported("checked mode in a dependent-launch chain: lengths would be read before they are checked; leave one out")
	case c.Variant == NoSplit && c.Policy != plan.Policy{} && c.Policy != plan.None():
		return unsupported("variant nosplit with policy %v", c.Policy)
	}
	return nil
}

func (c *Config) checkShape() error {
	switch {
	case c.QHeads < 1 || c.KVHeads < 1 || c.QHeads%c.KVHeads != 0 || c.group() > maxGroup || c.KVHeads > 1<<16-1:
		return unsupported("%d query heads over %d KV heads: want a multiple, of at most %d each", c.QHeads, c.KVHeads, maxGroup)
	case c.Variant == Latent && (c.HeadDim != LatentDim || c.KVHeads != 1):
		return unsupported("latent attention of %d KV heads and head dim %d: want 1 and %d", c.KVHeads, c.HeadDim, LatentDim)
	case c.Variant == Latent && c.Type <= F16 && c.KVType == c.Type:
		return nil
	case c.HeadDim < 8 || c.HeadDim > MaxHeadDim || c.HeadDim%8 != 0:
		return unsupported("head dim %d: want a multiple of 8 up to %d", c.HeadDim, MaxHeadDim)
	case c.KVType == E4M3 && c.HeadDim%16 != 0:
		return unsupported("head dim %d in e4m3: want a multiple of 16, so that rows are copied in units of 16 bytes", c.HeadDim)
	case c.Type > F16:
		return unsupported("queries of type %v: want bf16 or f16", c.Type)
	case c.KVType > E4M3 || c.KVType != E4M3 && c.KVType != c.Type || c.KVType == E4M3 && c.Type != BF16:
		return unsupported("K and V of type %v with queries of type %v: want the same, or e4m3 with bf16", c.KVType, c.Type)
	}
	return nil
}
