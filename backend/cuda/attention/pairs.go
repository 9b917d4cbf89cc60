package attention

import (
	"cmp"
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// Merger merges attention over parts of a sequence, given as pairs of a normalised output and its LSE: from other
// devices, or of a prefix that sequences share. A pair whose LSE is -Inf counts for nothing.
type Merger struct {
	headDim, bytes int
	launch         *cuda.Launch
	params         abi.MergePairsParams
}

// Pairs are what a Merger merges. Strides are in bytes; 0 is that of dense data.
type Pairs struct {
	Rows, Count   int // rows: query tokens × heads; pairs of each
	O             Ptr // [pair][row][HeadDim]
	LSE           Ptr // float32 [pair][row]
	Out, OutLSE   Ptr // [row][HeadDim], float32 [row]; may be one of the inputs; OutLSE may be 0
	OPair, OLSE   int64
	ORow, OutRows int64
}

// NewMerger prepares merging of outputs of type "bf16", "f16" or "f32".
func (ks *Kernels) NewMerger(typ string, headDim int) (*Merger, error) {
	bytes := map[string]int{"bf16": 2, "f16": 2, "f32": 4}[typ]
	if bytes == 0 || headDim < 8 || headDim%8 != 0 {
		return nil, unsupported("merge of outputs of type %s and %d dimensions: want bf16, f16 or f32 and a multiple of 8", typ, headDim)
	}
	f, err := ks.Function("fd_merge_pairs_" + typ)
	if err != nil {
		return nil, err
	}
	m := &Merger{headDim: headDim, bytes: bytes}
	if m.launch, err = f.NewLaunch(cuda.Arg(&m.params)); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	m.launch.Block = cuda.Dim3{X: 128}
	return m, nil
}

// Run puts the merge into the stream.
func (m *Merger) Run(s *Stream, x *Pairs) error {
	for _, p := range []struct {
		name  string
		p     Ptr
		align uint64
	}{{"Pairs.O", x.O, 16}, {"Pairs.LSE", x.LSE, 4}, {"Pairs.Out", x.Out, 16}} {
		if err := checkPtr(p.name, p.p, p.align); err != nil {
			return err
		}
	}
	if x.Rows < 1 || x.Count < 1 || x.Count > math.MaxInt32 || x.Rows > math.MaxInt32 {
		return &CapacityError{"rows or pairs to merge", int64(min(x.Rows, x.Count)), math.MaxInt32}
	}
	row := int64(m.headDim * m.bytes)
	m.params = abi.MergePairsParams{
		O: uint64(x.O), LSE: uint64(x.LSE), Out: uint64(x.Out), OutLSE: uint64(x.OutLSE), Rows: int64(x.Rows), Count: int32(x.Count), HeadDim: int32(m.headDim),
		ORowStride: uint64(cmp.Or(x.ORow, row)), OutRowStride: uint64(cmp.Or(x.OutRows, row)),
		OPairStride: uint64(cmp.Or(x.OPair, row*int64(x.Rows))), LSEPairStride: uint64(cmp.Or(x.OLSE, 4*int64(x.Rows))),
	}
	m.launch.Grid = cuda.Dim3{X: uint32((x.Rows + 3) / 4)}
	if err := m.launch.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
