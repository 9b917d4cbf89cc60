package abi

import "github.com/flashdecode/flashdecode/plan"

// DecodeParams is FdDecodeParams.
type DecodeParams struct {
	Q           uint64
	K, V        uint64
	KVLen       uint64
	Table       uint64
	TableIndptr uint64
	QIndptr     uint64
	SeqBase     uint64
	PageStride  uint64
	SeqStride   uint64

	TokenStride  uint32
	HeadStride   uint32
	QTokenStride uint32
	PageShift    int32
	TableStride  int32
	KVHeads      int32
	Group        int32
	QLen         int32
	Splits       int32
	ChunkTiles   int32
	HeadDim      int32
	ScaleLog2    float32

	Out       uint64
	LSE       uint64
	Mailbox   uint64
	StateO    uint64
	StateML   uint64
	Counters  uint64
	Items     uint64
	Merges    uint64
	ItemCount uint64
	KScale    uint64
	VScale    uint64
	Sinks     uint64

	Softcap        float32
	WindowLeft     int32
	WindowRight    int32
	Flags          int32
	SliceLog2      int32
	StateRows      int32
	RowTilesLog2   int32
	FreshTokens    int32
	PageSize       int32
	GroupRcp       uint32
	OutTokenStride uint32
	Pad            uint32

	BoxStride uint64
}

// Flags of DecodeParams.
const (
	FlagCausal   = 1
	FlagEarlyKV  = 2
	FlagPartials = 4
	FlagMasked   = 8
)

// The kernels see the planner's own types.
type (
	Item  = plan.Item  // FdItem
	Merge = plan.Merge // FdMergeItem
)

// MergePairsParams is FdMergePairsParams.
type MergePairsParams struct {
	O, LSE                     uint64
	Out, OutLSE                uint64
	OPairStride, LsePairStride uint64
	ORowStride, OutRowStride   uint64
	Rows                       int64
	Count, HeadDim             int32
}

// CheckParams is FdCheckParams.
type CheckParams struct {
	KVLen          uint64
	QIndptr        uint64
	Table          uint64
	TableIndptr    uint64
	KVLenOut       uint64
	QIndptrOut     uint64
	TableIndptrOut uint64
	Fault          uint64

	Seqs, MaxKVLen       int32
	QLen, QRows          int32
	TableStride, Entries int32
	PageSize, Pages      int32
}

// What fd_check finds.
const (
	FaultKVLen = 1 + iota
	FaultQIndptr
	FaultIndptr
	FaultPage
)
