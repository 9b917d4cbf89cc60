package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Report is a plan together with what was asked and with the unsplit plan to compare it with: what
// `flashdecode plan` prints, as text or JSON.
type Report struct {
	Shape  Shape   `json:"shape"`
	Seqs   []Seq   `json:"seqs"`
	Limits Limits  `json:"limits"`
	Policy Policy  `json:"policy"`
	Waves  float64 `json:"waves"`
	Plan   Plan    `json:"plan"`
	// The unsplit plan.
	NoneEstNS     int64   `json:"none_est_ns"`
	NoneImbalance float64 `json:"none_imbalance"`
	// Launches are the ways to launch a decode kernel, the best first. Empty where nothing is launched: on a
	// CPU, or for sequences that bring more query rows than decode kernels take.
	Launches []Launch `json:"launches,omitempty"`
}

// maxDecodeRows is the most query rows of a sequence that decode kernels are for.
const maxDecodeRows = 8

// NewReport plans the call by the policy and by None.
func NewReport(shape Shape, seqs []Seq, lim Limits, pol Policy) (*Report, error) {
	r := &Report{Shape: shape, Seqs: seqs, Limits: lim, Policy: pol}
	var pl Planner
	var none Plan
	if err := pl.Plan(&none, shape, seqs, lim, None()); err != nil {
		return nil, err
	}
	if err := pl.Plan(&r.Plan, shape, seqs, lim, pol); err != nil {
		return nil, err
	}
	r.Waves = r.Plan.Waves()
	r.NoneEstNS, r.NoneImbalance = none.EstNS, none.Imbalance
	return r, r.launches()
}

// launches fills Launches for the policy Auto.
func (r *Report) launches() (err error) {
	if r.Limits.Launch.W8.CTAs == 0 || r.Policy.Mode != ModeAuto || len(r.Seqs) == 0 {
		return nil
	}
	q := LaunchRequest{Shape: r.Shape, Units: len(r.Seqs)}
	for _, s := range r.Seqs {
		if s.QLen > maxDecodeRows {
			return nil
		}
		q.KVLen, q.Tokens = max(q.KVLen, int(s.KVLen)), q.Tokens+int64(s.KVLen)
		q.Rows = max(q.Rows, int(s.QLen)*r.Shape.QHeads/r.Shape.KVHeads, 1)
	}
	r.Launches, err = Launches(q, &r.Limits)
	return err
}

// String is the printed form: the head, then the items, by sequence if there are many.
func (r *Report) String() string {
	var b strings.Builder
	s, p := r.Shape, &r.Plan
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	tiles := ""
	if r.Limits.QTile > 0 {
		tiles = fmt.Sprintf(", query tiles of %d rows", r.Limits.QTile)
	}
	fmt.Fprintf(w, "shape\t%d query heads, %d KV heads, head dim %d, %d bytes per token and KV head, page %d%s\n",
		s.QHeads, s.KVHeads, s.HeadDim, s.TokenBytes, s.PageSize, tiles)
	fmt.Fprintf(w, "sequences\t%s\n", describe(r.Seqs))
	fmt.Fprintf(w, "device\t%s, %d workers\n", r.Limits.Name, p.Workers)
	fmt.Fprintf(w, "policy\t%s\n", r.Policy)
	fmt.Fprintf(w, "items\t%d%s\n", len(p.Items), tokenRange(p.Items))
	fmt.Fprintf(w, "waves\t%.2f\n", r.Waves)
	fmt.Fprintf(w, "imbalance\t%.3f (unsplit %.3f)\n", p.Imbalance, r.NoneImbalance)
	fmt.Fprintf(w, "workspace\t%d bytes, %d States, %d merges\n", p.WorkspaceBytes, p.States, len(p.Merges))
	fmt.Fprintf(w, "estimated\t%.1f µs (unsplit %.1f µs, ratio %.2f)\n",
		float64(p.EstNS)/1000, float64(r.NoneEstNS)/1000, float64(r.NoneEstNS)/float64(max(1, p.EstNS)))
	fmt.Fprintf(w, "reason\t%v\n", p.Reason)
	for i, l := range r.Launches {
		name := "launch"
		if i > 0 {
			name = "or"
		}
		fmt.Fprintf(w, "%s\t%v: %d CTAs, %.1f µs predicted\n", name, l, l.CTAs, float64(l.EstNS)/1000)
	}
	w.Flush()
	if len(p.Items) > 0 {
		b.WriteByte('\n')
		b.WriteString(p.String())
	}
	return b.String()
}

