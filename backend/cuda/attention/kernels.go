package attention

import (
	"errors"
	"fmt"
	"maps"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/kernels"
	"github.com/flashdecode/flashdecode/plan"
)

type (
	// Context is a device that is open (package cuda of this module's backend).
	Context = cuda.Context
	// Stream is a queue of work on a device.
	Stream = cuda.Stream
	// Ptr is a device address.
	Ptr = cuda.Ptr
)

// Kernels are the attention kernels of a device. They are loaded as Plans ask for them. Not safe for concurrent use, nor
// are Plans.
type Kernels struct {
	ctx     *Context
	limits  plan.Limits // of the device, without residency
	find    finder
	modules map[string]*cuda.Module // by image
	found   map[string]*cuda.Function
	hashes  map[string]string
}

// finder says which image has a function.
type finder func(function string) (*image, error)

type image struct {
	name, hash string
	load       func() ([]byte, error)
}

// Load readies the kernels that were compiled for the device. Where none were, the driver compiles portable ones, which
// takes seconds the first time.
func Load(ctx *Context) (*Kernels, error) {
	m, err := kernels.Read()
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	capability := kernels.Capability{Major: ctx.Device().Major, Minor: ctx.Device().Minor}
	if _, err := m.Units(capability); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	return newKernels(ctx, func(function string) (*image, error) {
		im, _, err := m.Find(capability, function)
		if err != nil {
			return nil, err
		}
		return &image{im.Name(), im.SHA256, im.Load}, nil
	}), nil
}

// LoadImage is Load with other machine code, one image of all functions: of a build that is being tried out, or of a
// test.
func LoadImage(ctx *Context, code []byte) *Kernels {
	im := &image{"image", kernels.Hash(code), func() ([]byte, error) { return code, nil }}
	return newKernels(ctx, func(string) (*image, error) { return im, nil })
}

func newKernels(ctx *Context, find finder) *Kernels {
	return &Kernels{ctx: ctx, limits: deviceLimits(ctx.Device()), find: find,
		modules: map[string]*cuda.Module{}, found: map[string]*cuda.Function{}, hashes: map[string]string{}}
}

// Close unloads the kernels. Plans made of them are dead, and none of their work may be under way.
func (ks *Kernels) Close() error {
	var errs []error
	for _, m := range ks.modules {
		errs = append(errs, m.Close())
	}
	clear(ks.modules)
	clear(ks.found)
	return errors.Join(errs...)
}

// Context returns the device's context.
func (ks *Kernels) Context() *Context { return ks.ctx }

// Images returns the hashes of the images that were loaded, by name (kernels.Image.Name).
func (ks *Kernels) Images() map[string]string { return maps.Clone(ks.hashes) }

// Function returns a kernel by its symbol. Where there is none the error is kernels.ErrNoKernel.
func (ks *Kernels) Function(symbol string) (*cuda.Function, error) {
	if f := ks.found[symbol]; f != nil {
		return f, nil
	}
	im, err := ks.find(symbol)
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	m := ks.modules[im.name]
	if m == nil {
		code, err := im.load()
		if err != nil {
			return nil, fmt.Errorf("attention: %w", err)
		}
		if m, err = ks.ctx.LoadModule(code); err != nil {
			return nil, fmt.Errorf("attention: image %s: %w", im.name, err)
		}
		ks.modules[im.name], ks.hashes[im.name] = m, im.hash
	}
	f, err := m.Function(symbol)
	if e := (*cuda.Error)(nil); errors.As(err, &e) && e.Call == "cuModuleGetFunction" && errors.Is(err, cuda.ErrNoKernel) {
		return nil, fmt.Errorf("attention: %w: %w", kernels.ErrNoKernel, err)
	}
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	ks.found[symbol] = f
	return f, nil
}

// deviceLimits are the constants of the nearest device that was measured, scaled to this one's SMs and bandwidth.
func deviceLimits(dev *cuda.Device) plan.Limits {
	l, sms, peak := plan.H200(), 132, 4.8e12
	if dev.Major < 9 {
		l, sms, peak = plan.A100(), 108, 2.039e12
	}
	l.Name, l.Workers = dev.Name, dev.SMs
	if have := dev.PeakBytesPerSecond(); have > 1e10 && (have < 0.9*peak || have > 1.1*peak) {
		share := have / peak
		l.Launch.BytesPerUS = max(1, int64(float64(l.Launch.BytesPerUS)*share))
		l.SharedBytesPerUS = max(1, int64(float64(l.SharedBytesPerUS)*share))
		l.WorkerBytesPerUS = max(1, int64(float64(l.WorkerBytesPerUS)*share*float64(sms)/float64(dev.SMs)))
	}
	l.Launch.W4, l.Launch.W8 = plan.Residency{}, plan.Residency{}
	return l
}

// decodeKernel is one of the kernels of a Plan.
type decodeKernel struct {
	launch *cuda.Launch
	warps  int
}

// kind is the combine that a kernel is compiled for.
type kind int

const (
	kindCluster kind = iota
	kindMailbox
	kindChunk
	numKinds
)

var kindNames = [numKinds]string{"cluster", "mailbox", "chunk"}

