// Package attn is the mathematics of split-KV attention in plain Go: the text that every kernel of
// this module is written from and the reference that every test compares with. It imports nothing of
// ours. It is meant to be read, not to be fast.
//
// # The idea
//
// The attention of a query over a set of KV positions can be held, unnormalised, in a [State]
// {M, L, O}. States of disjoint sets combine with [Merge], which is associative and commutative in
// real arithmetic, so a long sequence can be cut anywhere, its pieces computed by whoever is free and
// merged in any order. M need not be the maximum of the logits: any reference gives the same result.
// A running maximum (FlashAttention), a maximum that lags behind (FlashAttention 4) and a constant φ
// known in advance (FlashDecoding++) are therefore the same type, merged by the same rule.
//
// # Terms
//
//   - A query row is one query token; row i of QLen has position KVLen-QLen+i (bottom-right aligned).
//   - s_j is a logit: Scale·⟨q, k_j⟩, then Softcap·tanh(s/Softcap) if a softcap is set.
//   - Masks (causal, window) leave each row one contiguous range of positions, [Call.Range]. What is
//     outside is never read.
//   - LSE is the natural log of the softmax denominator. A row that attends nothing has output
//     exactly 0 and LSE -Inf.
//   - A sink is a logit without a value: it takes part in the denominator, once per row.
//   - A cut is a position where one split of the KV range ends and the next one begins.
//
// # The ladder
//
// [Reference] makes three passes in float64 and is the truth. [NoSplit] is one pass with an online
// softmax (FlashAttention, Dao et al. 2022, algorithm 1). [Split] is Flash-Decoding (Dao et al. 2023):
// independent partial States, then a merge. [Async] is the unified-maximum softmax of FlashDecoding++
// (Hong et al., MLSys 2024, §3) with its guard and its exact fallback. [Lazy] rescales only when a
// logit passes the reference by more than the guard allows. [Bound] is the rounding error that a
// float32 implementation of any of them may have.
package attn
