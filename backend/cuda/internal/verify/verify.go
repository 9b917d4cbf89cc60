// Package verify opens a device for tests, or skips them, and writes down what a run of them has shown: a kernels.Run, for
// kernels/verified.json.
//
//	FLASHDECODE_GPU=1            a missing driver or device is a failure, not a reason to skip
//	FLASHDECODE_VERIFY=FILE      write the run there; if there is one, its counts and images are added
package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/kernels"
)

// Open returns the first device, open, or skips the test.
func Open(t testing.TB) (*cuda.Driver, *cuda.Context) {
	t.Helper()
	drv, err := cuda.Open()
	if err == nil {
		var dev *cuda.Device
		if dev, err = drv.Device(0); err == nil {
			var ctx *cuda.Context
			if ctx, err = dev.Open(); err == nil {
				return drv, ctx
			}
		}
	}
	if os.Getenv("FLASHDECODE_GPU") != "" {
		t.Fatal(err)
	}
	t.Skip("needs a GPU: ", err)
	return nil, nil
}

// Count counts tests by their outcome.
type Count struct{ Passed, Failed, Skipped int }

// Run runs a subtest and counts it.
func (c *Count) Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() {
			switch {
			case t.Failed():
				c.Failed++
			case t.Skipped():
				c.Skipped++
			default:
				c.Passed++
			}
		})
		f(t)
	})
}

// Write adds the counts to the file that FLASHDECODE_VERIFY names, if it does.
func (c *Count) Write(drv *cuda.Driver, dev *cuda.Device, images map[string]string) error {
	path := os.Getenv("FLASHDECODE_VERIFY")
	if path == "" {
		return nil
	}
	r := kernels.Run{Images: map[string]string{}}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("verify: %s: %w", path, err)
	}
	r.Date, r.GPU, r.Driver = time.Now().UTC().Format(time.DateOnly), dev.Name, drv.Version().String()
	r.Passed, r.Failed, r.Skipped = r.Passed+c.Passed, r.Failed+c.Failed, r.Skipped+c.Skipped
	maps.Copy(r.Images, images)
	if text, err = json.MarshalIndent(r, "", " "); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
