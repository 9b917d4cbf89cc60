package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/plan"
)

// choice is how the current step is launched, and what it was chosen for.
type choice struct {
	valid        bool
	seqs, qLen   int
	kvLen        int
	tokens       int64
	launch       plan.Launch
	kernel       *decodeKernel
	rowTiles     int
	rowTilesLog2 int
	only         uint16 // tests: not what the step and the kernels allow, but these
}

// tryCapacity chooses a launch for the full capacity, so that a Plan which can't run is refused when it is made.
func (p *Plan) tryCapacity() error {
	p.step = Step{Seqs: p.cfg.Seqs, QLen: p.cfg.QLen}
	p.maxLen, p.tokens = p.cfg.KVLen, p.assumedTokens()
	if !p.split() {
		return nil
	}
	if err := p.choose(&p.families[1]); err != nil {
		return err
	}
	return p.choose(&p.families[0])
}

// assumedTokens is what lengths that only the device knows add up to: all capacities, or a quarter if they are known
// to be uneven.
func (p *Plan) assumedTokens() int64 {
	all := min(p.cfg.tokens(), int64(p.cfg.Seqs)*int64(p.cfg.KVLen))
	if p.cfg.Uneven {
		all = min(all, max(int64(p.cfg.KVLen), int64(p.cfg.Seqs)*int64(p.cfg.KVLen)/4))
	}
	return all
}

// Choice tells how the last Run, or before the first a step at full capacity, is launched.
func (p *Plan) Choice() plan.Launch {
	if p.choice == nil {
		return plan.Launch{}
	}
	return p.choice.launch
}

// choose picks the launch of the step among a family's kernels, unless it is the one of the step before.
func (p *Plan) choose(f *family) error {
	c, seqs, qLen, kvLen, tokens := &f.choice, p.step.Seqs, p.step.QLen, p.maxLen, p.tokens
	p.choice = c
	kvLen = (kvLen + abi.TileTokens - 1) / abi.TileTokens * abi.TileTokens
	if c.valid && c.seqs == seqs && c.qLen == qLen && c.kvLen == kvLen && c.tokens == tokens {
		return nil
	}
	rows := qLen * p.cfg.group()
	tiles := (rows + p.rowTile - 1) / p.rowTile
	log2 := abi.CeilLog2(tiles)
	r := plan.LaunchRequest{
		Shape: p.cfg.shape(), Units: seqs << log2, KVLen: kvLen, Rows: min(rows, p.rowTile),
		Slice: min(rows, p.rowTile) * abi.RowF4(p.cfg.dim()), ChunkWarps: 8, ChunkCTAs: int(p.bounds.chunkCTA), Chained: p.cfg.Chained, Only: p.only(f),
	}
	if f.kernels[kindChunk][1] == nil {
		r.ChunkWarps = 4
	}
	if all := int64(seqs) * int64(kvLen); tokens < all-all/8 {
		r.Tokens = tokens << log2 // lengths differ enough to matter
	}
	launch, err := p.launchOf(f, &r)
	if err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	*c = choice{only: c.only, valid: true, seqs: seqs, qLen: qLen, kvLen: kvLen, tokens: tokens, launch: launch, rowTiles: tiles, rowTilesLog2: log2}
	c.kernel = f.kernels[kernelOf(launch.Combine)][launch.Warps/8]
	return nil
}

// kernelOf is the kernel that a combine runs on.
func kernelOf(c plan.Combine) kind {
	switch c {
	case plan.CombineCluster:
		return kindCluster
	case plan.CombineMailbox:
		return kindMailbox
	}
	return kindChunk
}

// only says which combines the variant allows, the kernels exist for and the workspace has room for.
func (p *Plan) only(f *family) (bits uint16) {
	allow := func(c plan.Combine, ok bool) {
		if ok {
			bits |= 1 << c
		}
	}
	v, pol := p.cfg.Variant, p.cfg.Policy.Mode
	if f.choice.only != 0 {
		return f.choice.only
	}
	split1 := v == Auto || v == Split1
	allow(plan.CombineNone, v != Split2 && pol != plan.ModeSplits)
	if v == NoSplit || pol == plan.ModeNone {
		return bits
	}
	resident := func(k kind) bool { return f.kernels[k] != [2]*decodeKernel{} }
	allow(plan.CombineCluster, split1 && resident(kindCluster))
	allow(plan.CombineMailbox, split1 && resident(kindMailbox))
	allow(plan.CombineChunk, split1)
	allow(plan.CombineItems, split1 && p.items != nil)
	allow(plan.CombineSecond, v != Split1 && p.merge != nil)
	return bits
}

// launchOf applies the policy.
func (p *Plan) launchOf(f *family, r *plan.LaunchRequest) (plan.Launch, error) {
	switch n := p.fixedTiles(); {
	case n > 0:
		return p.chunked(r, n), nil
	case p.cfg.Policy.Mode == plan.ModeSplits:
		return p.splits(f, r, p.cfg.Policy.N), nil
	}
	l, err := plan.ChooseLaunch(*r, &f.limits)
	if err != nil && p.cfg.Variant == Split2 { // too short to split: still two launches, of one chunk
		return p.chunked(r, max(p.cfg.tiles(), 1)), nil
	}
	return l, err
}

// chunked is a launch of chunks of n tiles.
func (p *Plan) chunked(r *plan.LaunchRequest, n int) plan.Launch {
	l := plan.Launch{Combine: plan.CombineChunk, Warps: r.ChunkWarps, Chunk: n * abi.TileTokens}
	if p.cfg.Variant == Split2 {
		l.Combine = plan.CombineSecond
	}
	l.Splits = max(1, (r.KVLen+l.Chunk-1)/l.Chunk)
	l.CTAs = l.Splits * r.Units * r.Shape.KVHeads
	return l
}

// splits is a launch of n CTAs a pair: in one launch through a mailbox if all are resident, else in chunks.
func (p *Plan) splits(f *family, r *plan.LaunchRequest, n int) plan.Launch {
	pairs := r.Units * r.Shape.KVHeads
	for w, d := range f.kernels[kindMailbox] {
		if d != nil && n > 1 && r.Only>>plan.CombineMailbox&1 != 0 && pairs*n <= f.limits.Launch.Residency(d.warps).Mailbox &&
			1<<abi.SliceLog2(r.Rows, p.cfg.dim(), n) <= 32*d.warps {
			return plan.Launch{Combine: plan.CombineMailbox, Warps: 4 << w, Splits: n, CTAs: pairs * n}
		}
	}
	tiles := max(1, r.KVLen/abi.TileTokens)
	chunk := (tiles + n - 1) / n
	if most := r.ChunkCTAs / pairs; n > most {
		chunk = (tiles + most - 1) / max(most, 1)
	}
	return p.chunked(r, max(chunk, 1))
}
