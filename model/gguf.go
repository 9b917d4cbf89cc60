package model

import (
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights"
)

// Meta is the metadata of a GGUF file, as gguf.Meta has it.
type Meta interface {
	Has(key string) bool
	String(key string) (string, error)
	StringOr(key, def string) (string, error)
	Int(key string) (int, error)
	IntOr(key string, def int) (int, error)
	Ints(key string) ([]int, error)
	Float(key string) (float64, error)
	FloatOr(key string, def float64) (float64, error)
	Bools(key string) ([]bool, error)
}

// ConfigFromGGUF reads the configuration of a GGUF file. The size of the vocabulary is that of its embedding.
func ConfigFromGGUF(meta Meta, src weights.Source) (Config, error) {
	arch, err := meta.String("general.architecture")
	if err != nil {
		return Config{}, fmt.Errorf("model: %w", err)
	}
	r := metaReader{meta: meta, arch: arch}
	c := Config{
		Arch: arch, Layers: r.int("block_count"), Hidden: r.int("embedding_length"), FFN: r.int("feed_forward_length"),
		QHeads: r.int("attention.head_count"), Context: r.int("context_length"),
		NormEps: float32(r.float("attention.layer_norm_rms_epsilon")), EmbedScale: 1, naming: ggufNames,
		AttnSoftcap:  float32(r.floatOr("attn_logit_softcapping", 0)),
		LogitSoftcap: float32(r.floatOr("final_logit_softcapping", 0)),
	}
	c.KVHeads = r.kvHeads(c.QHeads)
	if r.err == nil && c.QHeads > 0 {
		c.HeadDim = r.intOr("attention.key_length", c.Hidden/c.QHeads)
	}
	if v := r.intOr("attention.value_length", c.HeadDim); v != c.HeadDim && r.err == nil && c.QHeads > 0 {
		return c, fmt.Errorf("model: %s is %d, %s %d: only equal ones are supported", r.key("attention.key_length"), c.HeadDim, r.key("attention.value_length"), v)
	}
	if n := r.intOr("expert_count", 0); n > 0 {
		return c, fmt.Errorf("model: mixture of %d experts is not supported", n)
	}
	c.Rope = r.rope(c.HeadDim)
	if err := r.family(&c); err != nil {
		return c, err
	}
	if r.err != nil {
		return c, fmt.Errorf("model: %w", r.err)
	}
	t, err := src.Tensor(ggufTable[roleEmbed])
	if err != nil {
		return c, fmt.Errorf("model: %w", err)
	}
	if len(t.Shape) != 2 {
		return c, fmt.Errorf("model: tensor %s has shape %v, want a matrix", quote.Name(t.Name), t.Shape)
	}
	c.Vocab = t.Shape[0]
	if err := c.check(); err != nil {
		return c, err
	}
	r.windows(&c)
	if r.err != nil {
		return c, fmt.Errorf("model: %w", r.err)
	}
	return c, c.check()
}

// metaReader reads keys of one architecture and keeps the first error.
type metaReader struct {
	meta Meta
	arch string
	err  error
}

func keep[T any](r *metaReader, v T, err error) T {
	if err != nil && r.err == nil {
		r.err = err
	}
	return v
}

func (r *metaReader) key(k string) string { return r.arch + "." + k }

func (r *metaReader) int(k string) int {
	v, err := r.meta.Int(r.key(k))
	return keep(r, v, err)
}

func (r *metaReader) intOr(k string, def int) int {
	v, err := r.meta.IntOr(r.key(k), def)
	return keep(r, v, err)
}

func (r *metaReader) float(k string) float64 {
	v, err := r.meta.Float(r.key(k))
	return keep(r, v, err)
}

func (r *metaReader) floatOr(k string, def float64) float64 {
	v, err := r.meta.FloatOr(r.key(k), def)
	return keep(r, v, err)
}

// kvHeads is a number, or an array with one for each layer.
func (r *metaReader) kvHeads(qHeads int) int {
	k := r.key("attention.head_count_kv")
	if !r.meta.Has(k) {
		return qHeads
	}
	if n, err := r.meta.Int(k); err == nil {
		return n
	}
	ns, err := r.meta.Ints(k)
	if keep(r, ns, err) == nil || len(ns) == 0 {
		return 0
	}
	for _, n := range ns {
		if n != ns[0] {
			keep(r, 0, fmt.Errorf("key %s: layers with different numbers of heads are not supported", quote.Name(k)))
		}
	}
	return ns[0]
}

func (r *metaReader) rope(headDim int) RopeConfig {
	c := RopeConfig{Base: r.floatOr("rope.freq_base", 10000), Dims: r.intOr("rope.dimension_count", headDim)}
	kind, err := r.meta.StringOr(r.key("rope.scaling.type"), "none")
	switch keep(r, kind, err) {
	case "none", "":
	case "linear":
		c.Factor = r.floatOr("rope.scaling.factor", 1)
	default:
		keep(r, 0, fmt.Errorf("unknown rope scaling %s (supported: none, linear, factors in %s)", quote.Name(kind), ggufTable[roleRopeFactors]))
	}
	return c
}

// family sets what only the architecture's name tells.
func (r *metaReader) family(c *Config) error {
	scale := 1 / math.Sqrt(float64(max(c.HeadDim, 1)))
	switch r.arch {
	case "llama":
		c.Rope.Interleaved = true
	case "qwen2":
	case "qwen3":
		c.QKNorm = true
	case "gemma3":
		c.QKNorm, c.PostNorms, c.Activation = true, true, ops.GELUTanh
		c.EmbedScale = gemmaEmbedScale(c.Hidden)
		c.WindowedRope = &RopeConfig{Base: r.floatOr("rope.freq_base_swa", 10000), Dims: c.Rope.Dims}
		if !r.meta.Has(r.key("rope.freq_base")) {
			c.Rope.Base = 1e6
		}
		if c.Layers == gemma3LargestLayers && c.QHeads > 0 {
			scale = 1 / math.Sqrt(float64(c.Hidden/c.QHeads))
		}
	default:
		return unknownArch(r.arch)
	}
	c.AttnScale = float32(r.floatOr("attention.scale", scale))
	return nil
}

// gemma3LargestLayers: the 27B model, alone in its family, scales by hidden/heads rather than by the head dimension,
// and its files do not say so.
const gemma3LargestLayers = 62

// windows sets which layers attend to a window: all, or by a pattern that is a period or an array of flags.
func (r *metaReader) windows(c *Config) {
	w := r.intOr("attention.sliding_window", 0)
	if w == 0 || r.err != nil {
		return
	}
	k := r.key("attention.sliding_window_pattern")
	period := 0
	if c.Arch == "gemma3" {
		period = gemma3Pattern
	}
	c.Window, c.Windowed = w, make([]bool, c.Layers)
	if flags, err := r.meta.Bools(k); r.meta.Has(k) && err == nil {
		if len(flags) != c.Layers {
			keep(r, 0, fmt.Errorf("key %s: %d flags for %d layers", quote.Name(k), len(flags), c.Layers))
			return
		}
		copy(c.Windowed, flags)
		return
	}
	period = r.intOr("attention.sliding_window_pattern", period)
	for l := range c.Windowed {
		c.Windowed[l] = period <= 0 || (l+1)%period != 0
	}
}
