package tiny

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

func TestData(t *testing.T) {
	const want = "eccf1753aa5b51f2ca6322d9016f970c021e093dd10faab078115cb1db68be9b" // README.md names it too
	sum := sha256.Sum256(Data())
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("SHA-256 of the embedded model is %s, want %s", got, want)
	}
	if len(Data()) > 8<<20 || string(Data()[:4]) != "GGUF" {
		t.Errorf("%d bytes starting %q", len(Data()), Data()[:4])
	}
}

func TestFiller(t *testing.T) {
	if len(filler) > 150_000 || len(filler) < 16_000*4 {
		t.Errorf("filler of %d bytes", len(filler))
	}
	for i := range len(filler) {
		if c := filler[i]; c != '\n' && (c < ' ' || c > '~') {
			t.Fatalf("filler has byte %#x at %d", c, i)
		}
	}
	if strings.Contains(filler, "secret number") {
		t.Error("the filler speaks of secret numbers")
	}
}

// words stands in for a tokenizer: pieces of four bytes, digits one by one.
func words(s string) int {
	n := 0
	for _, w := range strings.Fields(s) {
		n += (len(w) + 3) / 4
		if strings.Trim(w, "0123456789.") == "" {
			n += len(w) - (len(w)+3)/4
		}
	}
	return n + strings.Count(s, "\n")
}

func TestNeedle(t *testing.T) {
	for _, distance := range []int{100, 128, 500, 1000, 4000, 12000, 16000, 60000} {
		for seed := range uint64(20) {
			n, err := NewNeedle(distance, seed, words)
			if err != nil {
				t.Fatalf("%d tokens: %v", distance, err)
			}
			checkNeedle(t, n, distance)
			if again, _ := NewNeedle(distance, seed, words); again != n {
				t.Fatalf("seed %d gave two needles", seed)
			}
		}
	}
	a, _ := NewNeedle(1000, 1, words)
	b, _ := NewNeedle(1000, 2, words)
	if a.Answer == b.Answer || a.Prompt == b.Prompt {
		t.Error("two seeds, one needle")
	}
}

func checkNeedle(t *testing.T, n Needle, distance int) {
	t.Helper()
	if off := math.Abs(float64(n.Distance - distance)); off > 0.02*float64(distance)+10 {
		t.Errorf("wanted %d tokens, got %d", distance, n.Distance)
	}
	if distance >= 1000 && n.Others != maxOthers {
		t.Errorf("%d tokens: %d distractors", distance, n.Others)
	}
	if !strings.HasPrefix(n.Prompt, recallHead+n.Fact+"\n\n") {
		t.Errorf("prompt opens %q", n.Prompt[:120])
	}
	if strings.Count(n.Prompt, n.Answer) != 1 || !strings.Contains(n.Fact, n.Answer) {
		t.Errorf("the answer %s stands %d times in the prompt", n.Answer, strings.Count(n.Prompt, n.Answer))
	}
	if got := strings.Count(n.Prompt, "The secret number of the"); got != n.Others+1 {
		t.Errorf("%d facts, want %d", got, n.Others+1)
	}
	opening := strings.TrimSuffix(n.Fact, " "+n.Answer+".")
	if !strings.HasSuffix(n.Prompt, "\n\nQuestion: "+n.Question+"\nAnswer:") || strings.Count(n.Prompt, opening) != 1 {
		t.Errorf("prompt ends %q", n.Prompt[len(n.Prompt)-160:])
	}
}

func TestNeedleTooNear(t *testing.T) {
	for _, distance := range []int{-1, 0, 60} {
		if _, err := NewNeedle(distance, 1, words); err == nil || !strings.HasPrefix(err.Error(), "tiny: ") {
			t.Errorf("%d tokens: %v", distance, err)
		}
	}
}

func TestFound(t *testing.T) {
	n := Needle{Fact: "The number is 01234."}
	for text, want := range map[string]bool{" The number is 01234.": true, "The number is 01234.\n\nMore": true,
		" The number is 012345.": false, " The number is": false, "": false, " 01234": false} {
		if n.Found(text) != want {
			t.Errorf("Found(%q) = %v", text, !want)
		}
	}
}
