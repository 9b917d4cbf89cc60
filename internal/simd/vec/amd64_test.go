//go:build amd64 && !noasm

package vec

import (
	"os"
	"regexp"
	"testing"
)

// TestAVX2Registers: a machine without AVX-512 has no registers 16 to 31, no zmm and no masks, and on this
// one the assembler would encode them silently.
func TestAVX2Registers(t *testing.T) {
	text, err := os.ReadFile("zavx2_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`\b(Z\d+|K\d|[XY](1[6-9]|2\d|3[01]))\b`).Find(text); m != nil {
		t.Errorf("zavx2_amd64.s uses %s", m)
	}
}
