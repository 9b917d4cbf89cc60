package qgemm

import (
	"testing"
	"unsafe"
)

// TestOffsets: the generator (_asm/args.go) is another module and repeats these numbers.
func TestOffsets(t *testing.T) {
	var a args
	var b actBlock
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"args.w", unsafe.Offsetof(a.w), 0}, {"args.x", unsafe.Offsetof(a.x), 8},
		{"args.strips", unsafe.Offsetof(a.strips), 16}, {"args.units", unsafe.Offsetof(a.units), 24},
		{"args.stripBytes", unsafe.Offsetof(a.stripBytes), 32}, {"args.step", unsafe.Offsetof(a.step), 40},
		{"args.keep", unsafe.Offsetof(a.keep), 48}, {"args.y", unsafe.Offsetof(a.y), 56},
		{"actBlock.d", unsafe.Offsetof(b.d), 32}, {"actBlock.sum", unsafe.Offsetof(b.sum), 36},
		{"actBlock.off128", unsafe.Offsetof(b.off128), 40}, {"actBlock.off16", unsafe.Offsetof(b.off16), 44},
		{"actBlock.off8", unsafe.Offsetof(b.off8), 48}, {"actBlock.off32", unsafe.Offsetof(b.off32), 52},
		{"actBlock", unsafe.Sizeof(b), 64}, {"floatBlock", unsafe.Sizeof(floatBlock{}), 64},
	} {
		if c.got != c.want {
			t.Errorf("%s is at %d, the generator says %d", c.what, c.got, c.want)
		}
	}
}
