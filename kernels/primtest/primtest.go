// Package primtest holds what the primitives of kernels/prim have to give: for each small kernel of unit prim_test its launch, its input
// and the words of its result, made by formulae that share no code with the primitives. CI checks the emulator against them; device
// tests check a GPU, so that the emulator and the GPU are known to agree.
package primtest

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
)

//go:embed golden.txt
var golden string

// Unit is the unit whose images have the kernels; their names are "fd_prim_" and the test's.
const Unit = "prim_test"

// Test is one kernel. Its argument is two device pointers, input and result, and the result is zero before it starts.
type Test struct {
	Name          string
	Blocks        int
	Threads       int
	ClusterBlocks int  // 1: no cluster
	SharedBytes   int  // dynamic
	SM90          bool // not in the images for other targets
	Dependent     bool // launch it twice in a row, as programmatic dependents
	Want          []uint32

	how string
}

// Symbol is the kernel's name in the image.
func (t *Test) Symbol() string { return "fd_prim_" + t.Name }

// Read returns the input, which is the same for all, and the tests.
func Read() (in []uint32, tests []Test, err error) {
	for n, line := range strings.Split(strings.TrimSpace(golden), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parse(strings.Fields(line))
		if err != nil {
			return nil, nil, fmt.Errorf("primtest: golden.txt:%d: %w", n+1, err)
		}
		if t.Name == "in" {
			in = t.Want
			continue
		}
		tests = append(tests, t)
	}
	return in, tests, nil
}

func parse(words []string) (Test, error) {
	if len(words) < 7 {
		return Test{}, fmt.Errorf("%d fields", len(words))
	}
	t := Test{Name: words[0], how: words[5]}
	for i, p := range []*int{&t.Blocks, &t.Threads, &t.ClusterBlocks, &t.SharedBytes} {
		n, err := strconv.Atoi(words[i+1])
		if err != nil {
			return Test{}, err
		}
		*p = n
	}
	for _, w := range words[6:] {
		v, err := strconv.ParseUint(w, 16, 32)
		if err != nil {
			return Test{}, err
		}
		t.Want = append(t.Want, uint32(v))
	}
	t.Dependent = t.Name == "dependent"
	t.SM90 = t.Dependent || t.ClusterBlocks > 1 || t.Name == "bulk" || strings.HasPrefix(t.Name, "wgmma")
	return t, nil
}

// Check compares a result with what it has to be. Approximate functions may be off by the last bits, NaN may have any payload.
func (t *Test) Check(got []uint32) error {
	if len(got) != len(t.Want) {
		return fmt.Errorf("primtest: %s: %d words, want %d", t.Name, len(got), len(t.Want))
	}
	bad, first := 0, 0
	for i := range got {
		if !alike(t.how, got[i], t.Want[i]) {
			if bad == 0 {
				first = i
			}
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("primtest: %s: %d of %d words differ, first word %d: %08x, want %08x (%s)", t.Name, bad, len(got), first, got[first], t.Want[first], t.how)
}

// alike has the rules of prim_emu.cc.
func alike(how string, got, want uint32) bool {
	switch how {
	case "bf16":
		return parts(got, want, 16, func(b uint32) bool { return b&0x7fff > 0x7f80 })
	case "f16":
		return parts(got, want, 16, func(b uint32) bool { return b&0x7fff > 0x7c00 })
	case "e4m3":
		return parts(got, want, 8, func(b uint32) bool { return b&0x7f == 0x7f })
	case "f32":
		return got == want || isNaN(got) && isNaN(want)
	}
	if bits, ok := strings.CutPrefix(how, "approx"); ok {
		n, err := strconv.Atoi(bits)
		g, w := float64(math.Float32frombits(got)), float64(math.Float32frombits(want))
		return err == nil && math.Abs(g-w) <= math.Ldexp(math.Abs(w), -n)
	}
	return got == want
}

func isNaN(b uint32) bool { return b&0x7fffffff > 0x7f800000 }

// parts compares numbers of that many bits each: equal, or both NaN.
func parts(got, want uint32, bits int, nan func(uint32) bool) bool {
	mask := uint32(1)<<bits - 1
	for i := 0; i < 32; i += bits {
		g, w := got>>i&mask, want>>i&mask
		if g != w && !(nan(g) && nan(w)) {
			return false
		}
	}
	return true
}
