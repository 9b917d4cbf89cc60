package model

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/ops"
)

// hfConfig is the part of a Hugging Face config.json that matters here.
type hfConfig struct {
	ModelType         string           `json:"model_type"`
	Hidden            int              `json:"hidden_size"`
	FFN               int              `json:"intermediate_size"`
	Layers            int              `json:"num_hidden_layers"`
	QHeads            int              `json:"num_attention_heads"`
	KVHeads           *int             `json:"num_key_value_heads"`
	HeadDim           *int             `json:"head_dim"`
	Vocab             int              `json:"vocab_size"`
	Context           int              `json:"max_position_embeddings"`
	NormEps           float64          `json:"rms_norm_eps"`
	Act               string           `json:"hidden_act"`
	HiddenActivation  string           `json:"hidden_activation"`
	RopeTheta         float64          `json:"rope_theta"`
	RopeLocal         float64          `json:"rope_local_base_freq"`
	RopeScaling       *hfRope          `json:"rope_scaling"`
	RopeParameters    json.RawMessage  `json:"rope_parameters"`
	Window            *int             `json:"sliding_window"`
	UseWindow         *bool            `json:"use_sliding_window"`
	WindowPattern     int              `json:"sliding_window_pattern"`
	LayerTypes        []string         `json:"layer_types"`
	QueryScalar       float64          `json:"query_pre_attn_scalar"`
	AttnSoftcap       *float64         `json:"attn_logit_softcapping"`
	LogitSoftcap      *float64         `json:"final_logit_softcapping"`
	PartialRotary     *float64         `json:"partial_rotary_factor"`
	AttentionBias     bool             `json:"attention_bias"`
	MLPBias           bool             `json:"mlp_bias"`
	BidirectionalAttn bool             `json:"use_bidirectional_attention"`
	Text              *json.RawMessage `json:"text_config"`
}

type hfRope struct {
	Type     string  `json:"rope_type"`
	OldType  string  `json:"type"`
	Theta    float64 `json:"rope_theta"`
	Factor   float64 `json:"factor"`
	LowFreq  float64 `json:"low_freq_factor"`
	HighFreq float64 `json:"high_freq_factor"`
	Context  float64 `json:"original_max_position_embeddings"`
}

