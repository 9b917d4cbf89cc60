//go:build amd64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// Detect returns the strongest level this machine can run.
func Detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !hasF16C():
		return Generic
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI:
		return AVX512
	}
	return AVX2
}

// hasF16C reports the half-precision conversions. Every processor with AVX2 has had them; x/sys/cpu has no
// flag of its own, and FMA3 arrived together with F16C or later on both vendors' parts.
func hasF16C() bool { return cpu.X86.HasAVX && cpu.X86.HasFMA }
