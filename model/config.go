package model

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/ops"
)

// Config is the shape of a model, complete and checked.
type Config struct {
	Arch                       string
	Layers, Hidden, FFN, Vocab int
	QHeads, KVHeads, HeadDim   int
	Context                    int // tokens the model was trained for

	NormEps      float32
	NormPlusOne  bool // stored norm weights lack the 1 they are used with (Hugging Face's gemma files)
	Activation   ops.Activation
	EmbedScale   float32
	AttnScale    float32
	AttnSoftcap  float32
	LogitSoftcap float32

	Window       int    // tokens that a windowed layer sees
	Windowed     []bool // [Layers]; nil: none
	Rope         RopeConfig
	WindowedRope *RopeConfig // rotation of windowed layers where it differs (gemma3)

	QKNorm    bool // norms on every head of q and k
	PostNorms bool // norms after attention and feed-forward, before they join the residual stream
	naming    naming
}

// RopeConfig is a rotary embedding as model files describe it.
type RopeConfig struct {
	Base        float64
	Dims        int // rotated dimensions of a head
	Interleaved bool
	Factor      float64 // linear scaling of positions; 0 or 1: none
	Llama3      *Llama3Scaling
}

// Llama3Scaling stretches low frequencies by Factor, keeps high ones and blends between (Llama 3.1).
type Llama3Scaling struct {
	Factor, LowFreq, HighFreq, Context float64
}

// InvFreq returns the angle per position of every pair, [Dims/2].
func (r RopeConfig) InvFreq() []float32 {
	f := make([]float32, r.Dims/2)
	for i := range f {
		w := math.Pow(r.Base, -2*float64(i)/float64(r.Dims))
		if r.Factor > 1 {
			w /= r.Factor
		}
		if r.Llama3 != nil {
			w = r.Llama3.scale(w)
		}
		f[i] = float32(w)
	}
	return f
}

func (l *Llama3Scaling) scale(w float64) float64 {
	wavelength := 2 * math.Pi / w
	switch {
	case wavelength < l.Context/l.HighFreq:
		return w
	case wavelength > l.Context/l.LowFreq:
		return w / l.Factor
	}
	smooth := (l.Context/wavelength - l.LowFreq) / (l.HighFreq - l.LowFreq)
	return (1-smooth)*w/l.Factor + smooth*w
}

// Architectures lists what this package runs, by the names of model files.
var Architectures = []string{"llama", "mistral", "qwen2", "qwen3", "gemma3"}

// limit bounds every size of a model, so that a hostile file can't ask for absurd memory through a product of sizes.
const limit = 1 << 24

// check reports the first thing in c that no model of its kind can have.
func (c *Config) check() error {
	sizes := []struct {
		name string
		v    int
	}{
		{"layers", c.Layers}, {"hidden size", c.Hidden}, {"feed-forward size", c.FFN}, {"vocabulary", c.Vocab},
		{"query heads", c.QHeads}, {"key/value heads", c.KVHeads}, {"head dimension", c.HeadDim}, {"context", c.Context},
	}
	for _, s := range sizes {
		if s.v < 1 || s.v > limit {
			return fmt.Errorf("model: %s of %d is not between 1 and %d", s.name, s.v, limit)
		}
	}
	switch {
	case c.Layers > 4096:
		return fmt.Errorf("model: %d layers are more than 4096", c.Layers)
	case c.QHeads%c.KVHeads != 0:
		return fmt.Errorf("model: %d query heads can't share %d key/value heads evenly", c.QHeads, c.KVHeads)
	case c.HeadDim%8 != 0 || c.HeadDim > 512:
		return fmt.Errorf("model: head dimension %d is not a multiple of 8 up to 512", c.HeadDim)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("model: norm epsilon %g is not between 0 and 1", c.NormEps)
	case c.Windowed != nil && c.Window < 1:
		return fmt.Errorf("model: windowed layers with a window of %d tokens", c.Window)
	}
	for _, r := range []*RopeConfig{&c.Rope, c.WindowedRope} {
		if err := r.check(c.HeadDim); err != nil {
			return err
		}
	}
	return nil
}

func (r *RopeConfig) check(headDim int) error {
	switch {
	case r == nil:
		return nil
	case r.Dims < 2 || r.Dims%2 != 0 || r.Dims > headDim:
		return fmt.Errorf("model: %d rotated dimensions of a head of %d", r.Dims, headDim)
	case !(r.Base > 1 && r.Base < 1e12):
		return fmt.Errorf("model: rope base %g is not between 1 and 1e12", r.Base)
	case !(r.Factor >= 0 && r.Factor < 1e6):
		return fmt.Errorf("model: rope scaling factor %g is not between 0 and 1e6", r.Factor)
	}
	if l := r.Llama3; l != nil && !(l.Factor >= 1 && l.LowFreq > 0 && l.HighFreq > l.LowFreq && l.Context >= 1) {
		return fmt.Errorf("model: llama3 rope scaling factor %g, frequencies %g to %g, context %g make no sense",
			l.Factor, l.LowFreq, l.HighFreq, l.Context)
	}
	return nil
}

// windowed reports whether layer l attends to a window only.
func (c *Config) windowed(l int) bool { return c.Windowed != nil && c.Windowed[l] }

// KVLayout is the cache this model needs, but for pages and type.
func (c *Config) KVLayout() ops.KVLayout {
	return ops.KVLayout{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
}

// unknownArch names what is not supported and what is.
func unknownArch(name string) error {
	return fmt.Errorf("model: unknown architecture %q (supported: %v)", name, Architectures)
}