// ConfigFromHF reads a Hugging Face config.json.
func ConfigFromHF(data []byte) (Config, error) {
	var h hfConfig
	if err := json.Unmarshal(data, &h); err != nil {
		return Config{}, fmt.Errorf("model: config.json: %w", quote.Error(err))
	}
	if h.Text != nil { // a multimodal wrapper around the text model
		if err := json.Unmarshal(*h.Text, &h); err != nil {
			return Config{}, fmt.Errorf("model: config.json: text_config: %w", quote.Error(err))
		}
	}
	c := Config{
		Layers: h.Layers, Hidden: h.Hidden, FFN: h.FFN, Vocab: h.Vocab, QHeads: h.QHeads, KVHeads: h.QHeads,
		Context: h.Context, NormEps: float32(h.NormEps), EmbedScale: 1, naming: hfNames,
	}
	if h.KVHeads != nil {
		c.KVHeads = *h.KVHeads
	}
	switch {
	case h.HeadDim != nil:
		c.HeadDim = *h.HeadDim
	case h.QHeads > 0:
		c.HeadDim = h.Hidden / h.QHeads
	}
	if err := h.arch(&c); err != nil {
		return Config{}, err
	}
	if err := h.ropes(&c); err != nil {
		return Config{}, err
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	if err := h.windows(&c); err != nil {
		return Config{}, err
	}
	return c, c.check()
}

// arch sets what depends on the family.
func (h *hfConfig) arch(c *Config) error {
	act := h.Act
	if h.HiddenActivation != "" {
		act = h.HiddenActivation
	}
	c.Arch = h.ModelType
	c.AttnScale = float32(1 / math.Sqrt(float64(max(c.HeadDim, 1))))
	switch h.ModelType {
	case "llama", "mistral", "qwen2":
	case "qwen3":
		c.QKNorm = true
	case "gemma3", "gemma3_text":
		c.Arch, c.QKNorm, c.PostNorms, c.NormPlusOne = "gemma3", true, true, true
		c.EmbedScale = gemmaEmbedScale(c.Hidden)
		if h.QueryScalar > 0 {
			c.AttnScale = float32(1 / math.Sqrt(h.QueryScalar))
		}
	default:
		return unknownArch(h.ModelType)
	}
	switch act {
	case "silu", "":
		c.Activation = ops.SiLU
	case "gelu_pytorch_tanh":
		c.Activation = ops.GELUTanh
	default:
		return fmt.Errorf("model: unknown activation %s (supported: silu, gelu_pytorch_tanh)", quote.Name(act))
	}
	if h.BidirectionalAttn {
		return fmt.Errorf("model: %s with bidirectional attention is not a decoder", h.ModelType)
	}
	if h.MLPBias {
		return fmt.Errorf("model: %s with biases in the feed-forward layers is not supported", h.ModelType)
	}
	if h.AttnSoftcap != nil {
		c.AttnSoftcap = float32(*h.AttnSoftcap)
	}
	if h.LogitSoftcap != nil {
		c.LogitSoftcap = float32(*h.LogitSoftcap)
	}
	return nil
}

// ropes sets the rotations. Two ways to write them are in use: rope_theta with rope_scaling, and rope_parameters,
// which may hold one set a layer type.
func (h *hfConfig) ropes(c *Config) error {
	dims := c.HeadDim
	if h.PartialRotary != nil {
		dims = int(float64(c.HeadDim) * *h.PartialRotary)
	}
	global, local := hfRope{Theta: h.RopeTheta}, hfRope{Theta: h.RopeLocal}
	if h.RopeScaling != nil {
		global = *h.RopeScaling
		global.Theta = h.RopeTheta
	}
	if len(h.RopeParameters) > 0 && string(h.RopeParameters) != "null" {
		var byType struct {
			Full    *hfRope `json:"full_attention"`
			Sliding *hfRope `json:"sliding_attention"`
		}
		if err := json.Unmarshal(h.RopeParameters, &byType); err != nil {
			return fmt.Errorf("model: config.json: rope_parameters: %w", quote.Error(err))
		}
		if byType.Full != nil {
			global = *byType.Full
		} else if err := json.Unmarshal(h.RopeParameters, &global); err != nil {
			return fmt.Errorf("model: config.json: rope_parameters: %w", quote.Error(err))
		}
		if byType.Sliding != nil {
			local = *byType.Sliding
		}
	}
	var err error
	if c.Rope, err = global.config(dims); err != nil {
		return err
	}
	if local.Theta > 0 && c.Arch == "gemma3" {
		r, err := local.config(dims)
		c.WindowedRope = &r
		return err
	}
	return nil
}

func (r hfRope) config(dims int) (RopeConfig, error) {
	c := RopeConfig{Base: r.Theta, Dims: dims}
	if c.Base == 0 {
		c.Base = 10000
	}
	kind := r.Type
	if kind == "" {
		kind = r.OldType
	}
	switch kind {
	case "", "default":
	case "linear":
		c.Factor = r.Factor
	case "llama3":
		c.Llama3 = &Llama3Scaling{r.Factor, r.LowFreq, r.HighFreq, r.Context}
	default:
		return c, fmt.Errorf("model: unknown rope scaling %s (supported: linear, llama3)", quote.Name(kind))
	}
	return c, nil
}

// windows sets which layers attend to a window.
func (h *hfConfig) windows(c *Config) error {
	if h.Window == nil || h.UseWindow != nil && !*h.UseWindow {
		return nil
	}
	if h.LayerTypes != nil && len(h.LayerTypes) != c.Layers {
		return fmt.Errorf("model: config.json: %d layer_types for %d layers", len(h.LayerTypes), c.Layers)
	}
	c.Window, c.Windowed = *h.Window, make([]bool, c.Layers)
	pattern := h.WindowPattern
	if pattern == 0 && c.Arch == "gemma3" {
		pattern = gemma3Pattern
	}
	for l := range c.Windowed {
		switch {
		case h.LayerTypes != nil:
			c.Windowed[l] = h.LayerTypes[l] == "sliding_attention"
		case pattern > 0:
			c.Windowed[l] = (l+1)%pattern != 0
		default:
			c.Windowed[l] = true
		}
	}
	return nil
}

// gemma3Pattern: every sixth layer of gemma3 attends to everything.
const gemma3Pattern = 6

// gemmaEmbedScale is √hidden. The published code rounds it to the weights' bfloat16; files converted to float32
// compute in float32, and the difference is far below the model's own rounding.
func gemmaEmbedScale(hidden int) float32 { return float32(math.Sqrt(float64(hidden))) }
