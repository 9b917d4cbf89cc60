package attention

import (
	"cmp"
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/plan"
)

// Step is what the layers of a step share. Arrays are of int32 on the device and must not change until the last layer
// has run.
type Step struct {
	Seqs    int // sequences: at most Config.Seqs
	QLen    int // most query tokens of a sequence: 0 means 1
	KVLen   Ptr // [Seqs] tokens of each sequence, those of the queries included; 0 is valid
	QIndptr Ptr // [Seqs+1] where each sequence's queries begin; 0: QLen each
	Rows    int // query tokens of all sequences, if there is a QIndptr: checked mode lets no more be touched; 0: Seqs·QLen

	Table       Ptr // page numbers, if the mode is BlockTable
	TableIndptr Ptr // [Seqs+1] where each sequence's begin; 0: rows of TableStride
	TableStride int
	SeqBase     Ptr // uint64 [Seqs] addresses, if the mode is Flat

	// Lens are the lengths, if the host knows them, and MaxLen a bound of them: the launch is then chosen for them
	// instead of for Config.KVLen. Both are promises: leave them out of a step that is captured to be replayed at
	// lengths beyond.
	Lens   []int32
	MaxLen int
	// Fresh is, in a chain, how many last tokens of each sequence the launch before may still be writing. 0 means
	// QLen, what a step appends.
	Fresh int
}

// Layer is what Run attends. Strides are in bytes; 0 is that of dense data, K and V apart from each other, in a page
// [KVHeads][PageSize][HeadDim], or Contiguous [token][KVHeads][HeadDim].
type Layer struct {
	Q, Out             Ptr // [query token][QHeads][HeadDim]
	LSE                Ptr // float32 [query token][QHeads], natural log; 0: not wanted
	K, V               Ptr // of the first page, of the first sequence, or offsets from SeqBase
	QStride, OutStride int // from query token to query token

	PageStride, SeqStride   int64
	HeadStride, TokenStride int

	KScale, VScale Ptr     // float32 [KVHeads], of E4M3; 0: 1
	Sinks          Ptr     // float32 [QHeads] logits that join the denominator; 0: none
	Scale          float32 // of ⟨q,k⟩; 0 means 1/√HeadDim
	Softcap        float32 // 0: none
	Window         *attn.Window
	NotCausal      bool // a query token also attends those after it
}

// Begin takes the step that the following Runs belong to, checks it, and puts into the stream what has to run once a
// step: the check of tables in checked mode, the planner where work is cut on the device.
func (p *Plan) Begin(s *Stream, step *Step) error {
	p.begun, p.planned = false, false
	if err := p.prepare(step); err != nil {
		return err
	}
	if p.dirty {
		if err := p.Reset(s); err != nil {
			return err
		}
	}
	if p.check != nil {
		if err := p.runCheck(s); err != nil {
			return err
		}
	}
	if p.choice != nil && p.choice.launch.Combine == plan.CombineItems {
		if err := p.runItems(s); err != nil {
			return err
		}
	}
	p.begun = true
	return nil
}

// prepare is what Begin does without the device.
func (p *Plan) prepare(step *Step) error {
	if p.layout.bytes > 0 && p.workspace == 0 {
		return &WorkspaceError{Need: p.layout.bytes}
	}
	p.step = *step
	if p.step.QLen == 0 {
		p.step.QLen = 1
	}
	if err := p.checkStep(); err != nil {
		return err
	}
	p.stepParams()
	if !p.split() {
		return nil
	}
	return p.use(p.familyOf(p.params.Flags & abi.FlagOptions))
}

// familyOf is the kernels that layers need whose options are as given: 0 for none.
func (p *Plan) familyOf(options int32) *family {
	if options != 0 {
		return &p.families[1]
	}
	return &p.families[0]
}

// use sets the launch up for a family's kernels.
func (p *Plan) use(f *family) error {
	if err := p.choose(f); err != nil {
		return err
	}
	p.launchParams()
	return nil
}

