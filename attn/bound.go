package attn

import "math"

// Tol is a tolerance derived for one (row, head): the largest error that the output elements and the
// LSE of a float32 implementation may have against Reference.
type Tol struct{ Out, LSE float64 }

// Bound returns the tolerance of each row and head, in Result.LSE's order. It holds for any cuts, any
// merge tree and any running, lagging or fixed reference. splits is the number of merges plus one;
// reach is how far, in logits, the reference may be from those that carry weight: 0 for a running
// maximum, the guard's width for a lagging one or a φ.
//
// With u = 2^-24, d = HeadDim, n attended tokens, rounding errors independent of each other and so
// adding up as √ (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019; factor λ = 4), and per row
//
//	A = max_j Scale·Σ_i |q_i·k_ji|     V = max |v|     s = max_j |s_j|
//
// to first order in u:
//
//	a logit              δ ≤ u·(λ√d·A + 4·s)          products, sum; scale, softcap
//	an exponential       u·(reach + ln n + 2)         argument (weighted mean of |s_j-M|), result
//	L, and O beside V    u·λ·√(3(n+splits))           rescale, multiply, add per position and merge
//
// O/L sees the errors of both, and a common factor of all exponentials cancels. Storing the output and
// an LSE of size |lse| ≤ s+ln n rounds once more. V is the simple choice of the magnitude beside which
// an output's error is relative; Σ_j p_j·|v_j| would be tighter.
func Bound(c *Call, splits int, reach float64) ([]Tol, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	tols := make([]Tol, c.QLen*c.QHeads)
	for row := range tols {
		i, h := row/c.QHeads, row%c.QHeads
		n, a, s, v := c.magnitudes(i, h)
		if n == 0 {
			continue // empty: exactly 0 and -Inf (a sink alone is exact too)
		}
		logn := math.Log(float64(n) + 1)
		logit := lambda*math.Sqrt(float64(c.HeadDim))*a + 4*s
		exps := reach + logn + 2
		sums := lambda * math.Sqrt(3*float64(n+splits))
		tols[row] = Tol{
			Out: unit * 2 * (logit + exps + sums) * v,
			LSE: unit * (logit + exps + sums + 2*(s+logn)),
		}
	}
	return tols, nil
}

const (
	unit   = 1.0 / (1 << 24) // float32's unit roundoff
	lambda = 4.0
)

// magnitudes measures one row and head: attended tokens, A, s and V of Bound.
func (c *Call) magnitudes(i, h int) (n int, a, s, v float64) {
	if c.Sinks != nil {
		s = math.Abs(float64(c.Sinks[h]))
	}
	lo, hi := c.Range(i)
	kvHead := h / c.Group()
	for j := lo; j < hi; j++ {
		var sum float64
		k := c.KV.Key(j, kvHead)
		for d, x := range c.query(i, h) {
			sum += math.Abs(float64(x) * float64(k[d]))
		}
		a = max(a, sum*math.Abs(float64(c.scale())))
		s = max(s, math.Abs(c.logit64(i, h, j)))
		for _, x := range c.KV.Value(j, kvHead) {
			v = max(v, math.Abs(float64(x)))
		}
	}
	return hi - lo, a, s, v
}
