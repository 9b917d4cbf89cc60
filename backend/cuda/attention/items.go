package attention

import (
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/kernels"
	"github.com/flashdecode/flashdecode/plan"
)

// itemPlanner runs package plan's planner on the device, fd_plan: from lengths there, so that a captured graph cuts its
// work anew at every replay.
type itemPlanner struct {
	launch *cuda.Launch
	params abi.PlanParams
}

// loadItems finds the planner, nil if the Plan has no use for it.
func (p *Plan) loadItems() (*itemPlanner, error) {
	c := &p.cfg
	if c.Seqs == 1 || c.Variant == Naive || c.Variant == NoSplit || c.Variant == Split2 || c.Policy.Mode == plan.ModeNone {
		return nil, nil
	}
	f, err := p.ks.Function("fd_plan")
	if errors.Is(err, kernels.ErrNoKernel) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := &itemPlanner{}
	if k.launch, err = f.NewLaunch(cuda.Arg(&k.params)); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	k.launch.Grid, k.launch.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: abi.PlanThreads}
	return k, nil
}

// planLimits are the constants that the planner balances items by: every CTA that is resident is a worker.
func (p *Plan) planLimits() plan.Limits {
	l := p.families[0].limits
	l.Workers, l.CTAsPerSM, l.QTile = p.ks.ctx.Device().SMs, 1, 0
	return l
}

// sizeItems fills what of the planner's arguments the capacities decide.
func (p *Plan) sizeItems() {
	c, l, s := &p.cfg, p.planLimits(), p.cfg.shape()
	k := &p.items.params
	*k = abi.PlanParams{
		Causal: 1, WindowLeft: -1, KVHeads: int32(c.KVHeads), Group: int32(c.group()), HeadDim: int32(c.HeadDim), ValueDim: int32(c.HeadDim),
		PageSize: int32(s.PageSize), TokenBytes: int32(s.TokenBytes), Mode: int32(c.Policy.Mode), N: int32(c.Policy.N),
		UnitCapacity: int32(c.Seqs), ItemCapacity: int32(p.bounds.items), MergeCapacity: int32(p.bounds.merges), StateCapacity: int32(p.bounds.slots),
		Workers: int64(l.Workers), CtasPerSm: int64(l.CTAsPerSM), MaxSplits: int64(l.MaxSplits), MaxWaves: int64(l.MaxWaves), MinTokens: int64(l.MinTokens),
		QTile: int64(l.QTile), JitterPct: int64(l.JitterPct), ItemNs: l.ItemNS, MergeNs: l.MergeNS, MergeFanIn: int64(l.MergeFanIn),
		WorkerBytesPerUs: l.WorkerBytesPerUS, SharedBytesPerUs: l.SharedBytesPerUS, MacsPerUs: l.MACsPerUS, MergeBytesPerUs: l.MergeBytesPerUS,
	}
	if p.fixedTiles() > 0 {
		k.N = int32(p.fixedTiles() * abi.TileTokens)
	}
}

// plannerBytes is the planner's scratch.
func (p *Plan) plannerBytes() int64 { return abi.PlanScratch(p.cfg.Seqs, int(p.bounds.items)) }

// runItems plans the step.
func (p *Plan) runItems(s *Stream) error {
	k, d, l := p.items, &p.params, &p.layout
	k.params.KVLen, k.params.QIndptr = d.KVLen, d.QIndptr
	k.params.Batch, k.params.QLen = int32(p.step.Seqs), int32(p.step.QLen)
	k.params.Items, k.params.Merges = l.items.at(p.workspace), l.merges.at(p.workspace)
	k.params.Header, k.params.Scratch = l.header.at(p.workspace), l.scratch.at(p.workspace)
	if err := k.launch.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	p.planned = true
	return nil
}

// itemParams points the decode kernels at the plan.
func (p *Plan) itemParams() {
	d, k := &p.params, &p.items.params
	d.Items, d.Merges = k.Items, k.Merges
	d.ItemCount, d.MergeCount = k.Header, k.Header+4
}
