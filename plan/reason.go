package plan

import "fmt"

// Choice is the outcome of a policy.
type Choice uint8

// The outcomes. All but the first are Auto's.
const (
	ChosePolicy    Choice = iota // the policy leaves no choice
	ChoseSplit                   // splitting promises a gain
	ChoseNone                    // it does not
	ChoseOneWorker               // there is nobody to share with
	ChoseTooShort                // no sequence has twice the least tokens of an item
)

// Reason is why a plan looks as it does. It is data, so that making it allocates nothing; String words it.
type Reason struct {
	Choice  Choice
	Policy  Policy
	Splits  int   // most per sequence and KV head
	AtLimit bool  // no sequence may be cut into more: MinTokens or MaxSplits
	NoneNS  int64 // lower bound of the call without splits
	SplitNS int64 // upper bound of the best candidate with splits
	Items   int
	Workers int
}

// String says why in one or two sentences: the choice, and whether waves are whole.
func (r Reason) String() string { return r.choice() + "; " + r.waves() }

func (r Reason) choice() string {
	us := func(ns int64) string { return fmt.Sprintf("%.1f µs", float64(ns)/1000) }
	switch r.Choice {
	case ChosePolicy:
		return "policy " + r.Policy.String()
	case ChoseSplit:
		return fmt.Sprintf("split, the longest sequence into %d: at most %s predicted against at least %s unsplit",
			r.Splits, us(r.SplitNS), us(r.NoneNS))
	case ChoseOneWorker:
		return "no split: one worker"
	case ChoseTooShort:
		return "no split: every sequence is too short for two items"
	}
	if r.SplitNS > 0 {
		return fmt.Sprintf("no split: the best promises %s at most, unsplit takes %s at least; a gain of 1/32 is asked for",
			us(r.SplitNS), us(r.NoneNS))
	}
	return "no split: nothing to share out"
}

func (r Reason) waves() string {
	waves := float64(r.Items) / float64(max(1, r.Workers))
	busy := fmt.Sprintf("%d of %d workers", r.Items, r.Workers)
	switch {
	case r.Items == 0:
		return "no items"
	case r.Items == r.Workers:
		return "one whole wave"
	case r.Items%r.Workers == 0:
		return fmt.Sprintf("%d whole waves", r.Items/r.Workers)
	case r.Choice != ChoseSplit && r.Items < r.Workers:
		return busy
	case r.Choice != ChoseSplit:
		return fmt.Sprintf("%.2f waves", waves)
	case r.AtLimit && r.Items < r.Workers:
		return busy + ": MinTokens and MaxSplits allow no more splits"
	case r.Items < r.Workers:
		return busy + ": one more split each would cost a second wave or more than it gains"
	}
	return fmt.Sprintf("%.2f waves: no whole number is predicted to be faster", waves)
}

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
