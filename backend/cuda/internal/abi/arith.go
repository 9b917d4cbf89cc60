package abi

import (
	"unsafe"

	"github.com/flashdecode/flashdecode/plan"
)

// TileTokens is FD_TILE_TOKENS.
const TileTokens = plan.TileTokens

// RowF4 is fd_row_f4: float4 elements of a row of O.
func RowF4(dim int) int { return dim / 4 }

// CeilLog2 is fd_ceil_log2.
func CeilLog2(x int) (l int) {
	for 1<<l < x {
		l++
	}
	return l
}

// SliceLog2 is fd_slice_log2: the float4 elements of a pair's output that each of p CTAs reduces.
func SliceLog2(rows, dim, p int) (l int) {
	n := rows * RowF4(dim)
	for (n+(1<<l)-1)>>l > p {
		l++
	}
	return l
}

// BoxBytes is fd_box_bytes: the mailbox of one unit and KV head.
func BoxBytes(rows, dim, p, slice int) int64 {
	n := rows * RowF4(dim)
	slices := (n + (1 << slice) - 1) >> slice
	seg := min(slice, CeilLog2(RowF4(dim)))
	o := int64(slices*p) << slice * 16
	ml := int64((slices<<slice)>>seg*p) * 8
	return (o + ml + 127) &^ 127
}

// DecodeStages is fd_decode_stages.
func DecodeStages(rowBytes, warps int) int {
	switch {
	case rowBytes >= 512 && warps == 8:
		return 1
	case rowBytes >= 512:
		return 3
	case warps == 8 && rowBytes == 256:
		return 2
	}
	return 3
}

// DecodeShared is fd_decode_smem: dynamic shared memory of a decode kernel.
func DecodeShared(rowBytes, dim, n, warps, stages int) int {
	box := max(n*RowF4(dim), 32*warps)
	return warps*stages*32*rowBytes + warps*n*8 + box*16 + 256*8 + 16
}

// Reciprocal is fd_reciprocal: kernels divide by x with a multiplication.
func Reciprocal(x int) uint32 { return uint32((1<<31 + int64(x) - 1) / int64(x)) }

// SetFlags is fd_decode_flags: what is asked for, and what follows from the other fields.
func (p *DecodeParams) SetFlags(asked int32) {
	p.Flags = asked
	set := func(flag int32, ok bool) {
		if ok {
			p.Flags |= flag
		}
	}
	set(FlagMasked, p.QLen > 1 || p.QIndptr != 0 || p.WindowLeft >= 0 || p.WindowRight >= 0)
	set(FlagRaggedQ, p.QIndptr != 0)
	set(FlagCSR, p.TableIndptr != 0)
	set(FlagFlat, p.SeqBase != 0)
	set(FlagItems, p.Items != 0)
}

// PlanScratch is fd_plan_scratch.
func PlanScratch(units, items int) int64 {
	return int64(units)*int64(unsafe.Sizeof(PlanUnit{})) + int64(items)*int64(unsafe.Sizeof(Item{})+1) + 16
}

// PrefillRows is fd_prefill_rows: the packed query rows of a CTA.
const PrefillRows = 128

// PrefillGroupThreads is FD_PREFILL_WG_THREADS, of kernels by warpgroups.
const PrefillGroupThreads = 384

// PrefillDim is the head dimension that a prefill kernel is compiled for.
func PrefillDim(dim int) int {
	switch {
	case dim <= 64:
		return 64
	case dim <= 96:
		return 96
	case dim <= 128:
		return 128
	}
	return 256
}

// PrefillThreads is 32 times fd_prefill_warps.
func PrefillThreads(dim int) int {
	if dim == 256 {
		return 256
	}
	return 128
}

// PrefillShared is fd_prefill_shared_bytes.
func PrefillShared(dim int) int {
	n := 64
	if dim == 256 {
		n = 32
	}
	return 128*dim*2 + 4*n*dim*2
}

// PrefillGroupShared is fd_prefill_wg_shared_bytes.
func PrefillGroupShared(dim int) int {
	n := 128
	if dim == 256 {
		n = 64
	}
	return (dim + 63) / 64 * 128 * (128 + 4*n)
}

// Latent attention: threads and shared memory of a CTA, its query rows, tokens of a tile, the most CTAs that share them, and
// the bytes of a CTA's States (params_prefill.h).
const (
	LatentThreads = 384
	LatentShared  = 3 * 9 * 8192
	LatentRows    = 64
	LatentTokens  = 64
	LatentSplits  = 160
	LatentStateO  = 65536
	LatentStateML = 1024
	FlagResident  = 1 << 16 // all CTAs run at once, so that each merges a share
)
