// Package model is the forward pass of decoder-only transformers, written once against ops.Backend and configured
// for the families that share its shape: llama (with Mistral and SmolLM2), qwen2, qwen3 and gemma3.
//
// A layer is
//
//	h = norm(x)                          RMSNorm
//	q, k, v = h·Wqᵀ, h·Wkᵀ, h·Wvᵀ        + biases (qwen2), + norm of each head of q and k (qwen3, gemma3)
//	rotate q and k, write k and v to the cache
//	a = attend(q, cache)                 all tokens, or a window (Mistral, most layers of gemma3)
//	x += a·Woᵀ                           normalised first in gemma3
//	h = norm(x)
//	x += (act(h·Wgᵀ) ⊙ h·Wuᵀ)·Wdᵀ        normalised first in gemma3
//
// and the logits are norm(x)·Wᵀ with the output matrix, or the embedding where the two are tied.
package model
