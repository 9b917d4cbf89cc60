package fake

import (
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
	"github.com/flashdecode/flashdecode/plan"
)

// Plan is fd_plan: package plan itself.
func Plan() []Kernel {
	return []Kernel{{"fd_plan", cudatest.Kernel{Params: []int{sizeOf[abi.PlanParams]()}, MaxThreads: abi.PlanThreads, Run: makePlan}}}
}

// Planned is what package plan makes of a launch's arguments and lengths.
func Planned(p *abi.PlanParams, qLens, kvLens []int32) (*plan.Plan, error) {
	shape := plan.Shape{QHeads: int(p.KVHeads * p.Group), KVHeads: int(p.KVHeads), HeadDim: int(p.HeadDim), ValueDim: int(p.ValueDim),
		PageSize: int(p.PageSize), TokenBytes: int(p.TokenBytes), Causal: p.Causal != 0}
	lim := plan.Limits{Name: "fake", Workers: int(p.Workers / p.CtasPerSm), CTAsPerSM: int(p.CtasPerSm), MaxSplits: int(p.MaxSplits), MaxWaves: int(p.MaxWaves),
		MinTokens: int(p.MinTokens), QTile: int(p.QTile), JitterPct: int(p.JitterPct), ItemNS: p.ItemNs, MergeNS: p.MergeNs, MergeFanIn: int(p.MergeFanIn),
		WorkerBytesPerUS: p.WorkerBytesPerUs, SharedBytesPerUS: p.SharedBytesPerUs, MACsPerUS: p.MacsPerUs, MergeBytesPerUS: p.MergeBytesPerUs}
	var seqs []plan.Seq
	for b, n := range kvLens {
		s := plan.Seq{QLen: qLens[b], KVLen: n}
		if p.WindowLeft >= 0 {
			s.First = min(max(0, n-s.QLen-p.WindowLeft), n)
		}
		seqs = append(seqs, s)
	}
	var pl plan.Planner
	dst := &plan.Plan{}
	return dst, pl.Plan(dst, shape, seqs, lim, plan.Policy{Mode: plan.Mode(p.Mode), N: int(p.N)})
}

func makePlan(c *cudatest.Call) {
	p := cudatest.Arg[abi.PlanParams](c, 0)
	n := int(p.Batch)
	qLens := make([]int32, n)
	for b := range qLens {
		if qLens[b] = p.QLen; p.QIndptr != 0 {
			at := int32s(c, p.QIndptr, b, 2)
			qLens[b] = at[1] - at[0]
		}
	}
	got, err := Planned(&p, qLens, int32s(c, p.KVLen, 0, n))
	if err != nil {
		refuse("fd_plan: %v", err)
	}
	if len(got.Items) > int(p.ItemCapacity) || len(got.Merges) > int(p.MergeCapacity) || got.States > int(p.StateCapacity) || n > int(p.UnitCapacity) {
		refuse("fd_plan: %d items, %d merges, %d States of %d sequences in room for %d, %d, %d, %d", len(got.Items), len(got.Merges), got.States, n,
			p.ItemCapacity, p.MergeCapacity, p.StateCapacity, p.UnitCapacity)
	}
	cudatest.Store(c, driver.Ptr(p.Items), got.Items)
	cudatest.Store(c, driver.Ptr(p.Merges), got.Merges)
	cudatest.Store(c, driver.Ptr(p.Header), []abi.PlanHeader{{ItemCount: int32(len(got.Items)), MergeCount: int32(len(got.Merges)), States: int32(got.States)}})
	c.Write(driver.Ptr(p.Scratch), make([]byte, abi.PlanScratch(int(p.UnitCapacity), int(p.ItemCapacity))))
}
