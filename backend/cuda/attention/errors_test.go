package attention

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
	"github.com/flashdecode/flashdecode/kernels"
	"github.com/flashdecode/flashdecode/plan"
)

func okConfig() Config {
	return Config{QHeads: 8, KVHeads: 2, HeadDim: 64, PageSize: 16, Seqs: 2, KVLen: 300}
}

func TestBadConfigs(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		edit func(*Config)
		is   error
		says string
	}{
		{func(c *Config) { c.HeadDim = 100 }, ErrUnsupported, "head dim 100: want a multiple of 8"},
		{func(c *Config) { c.HeadDim = 264 }, ErrUnsupported, "up to 256"},
		{func(c *Config) { c.HeadDim = 0 }, ErrUnsupported, "head dim 0"},
		{func(c *Config) { c.HeadDim, c.KVType = 72, E4M3 }, ErrUnsupported, "multiple of 16"},
		{func(c *Config) { c.QHeads = 7 }, ErrUnsupported, "7 query heads over 2 KV heads"},
		{func(c *Config) { c.KVHeads = 0 }, ErrUnsupported, "0 KV heads"},
		{func(c *Config) { c.Type = E4M3 }, ErrUnsupported, "queries of type e4m3"},
		{func(c *Config) { c.KVType = F16 }, ErrUnsupported, "K and V of type f16 with queries of type bf16"},
		{func(c *Config) { c.Type, c.KVType = F16, E4M3 }, ErrUnsupported, "or e4m3 with bf16"},
		{func(c *Config) { c.PageSize = 0 }, ErrUnsupported, "page size 0"},
		{func(c *Config) { c.Address = 9 }, ErrUnsupported, "Address(9)"},
		{func(c *Config) { c.Variant = 9 }, ErrUnsupported, "Variant(9)"},
		{func(c *Config) { c.Seqs = 0 }, ErrCapacity, "0 sequences: want 1 to 32768"},
		{func(c *Config) { c.QLen = 9 }, ErrCapacity, "want 1 to 8"},
		{func(c *Config) { c.KVLen = -1 }, ErrCapacity, "-1 tokens"},
		{func(c *Config) { c.Entries = -1 }, ErrCapacity, "table entries"},
		{func(c *Config) { c.Checked = true }, ErrUnsupported, "set it to the number of pages"},
		{func(c *Config) { c.Checked, c.Pages, c.Chained = true, 1, true }, ErrUnsupported, "leave one out"},
		{func(c *Config) { c.Variant, c.Policy = NoSplit, plan.Fixed(64) }, ErrUnsupported, "nosplit with policy fixed:64"},
	} {
		cfg := okConfig()
		c.edit(&cfg)
		p, err := r.ks.Plan(cfg)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, %v; want %v, %q", cfg, p, err, c.is, c.says)
		}
	}
}

