package attention

import (
	"errors"
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/plan"
)

// Plan is attention of one shape within capacities: kernels chosen, workspace sized. One goroutine at a time may use it,
// and one stream its workspace.
type Plan struct {
	ks      *Kernels
	cfg     Config
	rowTile int // query rows of a CTA: 8 or 16

	families [2]family    // of kernels without and with the code for options
	merge    *cuda.Launch // of Flash-Decoding in two launches
	naive    *naiveKernels
	fill     *cuda.Launch // prefill
	latent   *cuda.Launch
	check    *checker
	items    *itemPlanner

	bounds bounds
	layout layout

	workspace Ptr
	dirty     bool // a launch failed: the mailbox may hold anything

	params  abi.DecodeParams // the argument block of all decode kernels
	asked   int32            // flags of the step
	step    Step
	maxLen  int   // of the step: how long its sequences may be
	tokens  int64 // and all of them together
	begun   bool
	planned bool    // the step's items are made
	choice  *choice // of the family that params are set for
}

// family is kernels that are alike but for the code for options: windows, softcap, sinks, several query tokens, ragged
// queries and CSR tables. It costs a quarter of a microsecond even where none is used.
type family struct {
	kernels [numKinds][2]*decodeKernel // of 4 and of 8 warps
	limits  plan.Limits                // with the residency of these kernels
	choice  choice
}

// Plan makes a Plan. It fails with an error that is ErrUnsupported or ErrCapacity where no kernel does what is asked.
func (ks *Kernels) Plan(cfg Config) (*Plan, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Plan{ks: ks, cfg: cfg}
	if err := p.load(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.size()
	if err := p.tryCapacity(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.fixParams()
	return p, nil
}

// load finds the kernels.
func (p *Plan) load() (err error) {
	if p.cfg.Variant == Latent {
		p.latent, err = p.loadLatent()
		return errors.Join(err, p.loadChecked())
	}
	if p.cfg.Variant == Prefill {
		p.fill, err = p.loadPrefill()
		return errors.Join(err, p.loadChecked())
	}
	if err := p.loadDecode(); err != nil {
		return err
	}
	if p.cfg.Variant == Naive {
		if p.naive, err = p.loadNaive(); err != nil {
			return err
		}
	}
	if p.merge, err = p.loadMerge(); err != nil {
		return err
	}
	if p.items, err = p.loadItems(); err != nil {
		return err
	}
	return p.loadChecked()
}

// loadChecked finds what checked mode needs.
func (p *Plan) loadChecked() (err error) {
	if p.cfg.Checked {
		p.check, err = p.loadCheck()
	}
	return err
}

// split says that work is split: by a launch that is chosen from several.
func (p *Plan) split() bool { return p.naive == nil && p.fill == nil && p.latent == nil }

// Close gives back what checked mode holds; the workspace is the caller's.
func (p *Plan) Close() error {
	if p.check == nil {
		return nil
	}
	return p.check.fault.Close()
}

// Config returns what the Plan was made for.
func (p *Plan) Config() Config { return p.cfg }

// Limits returns the constants that launches are chosen by, with the device's own residency.
func (p *Plan) Limits() plan.Limits { return p.families[0].limits }

// WorkspaceBytes is exactly what the Plan needs, whatever is run within its capacities.
func (p *Plan) WorkspaceBytes() int64 { return p.layout.bytes }

// Bind hands over the workspace: device memory aligned to 256 bytes. Reset has to follow before the first Run.
func (p *Plan) Bind(workspace Ptr, bytes int64) error {
	if bytes < p.layout.bytes {
		return &WorkspaceError{Need: p.layout.bytes, Have: bytes}
	}
	if p.layout.bytes == 0 {
		return nil
	}
	if err := checkPtr("workspace", workspace, regionAlign); err != nil {
		return err
	}
	p.workspace, p.dirty = workspace, true
	l, d := &p.layout, &p.params
	d.Mailbox, d.Counters = l.mailbox.at(workspace), l.counters.at(workspace)
	d.StateO, d.StateML = l.stateO.at(workspace), l.stateML.at(workspace)
	return nil
}

// Reset makes the workspace ready, in the stream's order: the mailbox empty, counters zero. It is needed once, and after a
// launch that was cut off; when a launch could not even begin, Run does it by itself. It may not be captured with the
// steps that follow, or every replay would do it.
func (p *Plan) Reset(s *Stream) error {
	if p.layout.bytes > 0 && p.workspace == 0 {
		return &WorkspaceError{Need: p.layout.bytes}
	}
	for _, f := range []struct {
		region
		value uint32
	}{{p.layout.mailbox, math.MaxUint32}, {p.layout.counters, 0}} {
		if f.bytes == 0 {
			continue
		}
		if err := s.Fill32(Ptr(f.at(p.workspace)), f.value, f.bytes/4); err != nil {
			return fmt.Errorf("attention: %w", err)
		}
	}
	p.dirty = false
	return nil
}

// fixParams fills what no step and no layer changes.
func (p *Plan) fixParams() {
	c, d := &p.cfg, &p.params
	*d = abi.DecodeParams{
		KVHeads: int32(c.KVHeads), Group: int32(c.group()), HeadDim: int32(c.HeadDim), GroupRcp: abi.Reciprocal(c.group()),
		PageShift: 30, PageSize: int32(c.PageSize), WindowLeft: -1, WindowRight: -1,
	}
	switch {
	case c.Address == Contiguous:
		d.PageSize = 1 << 30
	case c.PageSize&(c.PageSize-1) == 0:
		d.PageShift = int32(abi.CeilLog2(c.PageSize))
	}
}

// tiles is the capacity of a sequence in tiles of tokens.
func (c *Config) tiles() int { return (c.KVLen + abi.TileTokens - 1) / abi.TileTokens }

// fixedTiles is the length of a chunk that the policy Fixed asks for, 0 under other policies: whole pages, as package
// plan has it, and whole tiles.
func (p *Plan) fixedTiles() int {
	if p.cfg.Policy.Mode != plan.ModeFixed {
		return 0
	}
	unit := abi.TileTokens
	if !p.anyPage() && p.cfg.Address != Contiguous {
		unit = max(unit, p.cfg.PageSize)
	}
	return (p.cfg.Policy.N + unit - 1) / unit * (unit / abi.TileTokens)
}

// checkPtr names a bad address.
func checkPtr(name string, v Ptr, align uint64) error {
	if v == 0 || uint64(v)%align != 0 {
		return &PointerError{Name: name, Value: uint64(v), Align: int(align)}
	}
	return nil
}

// checkOptional is checkPtr of an address that may be 0.
func checkOptional(name string, v Ptr, align uint64) error {
	if v == 0 {
		return nil
	}
	return checkPtr(name, v, align)
}
