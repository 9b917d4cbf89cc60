package flashdecode_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/weights"
)

// copyOfTiny opens the embedded model from a file of its own.
func copyOfTiny(t *testing.T, opts ...flashdecode.Option) (*flashdecode.Model, string) {
	t.Helper()
	testkit.SkipEmulated(t, "the address of a fault is not reproduced")
	path := filepath.Join(t.TempDir(), "copy.gguf")
	if err := os.WriteFile(path, tiny.Data(), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := flashdecode.Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, path
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// wantChanged fails the test unless err is the error of a changed file, and names it.
func wantChanged(t *testing.T, what string, err error, path string) {
	t.Helper()
	if !errors.Is(err, weights.ErrChanged) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("%s: %v, want an error that names %s, wraps weights.ErrChanged and has no stack", what, err, path)
	}
}

// orders are both ways to hold weights: in the file, read at every step, and repacked at the first.
var orders = []string{"off", "on"}

// TestTruncatedBeforeFirstUse: the workers meet the fault, in their first products or while they repack. A later
// attempt must fail, too: half a tensor that was repacked is no tensor.
func TestTruncatedBeforeFirstUse(t *testing.T) {
	whole := int64(len(tiny.Data()))
	for _, repack := range orders {
		for _, size := range []int64{0, 4096, whole / 2, whole - 1<<20, whole - 1} {
			m, path := copyOfTiny(t, flashdecode.Repack(repack), flashdecode.Threads(2))
			truncate(t, path, size)
			for range 2 {
				_, err := generate(m, []int32{5, 6, 7}, flashdecode.MaxTokens(3))
				wantChanged(t, repack, err, path)
			}
			if err := m.Close(); err != nil {
				t.Errorf("repack %s: %v", repack, err)
			}
		}
	}
}

// TestTruncatedWhileGenerating: the generation under way ends with the error, and so do new ones, while another model
// of the same process goes on.
func TestTruncatedWhileGenerating(t *testing.T) {
	for _, repack := range orders {
		m, path := copyOfTiny(t, flashdecode.Repack(repack))
		other, _ := copyOfTiny(t, flashdecode.Repack(repack))
		prompt := []int32{300, 301, 302}
		n := 0
		var err error
		for _, e := range m.GenerateTokens(t.Context(), prompt, flashdecode.IgnoreEnd()) {
			if err = e; err != nil {
				break
			}
			if n++; n == 4 {
				truncate(t, path, int64(len(tiny.Data()))/2)
			}
		}
		wantChanged(t, repack, err, path)
		_, err = generate(m, prompt, flashdecode.MaxTokens(3))
		wantChanged(t, repack+", again", err, path)
		if _, err := generate(other, prompt, flashdecode.MaxTokens(20)); err != nil {
			t.Errorf("another model: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("repack %s: %v", repack, err)
		}
		if _, err := generate(other, prompt, flashdecode.MaxTokens(3)); err != nil {
			t.Errorf("another model, later: %v", err)
		}
		if _, err := flashdecode.Open(path); err == nil {
			t.Error("half a file was opened")
		}
	}
}

// TestOverwritten: other bytes of the same length are an error, another file of the same name is none.
func TestOverwritten(t *testing.T) {
	for _, repack := range orders {
		m, path := copyOfTiny(t, flashdecode.Repack(repack))
		before, err := generate(m, []int32{300, 301}, flashdecode.MaxTokens(4))
		if err != nil {
			t.Fatal(err)
		}
		moved := path + ".new"
		if err := os.WriteFile(moved, make([]byte, 100), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(moved, path); err != nil {
			t.Fatal(err)
		}
		after, err := generate(m, []int32{300, 301}, flashdecode.MaxTokens(4))
		if err != nil {
			t.Errorf("after the file's name went to another: %v", err)
		}
		sameTokens(t, "after the file's name went to another", after, before)

		m, path = copyOfTiny(t, flashdecode.Repack(repack))
		if err := os.WriteFile(path, make([]byte, len(tiny.Data())), 0o644); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-time.Hour) // writes within one tick of the clock would look like none
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		_, err = generate(m, []int32{300, 301}, flashdecode.MaxTokens(4))
		wantChanged(t, "overwritten with zeros", err, path)
	}
}
