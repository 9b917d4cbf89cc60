package sample

import "math/bits"

// philox is Philox4x32-10: ten rounds of two 32×32 multiplications that scramble a counter under a key.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xD2511F53, ctr[0])
		hi1, lo1 := bits.Mul32(0xCD9E8D57, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return ctr
}

// uniform returns the number in (0, 1) that output token i of a request with this seed is drawn by.
func uniform(seed, i uint64) float64 {
	r := philox([4]uint32{uint32(i), uint32(i >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	mantissa := (uint64(r[1])<<32 | uint64(r[0])) >> 11
	return (float64(mantissa) + 0.5) * (1.0 / (1 << 53))
}
