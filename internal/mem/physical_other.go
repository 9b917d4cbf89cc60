//go:build !linux

package mem

// Physical is the machine's memory in bytes, 0 if unknown.
func Physical() int64 { return 0 }