// checkStep names the first thing that is wrong with the step, and notes how long its sequences may be.
func (p *Plan) checkStep() error {
	c, st := &p.cfg, &p.step
	switch {
	case st.Seqs < 1 || st.Seqs > c.Seqs:
		return &CapacityError{"sequences", int64(st.Seqs), int64(c.Seqs)}
	case st.QLen < 1 || st.QLen > c.QLen:
		return &CapacityError{"query tokens of a sequence", int64(st.QLen), int64(c.QLen)}
	case st.MaxLen < 0 || st.MaxLen > c.KVLen:
		return &CapacityError{"tokens (Step.MaxLen)", int64(st.MaxLen), int64(c.KVLen)}
	case st.Lens != nil && len(st.Lens) != st.Seqs:
		return unsupported("%d lengths for %d sequences", len(st.Lens), st.Seqs)
	case st.Rows < 0 || st.Rows > st.Seqs*st.QLen:
		return &CapacityError{"query tokens of all sequences", int64(st.Rows), int64(st.Seqs * st.QLen)}
	case st.TableStride < 0 || st.Fresh < 0:
		return unsupported("table stride %d and %d fresh tokens: want 0 or more", st.TableStride, st.Fresh)
	}
	if err := p.checkStepPtrs(); err != nil {
		return err
	}
	p.maxLen = cmp.Or(st.MaxLen, c.KVLen)
	p.tokens = min(int64(st.Seqs)*int64(p.maxLen), p.assumedTokens())
	if st.Lens == nil {
		return nil
	}
	return p.checkLens(p.maxLen)
}

func (p *Plan) checkStepPtrs() error {
	st := &p.step
	if err := checkPtr("Step.KVLen", st.KVLen, 4); err != nil {
		return err
	}
	if err := checkOptional("Step.QIndptr", st.QIndptr, 4); err != nil {
		return err
	}
	switch p.cfg.Address {
	case BlockTable:
		if err := checkPtr("Step.Table", st.Table, 4); err != nil {
			return err
		}
		if st.TableIndptr == 0 && st.TableStride < 1 {
			return unsupported("a block table without Step.TableIndptr needs Step.TableStride")
		}
		return checkOptional("Step.TableIndptr", st.TableIndptr, 4)
	case Flat:
		return checkPtr("Step.SeqBase", st.SeqBase, 8)
	}
	return nil
}

// checkLens looks at lengths that the host knows.
func (p *Plan) checkLens(bound int) error {
	p.maxLen, p.tokens = 0, 0
	for b, n := range p.step.Lens {
		if n < 0 || int(n) > bound {
			return &CapacityError{fmt.Sprintf("tokens in sequence %d", b), int64(n), int64(bound)}
		}
		p.maxLen, p.tokens = max(p.maxLen, int(n)), p.tokens+int64(n)
	}
	if most := p.cfg.tokens(); p.tokens > most {
		return &CapacityError{"tokens in all sequences", p.tokens, most}
	}
	return nil
}

// stepParams fills the argument block with what the step decides.
func (p *Plan) stepParams() {
	st, d := &p.step, &p.params
	d.KVLen, d.QIndptr, d.QLen = uint64(st.KVLen), uint64(st.QIndptr), int32(st.QLen)
	d.Table, d.TableIndptr, d.TableStride = uint64(st.Table), uint64(st.TableIndptr), int32(st.TableStride)
	d.SeqBase = 0
	switch p.cfg.Address {
	case Flat:
		d.Table, d.TableIndptr, d.SeqBase = 0, 0, uint64(st.SeqBase)
	case Contiguous:
		d.Table, d.TableIndptr = 0, 0
	}
	p.asked, d.FreshTokens = 0, int32(st.Fresh)
	if p.cfg.Chained {
		p.asked |= abi.FlagEarlyKV
		if st.Fresh == 0 {
			d.FreshTokens = int32(st.QLen)
		}
	}
	d.Items, d.Merges, d.ItemCount, d.MergeCount = 0, 0, 0, 0
	d.WindowLeft, d.WindowRight = -1, -1
	d.SetFlags(p.asked)
}

