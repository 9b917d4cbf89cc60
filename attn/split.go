package attn

import "fmt"

// Partial returns the State of row i and head h over those positions lo ≤ j < hi that the row
// attends: what one worker computes in the first phase of Split. The call must be valid.
func Partial(c *Call, i, h, lo, hi int) State {
	st := NewState(c.valueDim())
	for s, v := range c.tokens(i, h, lo, hi) {
		st.Add(s, v)
	}
	return st
}

// NoSplit computes the call with one State per row, in one pass: the FlashAttention baseline.
func NoSplit(c *Call) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	return c.each(func(i, h int) State { return Partial(c, i, h, 0, c.KVLen) }), nil
}

// Split computes the call as Flash-Decoding does: partial States of the ranges between cuts, which
// don't depend on each other, then their merge. Cuts ascend within 0 … KVLen; equal neighbours make
// empty splits, which are allowed. A nil reduce means LeftToRight.
func Split(c *Call, cuts []int, reduce Reduce) (Result, error) {
	if err := c.checkCuts(cuts); err != nil {
		return Result{}, err
	}
	if reduce == nil {
		reduce = LeftToRight
	}
	parts := make([]State, len(cuts)+1)
	return c.each(func(i, h int) State {
		for s := range parts {
			lo, hi := c.split(cuts, s)
			parts[s] = Partial(c, i, h, lo, hi)
		}
		return reduce(parts)
	}), nil
}

// split returns the range of split s.
func (c *Call) split(cuts []int, s int) (lo, hi int) {
	hi = c.KVLen
	if s > 0 {
		lo = cuts[s-1]
	}
	if s < len(cuts) {
		hi = cuts[s]
	}
	return lo, hi
}

// checkCuts checks the call and its cuts.
func (c *Call) checkCuts(cuts []int) error {
	if err := c.check(); err != nil {
		return err
	}
	last := 0
	for i, cut := range cuts {
		if cut < last || cut > c.KVLen {
			return fmt.Errorf("attn: cut %d is %d, want %d ≤ cut ≤ KVLen %d", i, cut, last, c.KVLen)
		}
		last = cut
	}
	return nil
}

// Reduce merges the States of all splits into one. It may use them up. The tree it chooses changes
// the result by rounding only.
type Reduce func(parts []State) State

// LeftToRight merges in the order of the splits: the fixed order that makes a result reproducible.
func LeftToRight(parts []State) State {
	st := parts[0]
	for _, p := range parts[1:] {
		Merge(&st, p)
	}
	return st
}

// Balanced merges neighbours pairwise, as a tree of ⌈log2 splits⌉ levels.
func Balanced(parts []State) State {
	for len(parts) > 1 {
		n := 0
		for k := 0; k < len(parts); k += 2 {
			if k+1 < len(parts) {
				Merge(&parts[k], parts[k+1])
			}
			parts[n] = parts[k]
			n++
		}
		parts = parts[:n]
	}
	return parts[0]
}
