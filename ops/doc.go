// Package ops is the boundary between a model and the machine it runs on: the few fused operations of a
// decoder-only transformer, as one interface. It holds no implementation.
//
// Terms. A step is one forward pass over a Batch: the new tokens of one or more sequences, row after row, ragged
// (a sequence that decodes brings one row, one that prefills brings many). A Buf is an activation matrix
// [rows, cols] in the backend's memory; every operation sets the row count of what it writes. A Weight is a tensor
// the backend has accepted, usually still quantised. A KV holds the keys and values of all layers in pages, whose
// numbers the caller hands out (package kvcache).
//
// Operations between Begin and End only queue or compute; the first thing that goes wrong is kept and returned by
// End, so a model's forward pass reads like the paper's. A Backend has one owner at a time and is not safe for
// concurrent use.
package ops
