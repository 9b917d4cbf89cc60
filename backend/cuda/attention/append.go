package attention

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// Appender writes keys and values of new tokens into the cache, rotated on the way, and rotates queries.
type Appender struct {
	cfg    Config
	launch [2]*cuda.Launch // for head dimensions, pairs and strides of whole 16 bytes, and for any
	params abi.AppendParams
}

// Append is what an Appender does for one layer. Strides and addresses of the cache are those of a Layer.
type Append struct {
	Rows      int
	Q, K, V   Ptr // [row][heads][HeadDim], of type Config.Type; Q 0: none. Q is rotated in place
	Positions Ptr // int32 [Rows]; negative: the row is skipped
	// InvFreq is float32 [Pairs]: pair i turns by position·InvFreq[i]. 0 pairs: nothing turns.
	InvFreq     Ptr
	Pairs       int
	Interleaved bool    // pairs are (2i, 2i+1), else (i, i+Pairs)
	Scale       float32 // of cosine and sine: 0 means 1
}

// NewAppender prepares appending to a cache of the Config's shape and addressing. Capacities are not looked at.
func (ks *Kernels) NewAppender(cfg Config) (*Appender, error) {
	cfg.Seqs, cfg.KVLen, cfg.QLen, cfg.Variant, cfg.Checked = max(cfg.Seqs, 1), max(cfg.KVLen, 1), 1, Auto, false
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Appender{cfg: cfg}
	for i, suffix := range [...]string{"", "_any"} {
		f, err := ks.Function(fmt.Sprintf("fd_append_%v_%v%s", cfg.Type, cfg.KVType, suffix))
		if err != nil {
			return nil, err
		}
		if a.launch[i], err = f.NewLaunch(cuda.Arg(&a.params)); err != nil {
			return nil, fmt.Errorf("attention: %w", err)
		}
		a.launch[i].Block = cuda.Dim3{X: 128}
	}
	return a, nil
}

// Run puts the appending of one layer into the stream. Of step it reads addresses, of layer where the cache is.
func (a *Appender) Run(s *Stream, step *Step, layer *Layer, x *Append) error {
	if err := a.check(step, x); err != nil {
		return err
	}
	c, p := &a.cfg, &a.params
	var d abi.DecodeParams
	setStrides(&d, c, layer)
	row, kvRow := uint32(c.HeadDim*c.Type.Bytes()), uint32(c.KVHeads*c.HeadDim*c.Type.Bytes())
	*p = abi.AppendParams{
		Q: uint64(x.Q), QOut: uint64(x.Q), K: uint64(x.K), V: uint64(x.V), KCache: uint64(layer.K), VCache: uint64(layer.V),
		Positions: uint64(x.Positions), QIndptr: uint64(step.QIndptr), InvFreq: uint64(x.InvFreq), KScale: uint64(layer.KScale), VScale: uint64(layer.VScale),
		Rows:         abi.KvRows{PageStride: d.PageStride, SeqStride: d.SeqStride, TokenStride: d.TokenStride, HeadStride: d.HeadStride, PageSize: int32(c.PageSize)},
		QTokenStride: row * uint32(c.QHeads), QHeadStride: row, QOutTokenStride: row * uint32(c.QHeads), QOutHeadStride: row,
		KTokenStride: kvRow, VTokenStride: kvRow, QHeads: int32(c.QHeads), KVHeads: int32(c.KVHeads), KHeadDim: int32(c.HeadDim), VHeadDim: int32(c.HeadDim),
		RopePairs: int32(x.Pairs), Batch: int32(step.Seqs), QLen: int32(max(step.QLen, 1)), RopeScale: x.Scale,
	}
	if x.Scale == 0 {
		p.RopeScale = 1
	}
	if x.Interleaved {
		p.Flags = 1
	}
	switch r := &p.Rows; c.Address {
	case BlockTable:
		r.Table, r.TableIndptr, r.TableStride = uint64(step.Table), uint64(step.TableIndptr), int32(step.TableStride)
	case Flat:
		r.SeqBase = uint64(step.SeqBase)
	case Contiguous:
		r.PageSize = 1 << 30
	}
	l := a.launch[0]
	if x.Pairs%8 != 0 {
		l = a.launch[1]
	}
	l.Grid = cuda.Dim3{X: uint32(x.Rows), Y: 1 + uint32(min(3, 64/x.Rows))} // few rows are spread over more blocks
	if err := l.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}

// check names what is wrong.
func (a *Appender) check(step *Step, x *Append) error {
	switch {
	case x.Rows < 1 || step.Seqs < 1:
		return &CapacityError{"rows to append", int64(min(x.Rows, step.Seqs)), maxKVLen}
	case x.Pairs < 0 || 2*x.Pairs > a.cfg.HeadDim:
		return unsupported("%d pairs of a head of %d dimensions", x.Pairs, a.cfg.HeadDim)
	}
	for _, p := range []struct {
		name  string
		p     Ptr
		align uint64
		need  bool
	}{{"Append.Q", x.Q, 16, false}, {"Append.K", x.K, 16, true}, {"Append.V", x.V, 16, true}, {"Append.Positions", x.Positions, 4, true},
		{"Append.InvFreq", x.InvFreq, 4, x.Pairs > 0}, {"Step.QIndptr", step.QIndptr, 4, false}, {"Step.Table", step.Table, 4, a.cfg.Address == BlockTable},
		{"Step.SeqBase", step.SeqBase, 8, a.cfg.Address == Flat}} {
		if !p.need && p.p == 0 {
			continue
		}
		if err := checkPtr(p.name, p.p, p.align); err != nil {
			return err
		}
	}
	return nil
}

// Copier copies pages.
type Copier struct {
	launch *cuda.Launch
	params abi.CopyPagesParams
}

// NewCopier prepares copying pages.
func (ks *Kernels) NewCopier() (*Copier, error) {
	f, err := ks.Function("fd_copy_pages")
	if err != nil {
		return nil, err
	}
	c := &Copier{}
	if c.launch, err = f.NewLaunch(cuda.Arg(&c.params)); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	c.launch.Block = cuda.Dim3{X: 256}
	return c, nil
}

// Run copies page src[i] of a pool over page dst[i], for pairs of int32 page numbers on the device. No destination may be
// in another pair.
func (c *Copier) Run(s *Stream, pool Ptr, pageBytes int64, dst, src Ptr, pairs int) error {
	if pairs < 1 || pageBytes < 4 || pageBytes%4 != 0 {
		return unsupported("%d copies of pages of %d bytes", pairs, pageBytes)
	}
	c.params = abi.CopyPagesParams{From: uint64(pool), To: uint64(pool), Src: uint64(src), Dst: uint64(dst), PageStride: uint64(pageBytes), PageBytes: uint64(pageBytes)}
	c.launch.Grid = cuda.Dim3{X: uint32(min(128, (pageBytes+16383)/16384)), Y: uint32(pairs)}
	if err := c.launch.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}
