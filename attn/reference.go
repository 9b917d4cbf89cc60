package attn

import "math"

// Reference computes the call by the definition, in float64 and three passes over the KV range:
// the maximum logit, the denominator, the weighted sum. It is the truth of every test.
//
//	m = max_j s_j     l = Σ_j exp(s_j-m)     out = Σ_j exp(s_j-m)/l · v_j     lse = m + ln l
func Reference(c *Call) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	dim := c.valueDim()
	r := Result{Out: make([]float32, c.QLen*c.QHeads*dim), LSE: make([]float32, c.QLen*c.QHeads)}
	acc := make([]float64, dim)
	for row := range r.LSE {
		i, h := row/c.QHeads, row%c.QHeads
		lse := c.referenceRow(i, h, acc)
		r.LSE[row] = float32(lse)
		for d, x := range acc {
			r.Out[row*dim+d] = float32(x)
		}
	}
	return r, nil
}

// referenceRow writes the output of one row and head to out and returns its LSE.
func (c *Call) referenceRow(i, h int, out []float64) float64 {
	clear(out)
	lo, hi := c.Range(i)

	m := math.Inf(-1)
	if c.Sinks != nil {
		m = float64(c.Sinks[h])
	}
	for j := lo; j < hi; j++ {
		m = max(m, c.logit64(i, h, j))
	}
	if math.IsInf(m, -1) {
		return m // nothing attended
	}

	var l float64
	if c.Sinks != nil {
		l = math.Exp(float64(c.Sinks[h]) - m)
	}
	for j := lo; j < hi; j++ {
		l += math.Exp(c.logit64(i, h, j) - m)
	}

	for j := lo; j < hi; j++ {
		p := math.Exp(c.logit64(i, h, j)-m) / l
		for d, x := range c.KV.Value(j, h/c.Group()) {
			out[d] += p * float64(x)
		}
	}
	return m + math.Log(l)
}

// logit64 is the logit of position j.
func (c *Call) logit64(i, h, j int) float64 {
	var s float64
	k := c.KV.Key(j, h/c.Group())
	for d, x := range c.query(i, h) {
		s += float64(x) * float64(k[d])
	}
	s *= float64(c.scale())
	if c.Softcap > 0 {
		s = float64(c.Softcap) * math.Tanh(s/float64(c.Softcap))
	}
	return s
}
