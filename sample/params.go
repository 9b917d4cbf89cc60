package sample

import (
	"fmt"
	"math"
)

// Params says how tokens are chosen. The zero value is not valid: start from Default.
type Params struct {
	Temperature float32 // 0: greedy
	TopK        int     // 0: off
	TopP        float32 // in (0, 1]; 1: off
	MinP        float32 // in [0, 1]; 0: off

	RepetitionPenalty float32 // in [0.01, 100]; 1: off
	FrequencyPenalty  float32 // in [-2, 2]; 0: off
	PresencePenalty   float32 // in [-2, 2]; 0: off

	LogitBias map[int32]float32 // in [-100, 100], by token

	Seed uint64

	LogProbs    bool // compute the log-probability of each chosen token
	TopLogProbs int  // and of this many likeliest tokens, at most MaxTopLogProbs
}

// MaxTopLogProbs is the largest value of Params.TopLogProbs.
const MaxTopLogProbs = 20

// Default draws from the model's own distribution: temperature 1, all else off.
func Default() Params { return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1} }

// Greedy always takes the likeliest token.
func Greedy() Params { return Params{TopP: 1, RepetitionPenalty: 1} }

// Validate returns an error that names the first field out of range, its value and the range.
func (p Params) Validate() error {
	check := func(name string, v, lo, hi float32, lowIn bool, hint string) error {
		if v > lo && v <= hi || lowIn && v == lo { // false for NaN
			return nil
		}
		open := "("
		if lowIn {
			open = "["
		}
		return fmt.Errorf("sample: %s is %v: want a value in %s%v, %v]%s", name, v, open, lo, hi, hint)
	}
	if t := float64(p.Temperature); !(t >= 0) || math.IsInf(t, 1) {
		return fmt.Errorf("sample: temperature is %v: want a finite value of at least 0 (0 is greedy)", p.Temperature)
	}
	if p.TopK < 0 {
		return fmt.Errorf("sample: top-k is %d: want at least 0 (0 is off)", p.TopK)
	}
	if p.TopLogProbs < 0 || p.TopLogProbs > MaxTopLogProbs {
		return fmt.Errorf("sample: top log-probs is %d: want 0 to %d", p.TopLogProbs, MaxTopLogProbs)
	}
	if p.TopLogProbs > 0 && !p.LogProbs {
		return fmt.Errorf("sample: top log-probs is %d: set log-probs too", p.TopLogProbs)
	}
	for _, err := range [...]error{
		check("top-p", p.TopP, 0, 1, false, " (1 is off)"),
		check("min-p", p.MinP, 0, 1, true, " (0 is off)"),
		check("repetition penalty", p.RepetitionPenalty, 0.01, 100, true, " (1 is off)"),
		check("frequency penalty", p.FrequencyPenalty, -2, 2, true, ""),
		check("presence penalty", p.PresencePenalty, -2, 2, true, ""),
	} {
		if err != nil {
			return err
		}
	}
	for tok, b := range p.LogitBias {
		if tok < 0 {
			return fmt.Errorf("sample: logit bias for token %d: want a token of at least 0", tok)
		}
		if err := check(fmt.Sprintf("logit bias of token %d", tok), b, -100, 100, true, ""); err != nil {
			return err
		}
	}
	return nil
}

func (p *Params) penalises() bool {
	return p.RepetitionPenalty != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0
}
