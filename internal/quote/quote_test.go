package quote

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestName: names up to the limit are whole, longer ones are cut between characters.
func TestName(t *testing.T) {
	for n := range 3 * nameBytes {
		for _, c := range []string{"a", "ü", "▁", "😀", "\xff", "\n", `"`} {
			name := strings.Repeat(c, n)
			got := Name(name)
			if !utf8.ValidString(got) || strings.HasSuffix(got, "…") != (len(name) > nameBytes) || len(got) > 4*nameBytes+5 {
				t.Fatalf("%d times %q: %s", n, c, got)
			}
			if c == "😀" && strings.ContainsAny(got, `\�`) {
				t.Fatalf("half a character: %s", got)
			}
		}
	}
	if got := Name("token_embd.weight"); got != `"token_embd.weight"` {
		t.Error(got)
	}
}

func TestError(t *testing.T) {
	err := errors.New(strings.Repeat("é", errorBytes/2))
	if Error(nil) != nil || Error(err) != err {
		t.Error("what is short enough was changed")
	}
	long := Error(errors.New("x" + strings.Repeat("é", errorBytes))).Error()
	if want := "x" + strings.Repeat("é", errorBytes/2-1) + "…"; long != want {
		t.Errorf("%q", long)
	}
}