func TestBadSteps(t *testing.T) {
	r := newRig(t)
	s := scene{cfg: okConfig(), lens: []int32{40, 50}}
	s.build(r, 1)
	p := r.plan(s.cfg)
	for _, c := range []struct {
		edit func(*Step)
		is   error
		says string
	}{
		{func(s *Step) { s.Seqs = 3 }, ErrCapacity, "3 sequences: want 1 to 2; more need a Plan of larger capacity"},
		{func(s *Step) { s.Seqs = 0 }, ErrCapacity, "0 sequences"},
		{func(s *Step) { s.QLen = 2 }, ErrCapacity, "2 query tokens of a sequence: want 1 to 1"},
		{func(s *Step) { s.MaxLen = 301 }, ErrCapacity, "301 tokens (Step.MaxLen)"},
		{func(s *Step) { s.Lens = []int32{301, 1} }, ErrCapacity, "301 tokens in sequence 0: want 1 to 300"},
		{func(s *Step) { s.Lens = []int32{1, -1} }, ErrCapacity, "-1 tokens in sequence 1"},
		{func(s *Step) { s.Lens = []int32{1} }, ErrUnsupported, "1 lengths for 2"},
		{func(s *Step) { s.KVLen = 0 }, ErrPointer, "Step.KVLen is null"},
		{func(s *Step) { s.KVLen += 2 }, ErrPointer, "not a multiple of 4"},
		{func(s *Step) { s.QIndptr = 6 }, ErrPointer, "Step.QIndptr"},
		{func(s *Step) { s.Table = 0 }, ErrPointer, "Step.Table is null"},
		{func(s *Step) { s.TableIndptr = 3 }, ErrPointer, "Step.TableIndptr"},
		{func(s *Step) { s.TableStride = 0 }, ErrUnsupported, "needs Step.TableStride"},
		{func(s *Step) { s.TableStride = -1 }, ErrUnsupported, "table stride -1"},
	} {
		step := s.step
		c.edit(&step)
		if err := p.Begin(r.stream, &step); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; want %v, %q", step, err, c.is, c.says)
		}
		if err := p.Run(r.stream, &s.layer); err == nil {
			t.Error("Run after a Begin that failed")
		}
	}
	flat := okConfig()
	flat.Address = Flat
	if err := r.plan(flat).Begin(r.stream, &s.step); !errors.Is(err, ErrPointer) || !strings.Contains(err.Error(), "SeqBase") {
		t.Error(err)
	}
}

func TestBadLayers(t *testing.T) {
	r := newRig(t)
	s := scene{cfg: okConfig(), lens: []int32{40, 50}}
	s.build(r, 1)
	p := r.plan(s.cfg)
	must(t, p.Begin(r.stream, &s.step))
	for _, c := range []struct {
		edit func(*Layer)
		is   error
		says string
	}{
		{func(y *Layer) { y.Q = 0 }, ErrPointer, "Layer.Q is null"},
		{func(y *Layer) { y.Q += 8 }, ErrPointer, "not a multiple of 16"},
		{func(y *Layer) { y.Out = 0 }, ErrPointer, "Layer.Out is null"},
		{func(y *Layer) { y.K = 0 }, ErrPointer, "Layer.K is null"},
		{func(y *Layer) { y.V += 4 }, ErrPointer, "Layer.V"},
		{func(y *Layer) { y.LSE += 2 }, ErrPointer, "LSE"},
		{func(y *Layer) { y.PageStride = 24 }, ErrUnsupported, "strides 24"},
		{func(y *Layer) { y.QStride = -16 }, ErrUnsupported, "want 0 to"},
		{func(y *Layer) { y.TokenStride = 1 << 33 }, ErrUnsupported, "want 0 to"},
		{func(y *Layer) { y.Softcap = -1 }, ErrUnsupported, "softcap -1"},
		{func(y *Layer) { y.Scale = inf }, ErrUnsupported, "finite"},
	} {
		layer := s.layer
		c.edit(&layer)
		if err := p.Run(r.stream, &layer); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; want %v, %q", layer, err, c.is, c.says)
		}
	}
	s.run(r, p)
	s.check(r, "after all of them")
}

func TestWorkspaceTooSmall(t *testing.T) {
	r := newRig(t)
	p, err := r.ks.Plan(okConfig())
	must(t, err)
	var small *WorkspaceError
	if err := p.Bind(r.alloc(64<<20), p.WorkspaceBytes()-1); !errors.As(err, &small) || !errors.Is(err, ErrWorkspace) ||
		small.Need != p.WorkspaceBytes() || small.Have != p.WorkspaceBytes()-1 ||
		!strings.Contains(err.Error(), fmt.Sprint(small.Need)) || !strings.Contains(err.Error(), fmt.Sprint(small.Have)) {
		t.Error(err)
	}
	if err := p.Bind(r.alloc(64<<20)+16, 63<<20); !errors.Is(err, ErrPointer) {
		t.Error(err)
	}
	if err := p.Begin(r.stream, &Step{}); !errors.Is(err, ErrWorkspace) {
		t.Error(err)
	}
	if err := p.Reset(r.stream); !errors.Is(err, ErrWorkspace) {
		t.Error(err)
	}
}

