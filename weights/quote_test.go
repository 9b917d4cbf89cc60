package weights

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestQuote: names up to the limit are whole, longer ones are cut between characters.
func TestQuote(t *testing.T) {
	for n := range 3 * quotedBytes {
		for _, c := range []string{"a", "ü", "▁", "😀", "\xff", "\n", `"`} {
			name := strings.Repeat(c, n)
			got := Quote(name)
			if !utf8.ValidString(got) || strings.HasSuffix(got, "…") != (len(name) > quotedBytes) || len(got) > 4*quotedBytes+5 {
				t.Fatalf("%d times %q: %s", n, c, got)
			}
			if c == "😀" && strings.ContainsAny(got, `\�`) {
				t.Fatalf("half a character: %s", got)
			}
		}
	}
	if got := Quote("token_embd.weight"); got != `"token_embd.weight"` {
		t.Error(got)
	}
}

func TestShort(t *testing.T) {
	err := errors.New(strings.Repeat("é", shownBytes/2))
	if Short(nil) != nil || Short(err) != err {
		t.Error("what is short enough was changed")
	}
	long := Short(errors.New("x" + strings.Repeat("é", shownBytes))).Error()
	if want := "x" + strings.Repeat("é", shownBytes/2-1) + "…"; long != want {
		t.Errorf("%q", long)
	}
}