// describe lists a few sequences, and sums up many.
func describe(seqs []Seq) string {
	if len(seqs) == 0 {
		return "none"
	}
	if len(seqs) <= 4 {
		parts := make([]string, len(seqs))
		for i, s := range seqs {
			parts[i] = fmt.Sprint(s.KVLen)
			if s.First > 0 {
				parts[i] += fmt.Sprintf(" from %d", s.First)
			}
			if s.QLen != 1 {
				parts[i] += fmt.Sprintf(" (%d query rows)", s.QLen)
			}
		}
		return fmt.Sprintf("%d of %s tokens", len(seqs), strings.Join(parts, ", "))
	}
	lo, hi, total := seqs[0].KVLen, seqs[0].KVLen, int64(0)
	for _, s := range seqs {
		lo, hi, total = min(lo, s.KVLen), max(hi, s.KVLen), total+int64(s.KVLen)
	}
	return fmt.Sprintf("%d of %d … %d tokens, %d in all", len(seqs), lo, hi, total)
}

// tokenRange says how long items are.
func tokenRange(items []Item) string {
	if len(items) == 0 {
		return ""
	}
	lo, hi := items[0].Count, items[0].Count
	for _, it := range items {
		lo, hi = min(lo, it.Count), max(hi, it.Count)
	}
	if lo == hi {
		return fmt.Sprintf(" of %d tokens", lo)
	}
	return fmt.Sprintf(" of %d … %d tokens", lo, hi)
}

// mostLines is how many items String lists one by one.
const mostLines = 32

// String lists the items in the order of claims, or, if there are many, sums up those of a sequence.
func (p *Plan) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	if len(p.Items) > mostLines {
		p.summary(w)
		w.Flush()
		return b.String()
	}
	fmt.Fprintln(w, "item\tseq\thead\trows\tfirst\ttokens\tstate\t")
	for i, it := range p.Items {
		state := "-"
		if it.State >= 0 {
			state = fmt.Sprint(it.State)
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d+%d\t%d\t%d\t%s\t\n", i, it.Seq, it.KVHead, it.Row, it.Rows, it.First, it.Count, state)
	}
	w.Flush()
	return b.String()
}

// summary prints a line per sequence and stops after mostLines of them.
func (p *Plan) summary(w *tabwriter.Writer) {
	var seqs int32
	for _, it := range p.Items {
		seqs = max(seqs, it.Seq+1)
	}
	type sum struct{ items, splits, lo, hi int32 }
	sums := make([]sum, seqs)
	for _, it := range p.Items {
		s := &sums[it.Seq]
		if s.items == 0 || it.Count < s.lo {
			s.lo = it.Count
		}
		s.hi = max(s.hi, it.Count)
		s.items++
		s.splits = max(s.splits, 1)
	}
	for _, m := range p.Merges {
		sums[m.Seq].splits = max(sums[m.Seq].splits, m.Splits)
	}
	fmt.Fprintln(w, "seq\titems\tsplits\tshortest\tlongest\t")
	lines := 0
	for b, s := range sums {
		if s.items == 0 {
			continue
		}
		if lines++; lines > mostLines {
			fmt.Fprintf(w, "…\t\t\t\t\t\n")
			return
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t\n", b, s.items, s.splits, s.lo, s.hi)
	}
}