// TestNoDriver checks what someone without a device, or with an old driver, is told.
func TestNoDriver(t *testing.T) {
	if _, err := cuda.New(cudatest.New(cudatest.Options{Version: 11040})); !errors.Is(err, cuda.ErrDriverTooOld) || !strings.Contains(err.Error(), "11.4") {
		t.Error(err)
	}
	if _, err := cuda.New(cudatest.New(cudatest.Options{Init: driver.NoDevice})); !errors.Is(err, cuda.ErrNoDevice) {
		t.Error(err)
	}
	old := cudatest.A100()
	old.Attributes[driver.DevCapabilityMajor] = 7
	r := newRig(t, old)
	if _, err := Load(r.ctx); !errors.Is(err, kernels.ErrNoKernel) {
		t.Error(err)
	}
}

// TestNoMemory lets the device run out of memory where a Plan takes some.
func TestNoMemory(t *testing.T) {
	r := newRig(t)
	c := okConfig()
	c.Checked, c.Pages = true, 10
	r.drv.FailAlloc(1)
	if _, err := r.ks.Plan(c); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Error(err)
	}
}

// TestFaults hands checked mode one bad thing at a time.
func TestFaults(t *testing.T) { faultCases(t, newRig(t)) }

func faultCases(t *testing.T, r *rig) {
	for _, c := range []struct {
		says string
		edit func(r *rig, s *scene)
	}{
		{"length", func(r *rig, s *scene) { s.step.KVLen = upload(r, []int32{40, 301}) }},
		{"length", func(r *rig, s *scene) { s.step.KVLen = upload(r, []int32{40, -1}) }},
		{"query offsets", func(r *rig, s *scene) { s.step.QIndptr = upload(r, []int32{0, 1, 0}) }},
		{"query offsets", func(r *rig, s *scene) { s.step.QIndptr = upload(r, []int32{0, 1, 1 << 30}) }},
		{"query offsets", func(r *rig, s *scene) { s.step.QIndptr = upload(r, []int32{0, 1, 7}) }},
		{"too short", func(r *rig, s *scene) { s.step.TableIndptr = upload(r, []int32{0, 19, 22}) }},
		{"too short", func(r *rig, s *scene) { s.step.TableIndptr = upload(r, []int32{0, 19, -5}) }},
		{"does not exist", func(r *rig, s *scene) { s.table(r, 20, 50) }},
		{"does not exist", func(r *rig, s *scene) { s.table(r, 19, -1) }},
	} {
		s := scene{cfg: okConfig(), lens: []int32{40, 100}, ragged: true}
		s.cfg.Checked, s.cfg.Pages, s.cfg.QLen = true, 41, 3
		s.build(r, 3)
		c.edit(r, &s)
		s.step.Lens = nil
		p := r.plan(s.cfg)
		s.run(r, p)
		var fault *FaultError
		if err := p.Fault(); !errors.As(err, &fault) || !errors.Is(err, ErrFault) || fault.Seq != 1 || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
		if err := p.Fault(); err != nil {
			t.Errorf("%s: reported twice: %v", c.says, err)
		}
		s.calls, s.rows = s.calls[:1], 1 // the other sequence is not harmed
		s.check(r, c.says)
	}
}

// table changes an entry of a table of 19 entries a sequence.
func (s *scene) table(r *rig, i int, page int32) {
	t := download[int32](r, s.step.Table, 38)
	t[i] = page
	must(r.t, r.stream.Upload(s.step.Table, cuda.AsBytes(t)))
}

