package attention

import (
	"cmp"
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// naiveKernels are attention in three launches with the scores in memory: what splitting and fusing are compared with.
type naiveKernels struct {
	params                  abi.NaiveParams
	scores, softmax, values *cuda.Launch
}

func (p *Plan) loadNaive() (*naiveKernels, error) {
	k := &naiveKernels{}
	for _, x := range []struct {
		launch **cuda.Launch
		name   string
		block  uint32
	}{
		{&k.scores, fmt.Sprintf("fd_naive_scores_%v", p.cfg.KVType), 128},
		{&k.softmax, "fd_naive_softmax", 256},
		{&k.values, fmt.Sprintf("fd_naive_values_%v", p.cfg.KVType), 256},
	} {
		f, err := p.ks.Function(x.name)
		if err != nil {
			return nil, err
		}
		if *x.launch, err = f.NewLaunch(cuda.Arg(&k.params)); err != nil {
			return nil, fmt.Errorf("attention: %w", err)
		}
		(*x.launch).Block = cuda.Dim3{X: x.block}
	}
	return k, nil
}

// naiveBytes is room for a score of every query token, head and token.
func (p *Plan) naiveBytes() int64 {
	if p.naive == nil {
		return 0
	}
	c := &p.cfg
	return int64(c.Seqs) * int64(c.QLen) * int64(c.QHeads) * int64(c.KVLen) * 4
}

// runNaive attends one layer.
func (p *Plan) runNaive(s *Stream) error {
	k, heads, tokens := p.naive, uint32(p.cfg.QHeads), uint32(cmp.Or(p.step.Rows, p.step.Seqs*p.step.QLen))
	k.params = abi.NaiveParams{D: p.params, Scores: p.layout.scores.at(p.workspace), Room: int64(p.checkedLen()), Batch: int32(p.step.Seqs)}
	if p.cfg.Address == Contiguous {
		k.params.D.PageSize = 0
	}
	k.scores.Grid = cuda.Dim3{X: uint32((k.params.Room + abi.NaiveTokens - 1) / abi.NaiveTokens), Y: heads, Z: tokens}
	k.softmax.Grid, k.values.Grid = cuda.Dim3{X: heads, Y: tokens}, cuda.Dim3{X: heads, Y: tokens}
	if k.params.Room == 0 {
		k.scores.Grid.X, k.params.Room = 1, 1
	}
	for _, l := range [...]*cuda.Launch{k.scores, k.softmax, k.values} {
		if err := l.Run(s); err != nil {
			return fmt.Errorf("attention: %w", err)
		}
	}
	return nil
}
