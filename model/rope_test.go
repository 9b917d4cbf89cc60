package model

import (
	"testing"

	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// factors is a file that holds nothing but rope factors.
type factors []float32

func (f factors) Names() []string { return []string{"rope_freqs.weight"} }

func (f factors) Tensor(name string) (weights.Tensor, error) {
	return weights.Tensor{Name: name, Type: quant.F32, Shape: []int{len(f)}, Data: bytesOf(f)}, nil
}

// TestRopeFactors: factors divide the angles of the rotation they belong to. Windowed layers share that rotation, and
// its table of angles, unless they have one of their own, which factors must leave alone.
func TestRopeFactors(t *testing.T) {
	base := RopeConfig{Base: 100, Dims: 4}
	own := RopeConfig{Base: 10, Dims: 4}
	for _, c := range []struct {
		windowed []bool
		own      *RopeConfig
	}{{nil, nil}, {[]bool{true, false}, nil}, {[]bool{true, false}, &own}, {[]bool{false, true}, &own}} {
		m := &Model{Config: Config{Rope: base, WindowedRope: c.own, Windowed: c.windowed, naming: ggufNames}}
		l := loader{m: m, src: factors{2, 4}}
		l.attention()
		if l.err != nil {
			t.Fatal(l.err)
		}
		f := base.InvFreq()
		checkRope(t, m.ropes[0], f[0]/2, f[1]/4)
		if c.own == nil {
			if m.ropes[1] != m.ropes[0] {
				t.Errorf("%+v: windowed layers turn by a copy", c)
			}
			continue
		}
		f = own.InvFreq()
		checkRope(t, m.ropes[1], f[0], f[1])
	}
}

func checkRope(t *testing.T, r *ops.Rope, want ...float32) {
	t.Helper()
	for i, w := range want {
		if r.InvFreq[i] != w {
			t.Errorf("pair %d turns by %g, want %g", i, r.InvFreq[i], w)
		}
	}
}
