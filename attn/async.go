package attn

import "fmt"

// Guard says which logits may be taken against a fixed reference φ, and when a finished row is
// trusted. Outside it the exponentials of float32 overflow, or lose all that is below the largest.
type Guard struct {
	// Low and High are the window of FlashDecoding++: Low < s-φ < High. Lazy ignores Low.
	Low, High float32
	// MinL is the smallest denominator that Lazy trusts.
	MinL float32
}

// DefaultGuard bounds exp(s-φ) to exp(±40), about 2^±57: 2^20 positions of it, times values of up to
// 2^50, stay finite, and the smallest addend keeps full precision. MinL leaves 2^86 between the
// denominator and the smallest normal float32, so what underflows is below rounding at any length.
func DefaultGuard() Guard { return Guard{Low: -40, High: 40, MinL: 1.0 / (1 << 40)} }

// check refuses a window in which float32 itself overflows.
func (g Guard) check() error {
	if !(g.Low < 0 && 0 < g.High && g.High <= 80) {
		return fmt.Errorf("attn: guard %v … %v must hold 0 and end at 80 or below", g.Low, g.High)
	}
	if !(g.MinL >= 0 && g.MinL <= 1) {
		return fmt.Errorf("attn: guard MinL %v is not within 0 … 1", g.MinL)
	}
	return nil
}

// Async computes the call as FlashDecoding++ does (MLSys 2024, §3, equation 4): every split takes its
// exponentials against the head's φ [QHeads], so splits need nothing from each other and merging is
// addition. A row with any logit outside the guard is computed again, whole, by the exact path; redone
// counts those (row, head) pairs. The result is exact for any φ; only redone depends on it.
func Async(c *Call, cuts []int, phi []float32, g Guard) (r Result, redone int, err error) {
	if err := c.checkPhi(cuts, phi, g); err != nil {
		return Result{}, 0, err
	}
	if phi == nil {
		return Result{}, 0, fmt.Errorf("attn: no φ; Lazy works without one")
	}
	r = c.each(func(i, h int) State {
		sum := phiState(c, phi[h])
		for s := range len(cuts) + 1 {
			lo, hi := c.split(cuts, s)
			part, ok := phiPartial(c, i, h, lo, hi, phi[h], g)
			if !ok {
				redone++
				return c.exact(i, h, cuts)
			}
			Merge(&sum, part)
		}
		return sum
	})
	return r, redone, nil
}

// phiPartial is Partial against φ. It stops at the first logit outside the guard and reports false.
func phiPartial(c *Call, i, h, lo, hi int, phi float32, g Guard) (st State, ok bool) {
	st = phiState(c, phi)
	for s, v := range c.tokens(i, h, lo, hi) {
		if x := s - phi; !(g.Low < x && x < g.High) {
			return st, false
		}
		st.accumulate(s, v)
	}
	return st, true
}

// Lazy is Async with the weakest guard that is still exact. Upwards nothing needs to be computed
// again: a logit above the reference by more than g.High moves the split's M, and Merge takes States
// with different M. Downwards only the sum matters: small addends are harmless beside a large one, so
// a row is redone only if its whole denominator is below g.MinL. A nil phi starts every split at its
// first logit instead: the lagging maximum of FlashAttention 4, which never redoes a row.
func Lazy(c *Call, cuts []int, phi []float32, g Guard) (r Result, redone int, err error) {
	if err := c.checkPhi(cuts, phi, g); err != nil {
		return Result{}, 0, err
	}
	r = c.each(func(i, h int) State {
		sum := NewState(c.valueDim())
		for s := range len(cuts) + 1 {
			lo, hi := c.split(cuts, s)
			Merge(&sum, lazyPartial(c, i, h, lo, hi, phi, g.High))
		}
		if lo, hi := c.Range(i); lo < hi && sum.L < g.MinL {
			redone++
			return c.exact(i, h, cuts)
		}
		return sum
	})
	return r, redone, nil
}

// lazyPartial is Partial with a lagging reference that starts at φ, if there is one.
func lazyPartial(c *Call, i, h, lo, hi int, phi []float32, slack float32) State {
	st := NewState(c.valueDim())
	if phi != nil {
		st.M = phi[h]
	}
	for s, v := range c.tokens(i, h, lo, hi) {
		st.AddLazy(s, v, slack)
	}
	return st
}

// phiState is the empty State that takes exponentials against φ.
func phiState(c *Call, phi float32) State {
	st := NewState(c.valueDim())
	st.M = phi
	return st
}

// exact is the fallback: the State of one row and head by Split's rule.
func (c *Call) exact(i, h int, cuts []int) State {
	st := NewState(c.valueDim())
	for s := range len(cuts) + 1 {
		lo, hi := c.split(cuts, s)
		Merge(&st, Partial(c, i, h, lo, hi))
	}
	return st
}

// checkPhi checks the call, its cuts, φ and the guard.
func (c *Call) checkPhi(cuts []int, phi []float32, g Guard) error {
	if err := c.checkCuts(cuts); err != nil {
		return err
	}
	if phi != nil && len(phi) != c.QHeads {
		return fmt.Errorf("attn: %d φ for %d query heads", len(phi), c.QHeads)
	}
	for h, x := range phi {
		if !finite(x) {
			return fmt.Errorf("attn: φ of head %d is %v, want a finite logit", h, x)
		}
	}
	return g.check()
}
