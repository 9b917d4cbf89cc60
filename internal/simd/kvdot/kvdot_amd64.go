//go:build amd64 && !noasm

package kvdot

import (
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// folds512 and folds2 hold the generated bodies, [type][rows-1].
var folds512 = map[quant.Type][]func(*byte){
	quant.F16:  {foldF16R1AVX512, foldF16R2AVX512, foldF16R3AVX512, foldF16R4AVX512, foldF16R5AVX512, foldF16R6AVX512},
	quant.BF16: {foldBF16R1AVX512, foldBF16R2AVX512, foldBF16R3AVX512, foldBF16R4AVX512, foldBF16R5AVX512, foldBF16R6AVX512},
	quant.F32:  {foldF32R1AVX512, foldF32R2AVX512, foldF32R3AVX512, foldF32R4AVX512, foldF32R5AVX512, foldF32R6AVX512},
	quant.Q8_0: {foldQ8R1AVX512, foldQ8R2AVX512, foldQ8R3AVX512, foldQ8R4AVX512, foldQ8R5AVX512, foldQ8R6AVX512},
}

var folds2 = map[quant.Type][]func(*byte){
	quant.F16:  {foldF16R1AVX2, foldF16R2AVX2, foldF16R3AVX2, foldF16R4AVX2},
	quant.BF16: {foldBF16R1AVX2, foldBF16R2AVX2, foldBF16R3AVX2, foldBF16R4AVX2},
	quant.F32:  {foldF32R1AVX2, foldF32R2AVX2, foldF32R3AVX2, foldF32R4AVX2},
	quant.Q8_0: {foldQ8R1AVX2, foldQ8R2AVX2, foldQ8R3AVX2, foldQ8R4AVX2},
}

func bodyOf(level simd.Level, l Layout) body {
	switch level {
	case simd.AVX512:
		return asmBody(level, folds512[l.Type], readAVX512)
	case simd.AVX2:
		return asmBody(level, folds2[l.Type], readAVX2)
	}
	return genericBody
}

// asmBody wraps generated bodies, fold[i] for i+1 rows.
func asmBody(level simd.Level, fold []func(*byte), read func(*byte)) body {
	return body{
		group: len(fold),
		qWords: func(l Layout, rows int) int {
			if l.Type == quant.Q8_0 {
				return rows * (1 + l.HeadDim/blockDims*q8QueryWords)
			}
			return l.HeadDim * rows
		},
		prepare: func(l Layout, dst, q []float32, rows int) {
			if l.Type == quant.Q8_0 {
				prepareQ8(dst, q, rows, level)
				return
			}
			for r := range rows { // [dim][rows], so that one pointer walks it
				for i, x := range q[r*l.HeadDim : (r+1)*l.HeadDim] {
					dst[i*rows+r] = x
				}
			}
		},
		fold: func(_ Layout, a *foldArgs) { fold[a.rows-1]((*byte)(unsafe.Pointer(a))) },
		read: func(l Layout, base unsafe.Pointer, off []int64) {
			a := readArgs{base, &off[0], int64(len(off)), int64(l.TileBytes)}
			read((*byte)(unsafe.Pointer(&a)))
		},
	}
}

// readArgs is what the generated readers get.
type readArgs struct {
	base unsafe.Pointer
	off  *int64
	n    int64
	size int64
}
