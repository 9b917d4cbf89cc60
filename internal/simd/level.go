package simd

import "fmt"

// Level is a set of instructions, each including the ones before it.
type Level uint8

const (
	Generic Level = iota // plain Go, every architecture
	AVX2                 // AVX2, FMA, F16C
	AVX512               // AVX-512 F, BW, DQ, VL and VNNI
)

var levelNames = [...]string{"generic", "avx2", "avx512"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel returns the level called name.
func ParseLevel(name string) (Level, error) {
	for i, n := range levelNames {
		if n == name {
			return Level(i), nil
		}
	}
	return 0, fmt.Errorf("simd: unknown instruction set %q (generic, avx2 or avx512)", name)
}

// Levels lists what this machine and this build can run, weakest first.
func Levels() []Level {
	var ls []Level
	for l := Generic; l <= Detect(); l++ {
		ls = append(ls, l)
	}
	return ls
}
