package plan_test

import (
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/pool"
	"github.com/flashdecode/flashdecode/plan"
)

// nothing is a task that does nothing.
type nothing struct{}

func (nothing) Chunk(int, int) {}

// TestCPUItemsFitThePool: a plan that the CPU's threads could not number is an error, whatever makes it large, and the
// largest that is none runs, with as many blocks of prompts beside it.
func TestCPUItemsFitThePool(t *testing.T) {
	lim := plan.CPU(2)
	if lim.MaxItems < 1 || 2*lim.MaxItems-1 > pool.MaxChunks {
		t.Fatalf("%d items and one less block are more than a region's %d chunks", lim.MaxItems, pool.MaxChunks)
	}
	shape := plan.Shape{QHeads: 2, KVHeads: 2, HeadDim: 8, PageSize: 1, TokenBytes: 32, Causal: true}
	most := lim.MaxItems / shape.KVHeads
	padded := func(n int) []plan.Seq {
		seqs := make([]plan.Seq, n)
		for i := range seqs {
			seqs[i] = plan.Seq{QLen: 1, KVLen: 1}
		}
		return seqs
	}
	one := func(tokens int) []plan.Seq { return []plan.Seq{{QLen: 1, KVLen: int32(tokens)}} }
	var pl plan.Planner
	var p plan.Plan
	for name, c := range map[string]struct {
		seqs func(n int) []plan.Seq
		pol  plan.Policy
		want string // in the error
	}{
		"fixed":  {one, plan.Fixed(1), "more than 524288 items"},
		"splits": {one, plan.Splits(1 << 30), "more than 524288 items"},
		"none":   {padded, plan.None(), "too large"},
		"auto":   {padded, plan.Auto(), "too large"},
	} {
		if err := pl.Plan(&p, shape, c.seqs(most), lim, c.pol); err != nil || len(p.Items) != lim.MaxItems {
			t.Errorf("%s: %d items, %v", name, len(p.Items), err)
		}
		if err := pl.Plan(&p, shape, c.seqs(most+1), lim, c.pol); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		gpu := plan.H200()
		if err := pl.Plan(&p, shape, c.seqs(most+1), gpu, c.pol); err != nil {
			t.Errorf("%s: a GPU has no such limit: %v", name, err)
		}
	}
	workers := pool.New(2)
	defer workers.Close()
	workers.Begin()
	workers.Run(pool.NewRegion(nothing{}), 2*lim.MaxItems-1)
	if f := workers.End(); f != nil {
		t.Error(f)
	}
}

// TestMaxItemsIsChecked: limits with a number of items that no plan can have are refused.
func TestMaxItemsIsChecked(t *testing.T) {
	shape := plan.Shape{QHeads: 1, KVHeads: 1, HeadDim: 8, PageSize: 1, TokenBytes: 32}
	for _, n := range []int{-1, 1<<22 + 1} {
		lim := plan.CPU(1)
		lim.MaxItems = n
		var pl plan.Planner
		if err := pl.Plan(new(plan.Plan), shape, []plan.Seq{{QLen: 1, KVLen: 1}}, lim, plan.Auto()); err == nil || !strings.Contains(err.Error(), "MaxItems") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// TestPolicyNumbers: a number that is too large for any integer is as wrong as one that is too large for a policy.
func TestPolicyNumbers(t *testing.T) {
	for s, want := range map[string]string{
		"fixed:99999999999999999999":   "fixed:99999999999999999999: want 1 to 1073741824 tokens per item",
		"splits:99999999999999999999":  "splits:99999999999999999999: want 1 to 1073741824 splits",
		"splits:-99999999999999999999": "splits:-99999999999999999999: want 1 to 1073741824 splits",
		"fixed:1073741825":             "fixed:1073741825: want 1 to",
		"splits:0":                     "splits:0: want 1 to",
		"fixed:many":                   `"many" is not a number`,
		"splits:":                      `"" is not a number`,
	} {
		if _, err := plan.ParsePolicy(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", s, err, want)
		}
	}
}
