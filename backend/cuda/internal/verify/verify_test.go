package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/kernels"
)

// TestWrite adds two runs up.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	t.Setenv("FLASHDECODE_VERIFY", path)
	drv, _ := cudatest.Open(t, cudatest.Options{})
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	var c Count
	c.Run(t, "passes", func(*testing.T) {})
	c.Run(t, "skips", func(t *testing.T) { t.Skip("on purpose") })
	for _, images := range []map[string]string{{"a": "1"}, {"b": "2"}} {
		if err := c.Write(drv, dev, images); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r kernels.Run
	if err := json.Unmarshal(text, &r); err != nil || r.Passed != 2 || r.Skipped != 2 || r.Failed != 0 || len(r.Images) != 2 || r.GPU != dev.Name || r.Date == "" {
		t.Errorf("%+v, %v", r, err)
	}
}