// symbol is the name of a decode kernel, as kernels/attention/params.h has it.
func symbol(name string, kv Type, dim, n, warps, options int) string {
	s := fmt.Sprintf("fd_decode_%s_%v_d%d_n%d_w%d", name, kv, dim, n, warps)
	if options == 1 {
		s += "_opt"
	}
	return s
}

// loadDecode finds the decode kernels of the Plan's shape and how many of their CTAs the device holds.
func (p *Plan) loadDecode() error {
	c := &p.cfg
	if p.rowTile = 8; c.rows() > 8 && p.has(symbol(p.chunkName(), c.KVType, c.dim(), 16, 8, 1)) {
		p.rowTile = 16
	}
	for options := range p.families {
		f := &p.families[options]
		f.limits = p.ks.limits
		for k := range numKinds {
			for w, warps := range [...]int{4, 8} {
				if err := p.loadKernel(f, k, w, warps, options); err != nil {
					return err
				}
			}
		}
	}
	if p.families[1].kernels[kindChunk] == [2]*decodeKernel{} {
		return unsupported("%v of head dim %d on %s: no kernel was compiled", c.KVType, c.HeadDim, p.ks.ctx.Device().Name)
	}
	if p.families[0].kernels[kindChunk] == [2]*decodeKernel{} { // pages of any size: with options or not at all
		p.families[0].kernels, p.families[0].limits = p.families[1].kernels, p.families[1].limits
	}
	return nil
}

// chunkName is the kernel that takes any page size, where the fast one can't.
func (p *Plan) chunkName() string {
	if p.anyPage() {
		return "any"
	}
	return kindNames[kindChunk]
}

// anyPage says that a tile of tokens may lie in several pages.
func (p *Plan) anyPage() bool {
	s := p.cfg.PageSize
	return p.cfg.Address != Contiguous && (s < abi.TileTokens || s&(s-1) != 0)
}

func (p *Plan) has(symbol string) bool {
	_, err := p.ks.Function(symbol)
	return err == nil
}

func (p *Plan) loadKernel(f *family, k kind, w, warps, options int) error {
	c, dev := &p.cfg, p.ks.ctx.Device()
	name := kindNames[k]
	if k == kindChunk {
		name = p.chunkName()
	}
	if k != kindChunk && p.anyPage() || k == kindCluster && !dev.Clusters || k == kindMailbox && !dev.Cooperative {
		return nil
	}
	fn, err := p.ks.Function(symbol(name, c.KVType, c.dim(), p.rowTile, warps, options))
	if errors.Is(err, kernels.ErrNoKernel) {
		return nil
	}
	if err != nil {
		return err
	}
	rowBytes := c.dim() * c.KVType.Bytes()
	shared := abi.DecodeShared(rowBytes, c.dim(), p.rowTile, warps, abi.DecodeStages(rowBytes, warps))
	if shared+fn.SharedBytes > dev.SharedPerBlockBytes {
		return nil // a smaller device of the same architecture
	}
	if err := fn.SetDynamicShared(dev.SharedPerBlockBytes - fn.SharedBytes); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	l, err := fn.NewLaunch(cuda.Arg(&p.params))
	if err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	l.Block, l.SharedBytes, l.PDL = cuda.Dim3{X: uint32(32 * warps)}, shared, c.Chained
	d := &decodeKernel{launch: l, warps: warps}
	fits, err := d.residency(k, f.limits.Launch.Residency(warps), fn, dev)
	if err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	if fits {
		f.kernels[k][w] = d
	}
	return nil
}

// residency asks how many CTAs run at a time, with no more than one on an SM: two would share its memory pipe, and the
// cost model counts in SMs. A launch that is allowed to leave SMs with two and others with none would be slower.
func (d *decodeKernel) residency(k kind, r *plan.Residency, fn *cuda.Function, dev *cuda.Device) (fits bool, err error) {
	l := d.launch
	if k != kindCluster {
		n, err := fn.MaxBlocksPerSM(32*d.warps, l.SharedBytes)
		if err != nil || n == 0 {
			return false, err
		}
		if k == kindMailbox {
			r.Mailbox = dev.SMs
		} else {
			r.CTAs = dev.SMs
		}
		return true, nil
	}
	if err := fn.AllowLargeClusters(); err != nil {
		return false, err
	}
	shared := l.SharedBytes
	l.SharedBytes = max(shared, min(dev.SharedPerSMBytes/2+1024, dev.SharedPerBlockBytes-fn.SharedBytes))
	defer func() { l.SharedBytes, l.Cluster = shared, cuda.Dim3{} }()
	for i := range r.Clusters {
		size := uint32(1) << i
		l.Grid, l.Cluster = cuda.Dim3{X: size, Y: uint32(dev.SMs)}, cuda.Dim3{X: size}
		n, err := l.MaxClusters()
		if errors.Is(err, cuda.ErrTooLarge) || errors.Is(err, cuda.ErrInvalid) {
			break // the device has no clusters of this size
		}
		if err != nil {
			return false, err
		}
		r.Clusters[i] = min(n, dev.SMs>>i)
		fits = fits || n > 0
	}
	return fits, nil
}
