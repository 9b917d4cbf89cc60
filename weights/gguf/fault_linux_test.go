package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/internal/faulttest"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// openLarge writes a file of an array and a tensor that each span many pages, and opens it.
func openLarge(t *testing.T) (*File, string) {
	t.Helper()
	const n = 1 << 18
	path := filepath.Join(t.TempDir(), "large.gguf")
	words := make([]string, n/16)
	for i := range words {
		words[i] = fmt.Sprintf("word %d", i)
	}
	data := write(t, []KV{{"small", "x"}, {"numbers", make([]int32, n/4)}, {"words", words}},
		[]weights.Tensor{{Name: "w", Type: quant.F32, Shape: []int{n / 4}, Data: make([]byte, n)}})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, path
}

// sum reads all of data.
//
//go:noinline
func sum(data []byte) (s int) {
	for _, b := range data {
		s += int(b)
	}
	return s
}

func TestTruncatedWhileMapped(t *testing.T) {
	faulttest.Need(t)
	f, path := openLarge(t)
	w, err := f.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// The modification time as before: the size alone must tell.
	if err := errors.Join(os.Truncate(path, 100), os.Chtimes(path, time.Time{}, info.ModTime())); err != nil {
		t.Fatal(err)
	}
	changed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, weights.ErrChanged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error that names %s and wraps ErrChanged", what, err, path)
		}
	}
	changed("Check", f.Check())
	changed("Guard", weights.Guard(func() error { sum(w.Data); return nil }, f))
	changed("Guard in dequantize", weights.Guard(func() error {
		return quant.Dequantize(w.Type, make([]float32, w.Shape[0]), w.Data)
	}, f))
	_, err = f.Meta.Int32s("numbers")
	changed("Int32s", err)
	_, err = f.Meta.Strings("words")
	changed("Strings", err)
	if s, err := f.Meta.String("small"); s != "x" || err != nil {
		t.Errorf("scalars are decoded on opening: %q, %v", s, err)
	}

	// As a worker would: once per goroutine, and Fault when it recovers.
	result := make(chan error)
	go func() {
		debug.SetPanicOnFault(true)
		defer func() { result <- weights.Fault(recover(), f) }()
		sum(w.Data)
	}()
	changed("Fault in a worker", <-result)

	other, _ := openLarge(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a fault in another file was taken for this one's")
			}
		}()
		_ = weights.Guard(func() error { sum(w.Data); return nil }, other)
	}()
}

func TestChangedWhileMapped(t *testing.T) {
	f, path := openLarge(t)
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); !errors.Is(err, weights.ErrChanged) {
		t.Errorf("written to: %v", err)
	}

	// The lengths of strings are checked again when they are decoded: the last, "word 16383", now
	// reaches beyond the array by one byte, or every one is enormous.
	f, path = openLarge(t)
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	array := f.Meta.values["words"]
	for _, c := range []struct {
		at   int
		data []byte
	}{{array.end - 18, []byte{11}}, {array.start, bytes.Repeat([]byte{0xff}, 64)}} {
		if _, err := w.WriteAt(c.data, int64(c.at)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Meta.Strings("words"); !errors.Is(err, weights.ErrChanged) {
			t.Errorf("overwritten array at %d: %v", c.at, err)
		}
	}
}

// TestReplacedWhileMapped: a file that is deleted or renamed keeps its bytes, so nothing has changed.
func TestReplacedWhileMapped(t *testing.T) {
	f, path := openLarge(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	if w, err := f.Tensor("w"); err != nil || sum(w.Data) != 0 {
		t.Error(err)
	}
}

func TestOpenOddFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.gguf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.gguf"): "no such file", dir: "not a regular file", "/dev/zero": "not a regular file", empty: "empty",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v does not wrap os.ErrNotExist", err)
	}
}
