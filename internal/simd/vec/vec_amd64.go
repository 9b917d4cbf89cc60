//go:build amd64 && !noasm

package vec

import "github.com/flashdecode/flashdecode/internal/simd"

//go:generate sh -c "cd _asm && go run . -isa avx2 -out ../zavx2_amd64.s -stubs ../zavx2_amd64.go -pkg vec"
//go:generate sh -c "cd _asm && go run . -isa avx512 -out ../zavx512_amd64.s -stubs ../zavx512_amd64.go -pkg vec"

func leavesOf(level simd.Level) leaves {
	switch level {
	case simd.AVX512:
		return avx512
	case simd.AVX2:
		return avx2
	}
	return generic
}

var avx2 = leaves{
	add:         addAVX2,
	addScaled:   addScaledAVX2,
	scale:       scaleAVX2,
	mulScaled:   mulScaledAVX2,
	sumSquares:  sumSquaresAVX2,
	dot:         dotAVX2,
	max:         maxAVX2,
	index:       indexAVX2,
	exp:         expAVX2,
	siluMul:     siluMulAVX2,
	geluTanhMul: geluTanhMulAVX2,
	softcap:     softcapAVX2,
	ropePairs:   ropePairsAVX2,
	ropeHalf:    ropeHalfAVX2,
	f16ToF32:    f16ToF32AVX2,
	bf16ToF32:   bf16ToF32AVX2,
	f32ToF16:    f32ToF16AVX2,
	f32ToBF16:   f32ToBF16AVX2,
}

var avx512 = leaves{
	add:         addAVX512,
	addScaled:   addScaledAVX512,
	scale:       scaleAVX512,
	mulScaled:   mulScaledAVX512,
	sumSquares:  sumSquaresAVX512,
	dot:         dotAVX512,
	max:         maxAVX512,
	index:       indexAVX512,
	exp:         expAVX512,
	siluMul:     siluMulAVX512,
	geluTanhMul: geluTanhMulAVX512,
	softcap:     softcapAVX512,
	ropePairs:   ropePairsAVX512,
	ropeHalf:    ropeHalfAVX512,
	f16ToF32:    f16ToF32AVX512,
	bf16ToF32:   bf16ToF32AVX512,
	f32ToF16:    f32ToF16AVX512,
	f32ToBF16:   f32ToBF16AVX512,
}
