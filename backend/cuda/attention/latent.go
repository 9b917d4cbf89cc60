package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// loadLatent finds the kernel of latent attention (MLA, DeepSeek-V2): any number of query heads over one latent KV head.
// Layer.K is the latent cache, Layer.V is not looked at; outputs have LatentValueDim numbers a head.
func (p *Plan) loadLatent() (*cuda.Launch, error) {
	f, err := p.ks.Function(fmt.Sprintf("fd_mla_%v", p.cfg.Type))
	if err != nil {
		return nil, err
	}
	if err := f.SetDynamicShared(abi.LatentShared); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	l, err := f.NewLaunch(cuda.Arg(&p.params))
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	l.Block, l.SharedBytes = cuda.Dim3{X: abi.LatentThreads}, abi.LatentShared
	return l, nil
}

// latentTiles is the tiles of rows of a sequence that brings so many query tokens.
func (p *Plan) latentTiles(qLen int) int {
	return (qLen*p.cfg.QHeads + abi.LatentRows - 1) / abi.LatentRows
}

// latentSplits shares the SMs, one CTA each, among tiles of rows, as long as each CTA has a tile of tokens.
func (p *Plan) latentSplits(tiles, tokens int) int {
	n := p.ks.ctx.Device().SMs / tiles
	return max(1, min(n, abi.LatentSplits, (tokens+abi.LatentTokens-1)/abi.LatentTokens))
}

// sizeLatent lays the workspace out: States for as many CTAs as there ever are.
func (p *Plan) sizeLatent() {
	c, l := &p.cfg, &p.layout
	pairs := int64(c.Seqs * p.latentTiles(c.QLen))
	ctas := max(pairs, int64(p.ks.ctx.Device().SMs))
	l.counters = l.add(4 * pairs)
	l.stateO, l.stateML = l.add(ctas*abi.LatentStateO), l.add(ctas*abi.LatentStateML)
	l.addChecked(c)
}

// runLatent attends one layer.
func (p *Plan) runLatent(s *Stream) error {
	d, l := &p.params, p.latent
	tiles := p.latentTiles(p.step.QLen)
	n := p.latentSplits(tiles*p.step.Seqs, p.maxLen)
	l.Grid = cuda.Dim3{X: uint32(n), Y: uint32(tiles), Z: uint32(p.step.Seqs)}
	d.ChunkTiles, d.Splits = 0, int32(n)
	if l.Cooperative = n > 1 && n*tiles*p.step.Seqs <= p.ks.ctx.Device().SMs; l.Cooperative {
		d.Flags |= abi.FlagResident
	}
	if err := l.Run(s); err != nil {
		p.dirty = true
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
