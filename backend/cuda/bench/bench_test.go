package bench

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/fake"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
)

// variants parses names.
func variants(t *testing.T, names ...string) (vs []Variant) {
	t.Helper()
	for _, n := range names {
		v, err := ParseVariant(n)
		if err != nil {
			t.Fatal(err)
		}
		vs = append(vs, v)
	}
	return vs
}

// TestRun measures small cells on a device in Go: rows have what the peers' rows have, and errors of bf16's size.
func TestRun(t *testing.T) {
	drv, fakeDrv := cudatest.Open(t, cudatest.Options{})
	image := fake.Install(fakeDrv, fake.Decode(), fake.Oracle())
	cells := []Cell{
		{Seqs: 1, QHeads: 4, KVHeads: 2, HeadDim: 64, KVLen: 100},
		{Seqs: 3, QHeads: 2, KVHeads: 1, HeadDim: 64, KVLen: 64, Lens: []int32{64, 1, 17}, Note: "uneven"},
		{Seqs: 2, QHeads: 4, KVHeads: 1, HeadDim: 64, KVLen: 48, KV: attention.E4M3},
	}
	names := []string{"nosplit", "split1", "split1_pdl", "split1_flat", "split1_contig", "split1_p64"}
	o := Options{Cells: cells, Variants: variants(t, names...), Rotate: 200 << 10, Reps: 3, Commit: "abc"}
	var rows []*Row
	err := run(context.Background(), drv, o, func(c *attention.Context) (*attention.Kernels, error) { return attention.LoadImage(c, image), nil },
		func(r *Row) error { rows = append(rows, r); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(cells) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows {
		if r.B != cells[i].Seqs || r.Hq != cells[i].QHeads || r.Hkv != cells[i].KVHeads || r.N != cells[i].KVLen || r.Floor <= 0 || r.GPU == "" || r.Commit != "abc" {
			t.Errorf("%+v", r)
		}
		for _, n := range names {
			if why, none := r.US[n].(string); i == 1 && n == "split1_contig" {
				if !none || !strings.Contains(why, "contiguous") {
					t.Errorf("%s: %v", n, r.US[n])
				}
				continue
			}
			if r.Time(n) <= 0 || !(r.Err[n] > 0 && r.Err[n] < 4e-3) || !(r.LSE[n] < 10) || r.Launch[n] == "" {
				t.Errorf("%v, %s: %v µs, error %v, launch %q", &cells[i], n, r.US[n], r.Err[n], r.Launch[n])
			}
		}
	}
	b, err := json.Marshal(rows[1])
	for _, key := range []string{`"B":3,"Hq":2,"Hkv":1,"N":64,"MB":`, `"us":{"nosplit":`, `"err":{`, `"floor_us":`, `"note":"uneven"`, `"kv":"bf16"`} {
		if err != nil || !strings.Contains(string(b), key) {
			t.Errorf("%s lacks %s (%v)", b, key, err)
		}
	}
}

// TestGrids checks that the grids have the cells of the peers' results.
func TestGrids(t *testing.T) {
	for name, n := range map[string]int{"std": 65, "fp8": 46, "long": 6, "smoke": 2, "skew": 8} {
		cells, err := Grid(name)
		if err != nil || len(cells) != n {
			t.Errorf("%s: %d cells, want %d (%v)", name, len(cells), n, err)
		}
		for _, c := range cells {
			if len(c.lens()) != c.Seqs || c.bytes() <= 0 {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	if _, err := Grid("x"); err == nil {
		t.Error("grid x")
	}
	for _, bad := range []string{"split3", "split1_x", ""} {
		if v, err := ParseVariant(bad); err == nil {
			t.Errorf("%q: %+v", bad, v)
		}
	}
}
