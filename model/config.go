package model

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/internal/quote"
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
const (
	limit      = 1 << 24
	maxLayers  = 4096
	maxHeadDim = 512
)

// key is what a file calls a setting: its name in a GGUF file or in config.json.
func (c *Config) key(gguf, hf string) string {
	if c.naming == hfNames {
		return "config.json: " + hf
	}
	return c.Arch + "." + gguf
}

// check reports the first thing in c that no model of its kind can have, by the key that says so.
func (c *Config) check() error {
	heads := c.key("attention.head_count", "num_attention_heads")
	kvHeads := c.key("attention.head_count_kv", "num_key_value_heads")
	headDim := c.key("attention.key_length", "head_dim")
	sizes := []struct {
		key string
		v   int
	}{
		{c.key("block_count", "num_hidden_layers"), c.Layers}, {c.key("embedding_length", "hidden_size"), c.Hidden},
		{c.key("feed_forward_length", "intermediate_size"), c.FFN}, {c.key("vocab_size", "vocab_size"), c.Vocab},
		{heads, c.QHeads}, {kvHeads, c.KVHeads}, {headDim, c.HeadDim},
		{c.key("context_length", "max_position_embeddings"), c.Context},
	}
	for _, s := range sizes {
		if s.v < 1 || s.v > limit {
			return fmt.Errorf("model: %s is %d, want 1 to %d", s.key, s.v, limit)
		}
	}
	switch {
	case c.Layers > maxLayers:
		return fmt.Errorf("model: %s is %d, want at most %d", c.key("block_count", "num_hidden_layers"), c.Layers, maxLayers)
	case c.QHeads%c.KVHeads != 0:
		return fmt.Errorf("model: %s is %d, which %s, %d, can't share evenly", kvHeads, c.KVHeads, heads, c.QHeads)
	case c.HeadDim%8 != 0 || c.HeadDim > maxHeadDim:
		return fmt.Errorf("model: %s is %d, want a multiple of 8 up to %d", headDim, c.HeadDim, maxHeadDim)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("model: %s is %g, want a number between 0 and 1", c.key("attention.layer_norm_rms_epsilon", "rms_norm_eps"), c.NormEps)
	case c.Windowed != nil && c.Window < 1:
		return fmt.Errorf("model: %s is %d, want at least 1", c.key("attention.sliding_window", "sliding_window"), c.Window)
	}
	return c.checkScales()
}

// checkScales is check for what is no size.
func (c *Config) checkScales() error {
	for _, s := range []struct {
		key string
		v   float32
	}{
		{c.key("attention.scale", "query_pre_attn_scalar"), c.AttnScale},
		{c.key("attn_logit_softcapping", "attn_logit_softcapping"), c.AttnSoftcap},
		{c.key("final_logit_softcapping", "final_logit_softcapping"), c.LogitSoftcap},
	} {
		if !(s.v >= 0 && s.v < 1e6) {
			return fmt.Errorf("model: %s gives %g, want 0 to 1e6", s.key, s.v)
		}
	}
	for _, r := range []*RopeConfig{&c.Rope, c.WindowedRope} {
		if err := c.checkRope(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkRope(r *RopeConfig) error {
	switch {
	case r == nil:
		return nil
	case r.Dims < 2 || r.Dims%2 != 0 || r.Dims > c.HeadDim:
		return fmt.Errorf("model: %s gives %d rotated dimensions of a head of %d", c.key("rope.dimension_count", "partial_rotary_factor"), r.Dims, c.HeadDim)
	case !(r.Base > 1 && r.Base < 1e12):
		return fmt.Errorf("model: %s is %g, want a number between 1 and 1e12", c.key("rope.freq_base", "rope_theta"), r.Base)
	case !(r.Factor >= 0 && r.Factor < 1e6):
		return fmt.Errorf("model: %s is %g, want 0 to 1e6", c.key("rope.scaling.factor", "rope_scaling.factor"), r.Factor)
	}
	if l := r.Llama3; l != nil && !(l.Factor >= 1 && l.LowFreq > 0 && l.HighFreq > l.LowFreq && l.Context >= 1) {
		return fmt.Errorf("model: config.json: rope_scaling: llama3 with factor %g, frequencies %g to %g and context %g makes no sense",
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
	return fmt.Errorf("model: unknown architecture %s (supported: %v)", quote.Name(name), Architectures)
}
