package primtest

import (
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/kernels"
)

// TestGolden: there is a kernel for each test, where the test says there is one.
func TestGolden(t *testing.T) {
	in, tests, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(in) != 512 || len(tests) < 18 {
		t.Errorf("%d words of input, %d tests", len(in), len(tests))
	}
	m, err := kernels.Read()
	if err != nil {
		t.Fatal(err)
	}
	for i := range tests {
		x := &tests[i]
		if err := x.Check(x.Want); err != nil {
			t.Error(err)
		}
		for _, c := range []kernels.Capability{{Major: 8}, {Major: 9}, {Major: 10}} {
			im, _, err := m.Find(c, x.Symbol())
			if has := err == nil && im.Unit == Unit; has != (c.Major == 9 || !x.SM90) {
				t.Errorf("%s for %v: %v", x.Name, c, err)
			}
		}
	}
}

// TestCheck: each rule accepts and refuses.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		how       string
		got, want uint32
		alike     bool
	}{
		{"exact", 7, 7, true},
		{"exact", 0x7fc00000, 0x7fc00001, false},
		{"bf16", 0x7fff3f80, 0xffc03f80, true}, // NaN, 1
		{"bf16", 0x7f803f80, 0xff803f80, false},
		{"bf16", 0x3f803f81, 0x3f803f80, false},
		{"f16", 0x7fff3c00, 0xfe003c00, true},
		{"f16", 0x7c003c00, 0x7c013c00, false},
		{"e4m3", 0x7f7f0801, 0xff7f0801, true},
		{"e4m3", 0x7e000000, 0x7f000000, false},
		{"f32", 0x7fc00000, 0xffc12345, true},
		{"f32", 0x7f800000, 0xff800000, false},
		{"approx20", 0x3f800000, 0x3f800001, true},
		{"approx20", 0x3f800000, 0x3f800010, false},
		{"approx20", 0x7fc00000, 0x3f800000, false}, // NaN is near nothing
		{"approx10", 0x3f800000, 0x3f801000, true},
		{"approx20", 0, 0, true},
		{"approx20", 1, 0, false},
	} {
		x := Test{Name: "x", Want: []uint32{c.want}, how: c.how}
		if err := x.Check([]uint32{c.got}); (err == nil) != c.alike {
			t.Errorf("%+v: %v", c, err)
		}
	}
	x := Test{Name: "x", Want: []uint32{1, 2}, how: "exact"}
	if err := x.Check([]uint32{1}); err == nil {
		t.Error("too few words pass")
	}
	if err := x.Check([]uint32{1, 3}); err == nil || !strings.Contains(err.Error(), "1 of 2 words differ, first word 1: 00000003, want 00000002") {
		t.Error(err)
	}
}