// launchParams fills what the choice of a launch decides.
func (p *Plan) launchParams() {
	st, d, ch := &p.step, &p.params, p.choice
	rows := min(st.QLen*p.cfg.group(), p.rowTile)
	l := &ch.launch
	d.Splits, d.RowTilesLog2, d.StateRows = int32(l.Splits), int32(ch.rowTilesLog2), int32(rows)
	switch l.Combine {
	case plan.CombineCluster, plan.CombineMailbox:
		slice := abi.SliceLog2(rows, p.cfg.dim(), l.Splits)
		d.SliceLog2, d.BoxStride = int32(slice), uint64(abi.BoxBytes(rows, p.cfg.dim(), l.Splits, slice))
	case plan.CombineNone:
		d.ChunkTiles = int32(p.cfg.tiles()) // also right for lengths beyond those of this step
	default:
		d.ChunkTiles = int32(l.Chunk / abi.TileTokens)
	}
	if ch.kernel != nil {
		p.shapeLaunch(ch.kernel.launch)
	}
}

// shapeLaunch sets the grid.
func (p *Plan) shapeLaunch(l *cuda.Launch) {
	ch := p.choice
	l.Grid = cuda.Dim3{X: uint32(ch.launch.Splits), Y: uint32(p.cfg.KVHeads), Z: uint32(p.step.Seqs << ch.rowTilesLog2)}
	l.Cluster, l.Cooperative = cuda.Dim3{}, false
	switch ch.launch.Combine {
	case plan.CombineCluster:
		l.Cluster = cuda.Dim3{X: uint32(ch.launch.Splits), Y: 1, Z: 1}
	case plan.CombineMailbox:
		l.Cooperative = true
	case plan.CombineItems:
		l.Grid = cuda.Dim3{X: uint32(p.bounds.items), Y: uint32(ch.rowTiles), Z: 1}
	}
}

// Run attends one layer of the step.
func (p *Plan) Run(s *Stream, layer *Layer) error {
	if !p.begun {
		return unsupported("Run without Begin")
	}
	if err := p.layerParams(layer); err != nil {
		return err
	}
	if p.naive != nil {
		return p.runNaive(s)
	}
	if p.fill != nil {
		return p.runPrefill(s)
	}
	if p.latent != nil {
		return p.runLatent(s)
	}
	if p.dirty {
		if err := p.Reset(s); err != nil {
			return err
		}
	}
	if p.choice.launch.Combine == plan.CombineItems && !p.planned { // only now a layer came that wants it
		if err := p.runItems(s); err != nil {
			return err
		}
	}
	if err := p.choice.kernel.launch.Run(s); err != nil {
		p.dirty = true
		return fmt.Errorf("attention: %w", err)
	}
	if p.choice.launch.Combine != plan.CombineSecond {
		return nil
	}
	return p.runMerge(s)
}

// layerParams checks the layer and fills the argument block.
func (p *Plan) layerParams(layer *Layer) error {
	if err := p.checkLayer(layer); err != nil {
		return err
	}
	c, d := &p.cfg, &p.params
	d.Q, d.Out, d.LSE = uint64(layer.Q), uint64(layer.Out), uint64(layer.LSE)
	d.K, d.V = uint64(layer.K), uint64(layer.V)
	row := c.QHeads * c.HeadDim * c.Type.Bytes()
	d.QTokenStride, d.OutTokenStride = uint32(cmp.Or(layer.QStride, row)), uint32(cmp.Or(layer.OutStride, row))
	if p.latent != nil {
		d.V, d.OutTokenStride = d.K, uint32(cmp.Or(layer.OutStride, c.QHeads*LatentValueDim*c.Type.Bytes()))
	}
	setStrides(d, c, layer)
	d.KScale, d.VScale, d.Sinks = uint64(layer.KScale), uint64(layer.VScale), uint64(layer.Sinks)
	scale := float64(layer.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(c.HeadDim))
	}
	d.ScaleLog2, d.Softcap = float32(scale*math.Log2E), layer.Softcap
	d.WindowLeft, d.WindowRight = -1, -1
	if w := layer.Window; w != nil {
		d.WindowLeft, d.WindowRight = window(w.Left), window(w.Right)
	}
	asked := p.asked
	if !layer.NotCausal {
		asked |= abi.FlagCausal
	}
	if p.split() {
		d.SetFlags(asked)
		options := d.Flags & abi.FlagOptions
		if d.Softcap > 0 || d.Sinks != 0 {
			options = 1
		}
		if f := p.familyOf(options); &f.choice != p.choice {
			if err := p.use(f); err != nil {
				return err
			}
		}
		switch d.Items, d.Merges, d.ItemCount, d.MergeCount = 0, 0, 0, 0; p.choice.launch.Combine {
		case plan.CombineSecond:
			asked |= abi.FlagPartials
		case plan.CombineItems:
			p.itemParams()
		}
	}
	d.SetFlags(asked)
	return nil
}

