package abi

import "github.com/flashdecode/flashdecode/plan"

//go:generate go run ./gen ../../../../kernels/attention/params.h ../../../../kernels/attention/params_prefill.h ../../../../kernels/attention/params_check.h ../../../../kernels/bench/params_bench.h

// What DecodeParams.Flags is asked for, and what DecodeFlags derives from other fields.
const (
	FlagCausal   = 1
	FlagEarlyKV  = 2
	FlagPartials = 4
	FlagMasked   = 8
	FlagRaggedQ  = 16
	FlagCSR      = 32
	FlagFlat     = 64
	FlagItems    = 128
	FlagOptions  = FlagMasked | FlagRaggedQ | FlagCSR // any of these: the kernel must be one with options
)

// The kernels see the planner's own types.
type (
	Item  = plan.Item  // FdItem
	Merge = plan.Merge // FdMergeItem
)

// What fd_check finds.
const (
	FaultKVLen = 1 + iota
	FaultQIndptr
	FaultIndptr
	FaultPage
)

const (
	// MergeF4 is FD_MERGE_F4: float4 elements of O that a CTA of fd_merge_states takes.
	MergeF4 = 32
	// PlanThreads is FD_PLAN_THREADS: the one CTA of fd_plan.
	PlanThreads = 512
	// NaiveTokens is FD_NAIVE_TOKENS: tokens of a CTA of fd_naive_scores.
	NaiveTokens = 64
)
