package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/verify"
)

// maxError is half as much again as FlashAttention-3's relative error on such inputs, 2.2e-3.
const maxError = 3.3e-3

// TestDevice compares every cell of the grids with attention in double precision, in every variant, or skips.
// FLASHDECODE_GRIDS=quick leaves the long cells out.
func TestDevice(t *testing.T) {
	drv, ctx := verify.Open(t)
	dev := ctx.Device()
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	names := []string{"naive", "nosplit", "split2", "split1", "split1_pdl", "split1_flat", "split1_contig", "split1_p64"}
	images := map[string]string{}
	var c verify.Count
	for _, grid := range []string{"std", "fp8", "skew", "long"} {
		if grid == "long" && os.Getenv("FLASHDECODE_GRIDS") == "quick" {
			continue
		}
		cells, err := Grid(grid)
		if err != nil {
			t.Fatal(err)
		}
		var ks *attention.Kernels
		load := func(ctx *attention.Context) (*attention.Kernels, error) {
			var err error
			ks, err = attention.Load(ctx)
			return ks, err
		}
		o := Options{Cells: cells, Variants: variants(t, names...), Reps: 1, Rotate: 1 << 20}
		err = run(context.Background(), drv, o, load, func(r *Row) error {
			for k, v := range ks.Images() {
				images[k] = v
			}
			c.Run(t, fmt.Sprintf("%s/%d×%d,%d:%d%s", grid, r.B, r.N, r.Hq, r.Hkv, r.Note), func(t *testing.T) {
				for _, n := range names {
					if r.Note != "" && n == "split1_contig" {
						continue // not for lengths that differ
					}
					if e, ok := r.Err[n]; !ok || !(e <= maxError) || !(r.LSE[n] <= 1) {
						t.Errorf("%s: relative error %v, LSE %v of its bound, %v, %s", n, e, r.LSE[n], r.US[n], r.Launch[n])
					}
				}
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Write(drv, dev, images); err != nil {
		t.Fatal(err)
	}
}
