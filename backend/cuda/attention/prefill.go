package attention

import (
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/kernels"
)

// loadPrefill finds the kernel for many query rows: by warpgroups where the device has them.
func (p *Plan) loadPrefill() (*cuda.Launch, error) {
	dim := abi.PrefillDim(p.cfg.HeadDim)
	threads, shared := abi.PrefillGroupThreads, abi.PrefillGroupShared(dim)
	f, err := p.ks.Function(fmt.Sprintf("fd_prefill_wg_%v_d%d", p.cfg.Type, dim))
	if errors.Is(err, kernels.ErrNoKernel) {
		threads, shared = abi.PrefillThreads(dim), abi.PrefillShared(dim)
		f, err = p.ks.Function(fmt.Sprintf("fd_prefill_%v_d%d", p.cfg.Type, dim))
	}
	if err != nil {
		return nil, err
	}
	if err := f.SetDynamicShared(shared); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	l, err := f.NewLaunch(cuda.Arg(&p.params))
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	l.Block, l.SharedBytes = cuda.Dim3{X: uint32(threads)}, shared
	return l, nil
}

// runPrefill attends one layer: a CTA for each tile of query rows of each sequence and KV head.
func (p *Plan) runPrefill(s *Stream) error {
	tokens := abi.PrefillRows / p.cfg.group()
	p.fill.Grid = cuda.Dim3{X: uint32((p.step.QLen + tokens - 1) / tokens), Y: uint32(p.cfg.KVHeads), Z: uint32(p.step.Seqs)}
	if err := p.fill.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
