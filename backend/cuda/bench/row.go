package bench

import "math"

// Row is one cell's result. The first seven keys are those of the peers' results, so that rows merge.
type Row struct {
	B   int                `json:"B"`
	Hq  int                `json:"Hq"`
	Hkv int                `json:"Hkv"`
	N   int                `json:"N"`
	MB  float64            `json:"MB"`
	US  map[string]any     `json:"us"`  // microseconds by variant, or why there are none
	Err map[string]float64 `json:"err"` // relative error by variant

	// LSE is the largest |error| of an LSE over 1e-5 + 1e-6·|LSE|.
	LSE     map[string]float64 `json:"lse_err"`
	Launch  map[string]string  `json:"launch"` // how each variant was launched
	GBps    map[string]float64 `json:"gb_per_second"`
	Percent map[string]float64 `json:"percent_of_floor"` // floor / time
	Predict map[string]float64 `json:"predicted_us"`
	Floor   float64            `json:"floor_us"`

	Note   string `json:"note,omitempty"`
	KV     string `json:"kv"`
	Page   int    `json:"page"` // of variants that don't say
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	Commit string `json:"commit"`
}

// newRow describes the cell.
func newRow(c *Cell) *Row {
	return &Row{
		B: c.Seqs, Hq: c.QHeads, Hkv: c.KVHeads, N: c.KVLen, MB: round(float64(c.bytes())/(1<<20), 2), Note: c.Note, KV: c.KV.String(), Page: 16,
		US: map[string]any{}, Err: map[string]float64{}, LSE: map[string]float64{}, Launch: map[string]string{}, GBps: map[string]float64{},
		Percent: map[string]float64{}, Predict: map[string]float64{},
	}
}

// Time returns a variant's microseconds, 0 if it has none.
func (r *Row) Time(variant string) float64 {
	us, _ := r.US[variant].(float64)
	return us
}

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}

// roundSig rounds an error to two significant digits.
func roundSig(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	return round(x, 1-int(math.Floor(math.Log10(math.Abs(x)))))
}
