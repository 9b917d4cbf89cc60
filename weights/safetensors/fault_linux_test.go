package safetensors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/internal/faulttest"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func TestTruncatedWhileMapped(t *testing.T) {
	faulttest.Need(t)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, build(`{"a":{"dtype":"F32","shape":[65536],"data_offsets":[0,262144]}}`, 1<<18), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := f.Tensor("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Check": f.Check(),
		"Guard": weights.Guard(func() error { return quant.Dequantize(w.Type, make([]float32, 65536), w.Data) }, f),
	} {
		if !errors.Is(err, weights.ErrChanged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error that names %s and wraps ErrChanged", what, err, path)
		}
	}
}
