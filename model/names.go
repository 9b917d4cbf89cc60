package model

import "fmt"

// naming maps a tensor's role to its name in a file.
type naming uint8

const (
	ggufNames naming = iota
	hfNames
)

// Roles of tensors, the same in both namings.
const (
	roleEmbed = iota
	roleOutNorm
	roleOutput
	roleRopeFactors
	roleAttnNorm
	roleQ
	roleK
	roleV
	roleQBias
	roleKBias
	roleVBias
	roleQNorm
	roleKNorm
	roleO
	roleOBias
	rolePostAttnNorm
	roleFFNNorm
	roleGate
	roleUp
	roleDown
	rolePostFFNNorm
)

var ggufTable = [...]string{
	roleEmbed: "token_embd.weight", roleOutNorm: "output_norm.weight", roleOutput: "output.weight",
	roleRopeFactors: "rope_freqs.weight",
	roleAttnNorm:    "blk.%d.attn_norm.weight",
	roleQ:           "blk.%d.attn_q.weight", roleK: "blk.%d.attn_k.weight", roleV: "blk.%d.attn_v.weight",
	roleQBias: "blk.%d.attn_q.bias", roleKBias: "blk.%d.attn_k.bias", roleVBias: "blk.%d.attn_v.bias",
	roleQNorm: "blk.%d.attn_q_norm.weight", roleKNorm: "blk.%d.attn_k_norm.weight",
	roleO: "blk.%d.attn_output.weight", roleOBias: "blk.%d.attn_output.bias", rolePostAttnNorm: "blk.%d.post_attention_norm.weight",
	roleFFNNorm: "blk.%d.ffn_norm.weight",
	roleGate:    "blk.%d.ffn_gate.weight", roleUp: "blk.%d.ffn_up.weight", roleDown: "blk.%d.ffn_down.weight",
	rolePostFFNNorm: "blk.%d.post_ffw_norm.weight",
}

var hfTable = [...]string{
	roleEmbed: "model.embed_tokens.weight", roleOutNorm: "model.norm.weight", roleOutput: "lm_head.weight",
	roleRopeFactors: "",
	roleAttnNorm:    "model.layers.%d.input_layernorm.weight",
	roleQ:           "model.layers.%d.self_attn.q_proj.weight", roleK: "model.layers.%d.self_attn.k_proj.weight",
	roleV:     "model.layers.%d.self_attn.v_proj.weight",
	roleQBias: "model.layers.%d.self_attn.q_proj.bias", roleKBias: "model.layers.%d.self_attn.k_proj.bias",
	roleVBias: "model.layers.%d.self_attn.v_proj.bias",
	roleQNorm: "model.layers.%d.self_attn.q_norm.weight", roleKNorm: "model.layers.%d.self_attn.k_norm.weight",
	roleO:            "model.layers.%d.self_attn.o_proj.weight",
	roleOBias:        "model.layers.%d.self_attn.o_proj.bias",
	rolePostAttnNorm: "model.layers.%d.post_attention_layernorm.weight",
	roleFFNNorm:      "model.layers.%d.post_attention_layernorm.weight",
	roleGate:         "model.layers.%d.mlp.gate_proj.weight", roleUp: "model.layers.%d.mlp.up_proj.weight",
	roleDown:        "model.layers.%d.mlp.down_proj.weight",
	rolePostFFNNorm: "model.layers.%d.post_feedforward_layernorm.weight",
}

// name returns the tensor name of a role in layer l.
func (c *Config) name(role, l int) string {
	n := ggufTable[role]
	if c.naming == hfNames {
		n = hfTable[role]
		if role == roleFFNNorm && c.PostNorms { // with four norms a layer, the one before the FFN has a name of its own
			n = "model.layers.%d.pre_feedforward_layernorm.weight"
		}
	}
	if role >= roleAttnNorm {
		return fmt.Sprintf(n, l)
	}
	return n
}
