// Package plangolden keeps plans of package plan as text for the emulator's test of the device planner, which has no Go.
package plangolden

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/plan"
)

var update = flag.Bool("update", false, "write the plans")

const file = "../../attention/testdata/plans.txt"

// call is one planning problem. A window of -1 is none.
type call struct {
	shape  plan.Shape
	lim    plan.Limits
	pol    plan.Policy
	window int
	qLen   []int32
	kvLen  []int32
}

// seqs states the batch as the device planner sees it: the first token follows from the window.
func (c call) seqs() []plan.Seq {
	s := make([]plan.Seq, len(c.kvLen))
	for i := range s {
		s[i] = plan.Seq{QLen: c.qLen[i], KVLen: c.kvLen[i]}
		if c.window >= 0 {
			s[i].First = min(max(0, c.kvLen[i]-c.qLen[i]-int32(c.window)), c.kvLen[i])
		}
	}
	return s
}

// calls draws problems of many kinds; the seed is fixed.
func calls() []call {
	rng := rand.New(rand.NewPCG(1, 2))
	small := plan.H200()
	small.Name, small.Workers, small.MinTokens, small.MaxSplits = "small", 7, 16, 40
	tiled := plan.A100()
	tiled.QTile, tiled.CTAsPerSM, tiled.JitterPct, tiled.SharedBytesPerUS = 2, 2, 6, 0
	one := small
	one.Workers = 1
	limits := []plan.Limits{plan.H200(), plan.H200(), small, tiled, one}
	policies := []plan.Policy{plan.Auto(), plan.Auto(), plan.Auto(), plan.None(), plan.Fixed(64), plan.Fixed(100), plan.Splits(5)}
	heads := [][2]int{{16, 2}, {32, 8}, {8, 1}, {12, 4}}
	batches := []int{0, 1, 1, 2, 7, 33, 64}
	lengths := []int32{1, 100, 5000, 200_000}
	var out []call
	for i := range 150 {
		h := heads[rng.IntN(len(heads))]
		c := call{
			shape: plan.Shape{QHeads: h[0], KVHeads: h[1], HeadDim: 128, PageSize: []int{16, 64, 3}[rng.IntN(3)], TokenBytes: 512, Causal: rng.IntN(2) == 0},
			lim:   limits[i%len(limits)], pol: policies[i%len(policies)], window: -1,
		}
		if rng.IntN(5) == 0 {
			c.window = rng.IntN(300)
		}
		most := lengths[rng.IntN(len(lengths))]
		if c.pol.Mode == plan.ModeFixed {
			most = min(most, 5000)
		}
		for range batches[rng.IntN(len(batches))] {
			c.kvLen = append(c.kvLen, rng.Int32N(most+1))
			c.qLen = append(c.qLen, []int32{1, 1, 1, 0, 5}[rng.IntN(5)])
		}
		out = append(out, c)
	}
	return out
}

// line is one problem and what identifies its plan: counts, and a hash of all items and merges as int32.
func line(c call) (string, error) {
	var p plan.Plan
	var pl plan.Planner
	if err := pl.Plan(&p, c.shape, c.seqs(), c.lim, c.pol); err != nil {
		return "", err
	}
	h := fnv.New64a()
	for _, it := range p.Items {
		binary.Write(h, binary.LittleEndian, it)
	}
	for _, m := range p.Merges {
		binary.Write(h, binary.LittleEndian, m)
	}
	causal := 0
	if c.shape.Causal {
		causal = 1
	}
	l, s := c.lim, c.shape
	var b strings.Builder
	fmt.Fprint(&b, c.pol.Mode, " ", c.pol.N, " ", s.KVHeads, " ", s.QHeads/s.KVHeads, " ", s.HeadDim, " ", s.HeadDim, " ", s.PageSize, " ", s.TokenBytes, " ", causal, " ", c.window)
	for _, x := range []int64{int64(l.Workers * l.CTAsPerSM), int64(l.CTAsPerSM), int64(l.MaxSplits), int64(l.MaxWaves), int64(l.MinTokens), int64(l.QTile), int64(l.JitterPct),
		l.ItemNS, l.MergeNS, int64(l.MergeFanIn), l.WorkerBytesPerUS, l.SharedBytesPerUS, l.MACsPerUS, l.MergeBytesPerUS} {
		fmt.Fprint(&b, " ", x)
	}
	fmt.Fprint(&b, " ", len(c.kvLen))
	for i := range c.kvLen {
		fmt.Fprint(&b, " ", c.qLen[i], " ", c.kvLen[i])
	}
	fmt.Fprintf(&b, " %d %d %d %016x\n", len(p.Items), len(p.Merges), p.States, h.Sum64())
	return b.String(), nil
}

// The file that the emulator reads holds what package plan computes today.
func TestPlans(t *testing.T) {
	var b strings.Builder
	for _, c := range calls() {
		l, err := line(c)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(l)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s does not hold the plans of package plan: run go test ./kernels/internal/plangolden -update", file)
	}
}
