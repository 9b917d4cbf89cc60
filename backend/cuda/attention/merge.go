package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda"
)

// loadMerge finds the second launch of Flash-Decoding in two launches, nil if there is none for the shape.
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

// mergeRows is how many rows a CTA of the merge takes: one a warp.
const mergeRows = 4

// runMerge launches it behind the first.
func (p *Plan) runMerge(s *Stream) error {
	rows := int(p.params.StateRows)
	p.merge.Grid = cuda.Dim3{X: uint32((rows + mergeRows - 1) / mergeRows), Y: uint32(p.cfg.KVHeads), Z: uint32(p.step.Seqs << p.choice.rowTilesLog2)}
	if err := p.merge.Run(s); err != nil {
		p.dirty = true
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