// window is a side of a window as kernels take it: they have no use for more than any sequence's length.
func window(side int) int32 {
	if side < 0 {
		return -1
	}
	return int32(min(side, maxKVLen))
}

// setStrides fills in dense ones where the layer gives none.
func setStrides(d *abi.DecodeParams, c *Config, layer *Layer) {
	row := c.HeadDim * c.KVType.Bytes()
	head, token := cmp.Or(layer.HeadStride, row*c.PageSize), cmp.Or(layer.TokenStride, row)
	page, seq := layer.PageStride, layer.SeqStride
	if c.Address == Contiguous {
		head, token = cmp.Or(layer.HeadStride, row), cmp.Or(layer.TokenStride, row*c.KVHeads)
		seq = cmp.Or(seq, int64(token)*int64(c.KVLen))
	} else {
		page, seq = cmp.Or(page, int64(row)*int64(c.PageSize)*int64(c.KVHeads)), 0
	}
	d.HeadStride, d.TokenStride = uint32(head), uint32(token)
	d.PageStride, d.SeqStride = uint64(page), uint64(seq)
}

// checkLayer names the first address or number that kernels can't use. Their copies are of 16 bytes.
func (p *Plan) checkLayer(y *Layer) error {
	if err := checkPtr("Layer.Q", y.Q, 16); err != nil {
		return err
	}
	if err := checkPtr("Layer.Out", y.Out, 16); err != nil {
		return err
	}
	if p.cfg.Address != Flat { // there they are offsets, of which 0 is one
		if err := checkPtr("Layer.K", y.K, 16); err != nil {
			return err
		}
		if p.latent != nil { // the value is a part of K
			y.V = y.K
		}
		if err := checkPtr("Layer.V", y.V, 16); err != nil {
			return err
		}
	}
	strides := uint64(y.K) | uint64(y.V) | uint64(y.PageStride) | uint64(y.SeqStride) | uint64(y.HeadStride) | uint64(y.TokenStride) |
		uint64(y.QStride) | uint64(y.OutStride)
	if strides%16 != 0 {
		return unsupported("strides %d, %d, %d, %d of K and V, %d and %d of queries and outputs: want multiples of 16 bytes",
			y.PageStride, y.SeqStride, y.HeadStride, y.TokenStride, y.QStride, y.OutStride)
	}
	if most := max(y.HeadStride, y.TokenStride, y.QStride, y.OutStride); most > math.MaxUint32 || min(y.HeadStride, y.TokenStride, y.QStride, y.OutStride) < 0 {
		return unsupported("strides of tokens and heads of up to %d bytes: want 0 to %d", most, uint32(math.MaxUint32))
	}
	if (uint64(y.LSE)|uint64(y.KScale)|uint64(y.VScale)|uint64(y.Sinks))%4 != 0 {
		return &PointerError{Name: "one of Layer.LSE, KScale, VScale, Sinks", Value: uint64(y.LSE | y.KScale | y.VScale | y.Sinks), Align: 4}
	}
	if x := y.Scale + y.Softcap; x-x != 0 || y.Softcap < 0 {
		return unsupported("scale %v and softcap %v: want finite numbers, the softcap positive, or 0 for none", y.Scale, y.Softcap)
	}
	return nil
}

// Args returns the argument block of the last Run: what a reference has to compute.
func (p *Plan) Args() abi.DecodeParams { return p.params }