// TestResetAfterFailure fails a launch and finds the next one's mailbox in order.
func TestResetAfterFailure(t *testing.T) {
	r := newRig(t)
	s := scene{cfg: okConfig(), lens: []int32{300, 299}}
	s.cfg.Policy = plan.Splits(4)
	s.build(r, 1)
	p := r.plan(s.cfg)
	s.run(r, p)
	if p.Choice().Combine != plan.CombineMailbox {
		t.Fatal(p.Choice())
	}
	must(t, p.Begin(r.stream, &s.step))
	r.drv.Fail("cuLaunchKernelEx", 1, driver.LaunchOutOfResources)
	if err := p.Run(r.stream, &s.layer); !errors.Is(err, cuda.ErrTooLarge) {
		t.Fatal(err)
	}
	must(t, r.stream.Fill(Ptr(p.layout.mailbox.at(p.workspace)), 1, p.layout.mailbox.bytes)) // what a launch that was cut off leaves
	s.run(r, p)
	s.check(r, "after a failed launch")
}

// TestContextLost checks that a kernel's fault is told apart from running out of memory.
func TestContextLost(t *testing.T) {
	r := newRig(t)
	s := scene{cfg: okConfig(), lens: []int32{300}}
	s.build(r, 1)
	s.layer.K += 1 << 30
	p := r.plan(s.cfg)
	must(t, p.Begin(r.stream, &s.step))
	must(t, p.Run(r.stream, &s.layer))
	if err := r.stream.Synchronize(); !errors.Is(err, cuda.ErrContextLost) {
		t.Error(err)
	}
	if err := p.Begin(r.stream, &s.step); err == nil {
		err = p.Run(r.stream, &s.layer)
		if !errors.Is(err, cuda.ErrContextLost) {
			t.Error(err)
		}
	}
}

// TestGraph captures a step without lengths and replays it at any length up to the capacity.
func TestGraph(t *testing.T) { graphs(t, newRig(t)) }

func graphs(t *testing.T, r *rig) {
	for _, pol := range []plan.Policy{plan.Auto(), plan.Fixed(64), plan.Splits(4), plan.None()} {
		var graph *cuda.Exec
		var p *Plan
		var first scene
		for i, lens := range [][]int32{{300, 1}, {1, 300}, {0, 0}, {16, 17}, {0, 255}} {
			s := scene{cfg: okConfig(), lens: lens}
			s.cfg.Policy = pol
			s.build(r, uint64(i))
			if i == 0 {
				p, first = r.plan(s.cfg), s
				must(t, p.Reset(r.stream))
				first.step.Lens = nil
				g, err := r.stream.Capture(func() error {
					return errors.Join(p.Begin(r.stream, &first.step), p.Run(r.stream, &first.layer), p.Run(r.stream, &first.layer))
				})
				must(t, err)
				graph, err = g.Instantiate()
				must(t, err)
				must(t, g.Close())
			}
			copyTo := func(dst, src Ptr, n int) { must(t, r.stream.Copy(dst, src, int64(n))) }
			copyTo(first.step.KVLen, s.step.KVLen, 8)
			copyTo(first.step.Table, s.step.Table, 2*19*4)
			copyTo(first.layer.Q, s.layer.Q, 2*8*64*2)
			copyTo(first.layer.K, s.layer.K, 41*16*2*64*2)
			copyTo(first.layer.V, s.layer.V, 41*16*2*64*2)
			must(t, graph.Launch(r.stream))
			must(t, r.stream.Synchronize())
			s.layer.Out, s.layer.LSE = first.layer.Out, first.layer.LSE
			s.check(r, fmt.Sprintf("policy %v, lengths %v", pol, lens))
		}
		must(t, graph.Close())
	}
}

// TestNoAllocations counts what a step of a few layers allocates.
func TestNoAllocations(t *testing.T) {
	r := newRig(t)
	s := scene{cfg: okConfig(), lens: []int32{300, 200}, window: &attn.Window{Left: 9}}
	s.cfg.Checked, s.cfg.Pages = true, 100
	s.build(r, 1)
	p := r.plan(s.cfg)
	s.run(r, p)
	step, layer := s.step, s.layer
	if n := testing.AllocsPerRun(50, func() {
		step.Lens[0] ^= 256 // another launch each time
		if err := p.prepare(&step); err != nil {
			t.Fatal(err)
		}
		if err := p.layerParams(&layer); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a step, the launches apart", n)
	}
}
