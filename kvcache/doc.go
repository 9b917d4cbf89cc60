// Package kvcache decides which sequence owns which page of KV memory.
//
// Terms:
//   - A page holds the K and V of PageSize consecutive tokens of one sequence. This package deals in page
//     numbers 0..Pages-1 only; a backend owns the bytes behind them and chooses their layout.
//   - A table is the list of one sequence's pages, in token order. The last page may be partly filled.
//   - A slot is page·PageSize + offset: where one token's K and V are written.
//   - A run is a maximal piece of a table whose page numbers are consecutive, so that the bytes are too.
//   - A page is in exactly one of three states: used (referenced by at least one table), cached (referenced
//     by none, but its content is known to the prefix cache and can be shared again) or free.
//
// # Life of a sequence
//
//	s := pool.NewSeq(salt)
//	n := pool.Lookup(s, prompt)        // pages of a prompt seen before are shared; n tokens need no computing
//	cp, err := pool.Grow(s, k)         // room for k more tokens, or ErrFull and nothing changed
//	…  carry out cp, run the step that writes k tokens …
//	pool.Commit(s, tokens[:s.Len()])   // full pages become visible to Lookup, now that they are written
//	pool.Truncate(s, n)                // drop tokens from the end (a rejected draft)
//	t := pool.Fork(s)                  // a second sequence with the same past
//	pool.Free(s)                       // the end, or preemption: Lookup and Grow again to resume
//
// # Adjacency
//
// A CPU reads a sequence whose pages lie in order about twice as fast as one whose pages are shuffled, so the
// pool keeps free pages as runs and gives a growing sequence the page after its last one whenever it can. A
// sequence that has to start a new run starts in the middle of the largest free run when the page before that
// run is the end of another growing sequence: both then grow into half of it. That is a reservation without
// bookkeeping. It shrinks as the pool fills, and the last free page can always be had.
//
// # Prefix cache
//
// Only full pages are shared. A page is known by (its predecessor, its tokens), the first page of a sequence
// also by the sequence's salt: the same chain that vLLM hashes (Kwon et al., "Efficient Memory Management for
// Large Language Model Serving with PagedAttention", SOSP 2023, and vLLM's automatic prefix caching). The hash
// only finds candidates; predecessor, tokens and salt are then compared, so a collision can't hand one prompt's
// KV to another. Two salts never share a page, which keeps tenants from probing each other's prompts by timing.
// Pages without a reference stay in the cache in least recently used order until the pool needs them.
package kvcache
