//go:build !amd64 || noasm

package simd

// Detect returns the strongest level this machine can run: only plain Go exists here.
func Detect() Level { return Generic }
