package main

import (
	"strings"
	"testing"

	cudabench "github.com/flashdecode/flashdecode/backend/cuda/bench"
)

func TestCudaTableAndChart(t *testing.T) {
	v, err := cudabench.ParseVariant("split1")
	if err != nil {
		t.Fatal(err)
	}
	bad, err := cudabench.ParseVariant("naive")
	if err != nil {
		t.Fatal(err)
	}
	vs := []cudabench.Variant{v, bad}
	var rows []*cudabench.Row
	for _, n := range []int{2048, 1024} {
		rows = append(rows, &cudabench.Row{B: 1, Hq: 32, Hkv: 8, N: n, MB: 4, KV: "bf16", Floor: 2, US: map[string]any{"split1": 4.5, "naive": "no room"},
			Err: map[string]float64{"split1": 2e-3}, Launch: map[string]string{"split1": "cluster W4 P8"}, Percent: map[string]float64{"split1": 44.4}, GBps: map[string]float64{"split1": 900}})
	}
	got := cudaTable(vs, rows[0], true)
	for _, want := range []string{"| 1 × 2048        | 32/8   | bf16 |     4.00 |       2.00 | split1         |     4.50 |    44.4 |    900 | 2.0e-03 | cluster W4 P8\n", "| naive          | no room\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	c := cudaChart(vs, append(rows, &cudabench.Row{B: 8, Hq: 32, Hkv: 8, N: 1024}))
	if len(c.Series) != 2 || len(c.Series[0].Points) != 2 || c.Series[0].Points[0].X != 1024 || len(c.Series[1].Points) != 0 || !strings.Contains(c.Title, "1 × 32/8 heads") {
		t.Errorf("%+v", c)
	}
}

func TestBadCudaFlags(t *testing.T) {
	for _, args := range []string{"--device gpu", "--device cuda:x", "--device cuda --grid x", "--device cuda --variants split3", "--device cuda --kv q8_0",
		"--device cuda --rotate 0", "--device cuda -o json", "--device cuda --lens 2m", "--device cuda --reps 0", "--grid std"} {
		code, _, errOut := call(t, "", append([]string{"bench", "attn"}, strings.Fields(args)...)...)
		if code != 2 || errOut == "" {
			t.Errorf("%s: code %d, %q", args, code, errOut)
		}
	}
}
