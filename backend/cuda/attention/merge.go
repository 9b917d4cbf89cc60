package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// loadMerge finds the second launch of Flash-Decoding in two launches, nil if there is none for the shape. As a dependent
// launch it is on its way before the first one has ended, and only waits for its results.
func (p *Plan) loadMerge() (*cuda.Launch, error) {
	name := fmt.Sprintf("fd_merge_states_%v_d%d", p.cfg.Type, p.cfg.dim())
	if !p.has(name) {
		return nil, nil
	}
	f, err := p.ks.Function(name)
	if err != nil {
		return nil, err
	}
	l, err := f.NewLaunch(cuda.Arg(&p.params))
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	l.Block, l.PDL = cuda.Dim3{X: 128}, p.ks.ctx.Device().Major >= 9
	return l, nil
}

// runMerge launches it behind the first.
func (p *Plan) runMerge(s *Stream) error {
	ctas := (int(p.params.StateRows)*abi.RowF4(p.cfg.dim()) + abi.MergeF4 - 1) / abi.MergeF4
	p.merge.Grid = cuda.Dim3{X: uint32(ctas), Y: uint32(p.cfg.KVHeads), Z: uint32(p.step.Seqs << p.choice.rowTilesLog2)}
	if err := p.merge.Run(s); err != nil {
		p.dirty = true
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
