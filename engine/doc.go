// Package engine runs many sequences through one model.
//
// Terms. A Request is a prompt and what to do with it; its Stream delivers the tokens. A step is one forward pass
// over a batch: one row for every sequence that decodes, then, as far as the budget of rows reaches, pieces of
// prompts (chunked prefill), oldest first. So a long prompt delays running streams by one bounded step at a time.
//
// The loop never waits for a reader: a Stream has room for every token that it may get, 16 bytes each. A sequence that
// nobody reads runs to its end like any other and then holds neither pages nor a place among the running ones.
//
// Memory is pages (package kvcache). A sequence is admitted when its first piece fits. When a running sequence needs
// a page and none is left, the youngest sequence is preempted: its pages are freed, and it waits at the head of the
// queue to be computed again, with whatever its prefix still finds in the cache. Nothing it has delivered changes.
//
// A request that can never run is refused by Submit, with an error; every Stream that Submit returned ends, with a Reason
// and, unless it ended as asked, an error. Everything a sequence needs is made when it is submitted or admitted, for its
// whole length: a decode step allocates nothing. A backend that can't undo what it has mapped closes the engine.
//
// Windowed layers keep the pages of all tokens, also of those that no later token sees: a table is one list for all layers.
//
// One goroutine owns the model, the cache and all sequences; Submit, Close and the Streams are safe to use from any.
package engine
