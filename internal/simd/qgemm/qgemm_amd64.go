//go:build amd64 && !noasm

package qgemm

import (
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// install puts in the assembly bodies of the level.
func (k *Kernels) install() {
	if k.level >= simd.AVX2 {
		k.tiles = tiles2
		k.packs = packs2
		k.quantize = quantize2
		k.read = read2
	}
	if k.level >= simd.AVX512 {
		k.tiles = tiles512
		k.read = read512
	}
}

// tiles2 has no bodies for more than two rows: 16 registers hold no more.
var tiles2 = [len(layouts)][maxTile]kernel{
	quant.F32:  {tileF32x1AVX2, tileF32x2AVX2},
	quant.F16:  {tileF16x1AVX2, tileF16x2AVX2},
	quant.BF16: {tileBF16x1AVX2, tileBF16x2AVX2},
	quant.Q8_0: {tileQ8_0x1AVX2, tileQ8_0x2AVX2},
	quant.Q4_0: {tileQ4_0x1AVX2, tileQ4_0x2AVX2},
	quant.Q4_1: {tileQ4_1x1AVX2, tileQ4_1x2AVX2},
	quant.Q5_0: {tileQ5_0x1AVX2, tileQ5_0x2AVX2},
	quant.Q5_1: {tileQ5_1x1AVX2, tileQ5_1x2AVX2},
	quant.Q4_K: {tileQ4_Kx1AVX2, tileQ4_Kx2AVX2},
	quant.Q5_K: {tileQ5_Kx1AVX2, tileQ5_Kx2AVX2},
	quant.Q6_K: {tileQ6_Kx1AVX2, tileQ6_Kx2AVX2},
}

var tiles512 = [len(layouts)][maxTile]kernel{
	quant.F32: {
		tileF32x1AVX512, tileF32x2AVX512, tileF32x3AVX512, tileF32x4AVX512,
		tileF32x5AVX512, tileF32x6AVX512, tileF32x7AVX512, tileF32x8AVX512,
	},
	quant.F16: {
		tileF16x1AVX512, tileF16x2AVX512, tileF16x3AVX512, tileF16x4AVX512,
		tileF16x5AVX512, tileF16x6AVX512, tileF16x7AVX512, tileF16x8AVX512,
	},
	quant.BF16: {
		tileBF16x1AVX512, tileBF16x2AVX512, tileBF16x3AVX512, tileBF16x4AVX512,
		tileBF16x5AVX512, tileBF16x6AVX512, tileBF16x7AVX512, tileBF16x8AVX512,
	},
	quant.Q8_0: {
		tileQ8_0x1AVX512, tileQ8_0x2AVX512, tileQ8_0x3AVX512, tileQ8_0x4AVX512,
		tileQ8_0x5AVX512, tileQ8_0x6AVX512, tileQ8_0x7AVX512, tileQ8_0x8AVX512,
	},
	quant.Q4_0: {
		tileQ4_0x1AVX512, tileQ4_0x2AVX512, tileQ4_0x3AVX512, tileQ4_0x4AVX512,
		tileQ4_0x5AVX512, tileQ4_0x6AVX512, tileQ4_0x7AVX512, tileQ4_0x8AVX512,
	},
	quant.Q4_1: {
		tileQ4_1x1AVX512, tileQ4_1x2AVX512, tileQ4_1x3AVX512, tileQ4_1x4AVX512,
		tileQ4_1x5AVX512, tileQ4_1x6AVX512, tileQ4_1x7AVX512, tileQ4_1x8AVX512,
	},
	quant.Q5_0: {
		tileQ5_0x1AVX512, tileQ5_0x2AVX512, tileQ5_0x3AVX512, tileQ5_0x4AVX512,
		tileQ5_0x5AVX512, tileQ5_0x6AVX512, tileQ5_0x7AVX512, tileQ5_0x8AVX512,
	},
	quant.Q5_1: {
		tileQ5_1x1AVX512, tileQ5_1x2AVX512, tileQ5_1x3AVX512, tileQ5_1x4AVX512,
		tileQ5_1x5AVX512, tileQ5_1x6AVX512, tileQ5_1x7AVX512, tileQ5_1x8AVX512,
	},
	quant.Q4_K: {
		tileQ4_Kx1AVX512, tileQ4_Kx2AVX512, tileQ4_Kx3AVX512, tileQ4_Kx4AVX512,
		tileQ4_Kx5AVX512, tileQ4_Kx6AVX512, tileQ4_Kx7AVX512, tileQ4_Kx8AVX512,
	},
	quant.Q5_K: {
		tileQ5_Kx1AVX512, tileQ5_Kx2AVX512, tileQ5_Kx3AVX512, tileQ5_Kx4AVX512,
		tileQ5_Kx5AVX512, tileQ5_Kx6AVX512, tileQ5_Kx7AVX512, tileQ5_Kx8AVX512,
	},
	quant.Q6_K: {
		tileQ6_Kx1AVX512, tileQ6_Kx2AVX512, tileQ6_Kx3AVX512, tileQ6_Kx4AVX512,
		tileQ6_Kx5AVX512, tileQ6_Kx6AVX512, tileQ6_Kx7AVX512, tileQ6_Kx8AVX512,
	},
}

var packs2 = [len(layouts)]kernel{
	quant.F32:  packF32AVX2,
	quant.F16:  packF16AVX2,
	quant.BF16: packBF16AVX2,
	quant.Q8_0: packQ8_0AVX2,
	quant.Q4_0: packQ4_0AVX2,
	quant.Q4_1: packQ4_1AVX2,
	quant.Q5_0: packQ5_0AVX2,
	quant.Q5_1: packQ5_1AVX2,
	quant.Q4_K: packQ4_KAVX2,
	quant.Q5_K: packQ5_KAVX2,
	quant.Q6_K: packQ6_KAVX2,
}

// quantArgs is known to the generator too.
type quantArgs struct {
	dst    unsafe.Pointer
	step   int64 // bytes
	x      unsafe.Pointer
	blocks int64
}

func quantize2(dst []actBlock, step int, x []float32) {
	n := len(x) / blockLen
	_ = dst[(n-1)*step]
	a := quantArgs{unsafe.Pointer(&dst[0]), int64(step) * int64(unsafe.Sizeof(actBlock{})), unsafe.Pointer(&x[0]), int64(n)}
	quantizeAVX2((*byte)(unsafe.Pointer(&a)))
}

// readArgs is known to the generator too.
type readArgs struct {
	p   unsafe.Pointer
	n   int64
	sum uint64
}

func read2(b []byte) uint64 {
	a := readArgs{p: unsafe.Pointer(unsafe.SliceData(b)), n: int64(len(b))}
	readAVX2((*byte)(unsafe.Pointer(&a)))
	return a.sum
}

func read512(b []byte) uint64 {
	a := readArgs{p: unsafe.Pointer(unsafe.SliceData(b)), n: int64(len(b))}
	readAVX512((*byte)(unsafe.Pointer(&a)))
	return a.sum
}
