package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Mode is the kind of a Policy.
type Mode uint8

// The modes.
const (
	ModeAuto Mode = iota
	ModeNone
	ModeFixed
	ModeSplits
)

// Policy says how KV ranges are cut. The zero value is Auto.
type Policy struct {
	Mode Mode
	N    int // ModeFixed: tokens per item; ModeSplits: items per sequence and KV head
}

// Auto splits where the cost model predicts a gain.
func Auto() Policy { return Policy{} }

// None never splits.
func None() Policy { return Policy{Mode: ModeNone} }

// Fixed cuts every tokens tokens, rounded up to whole pages, counted from token 0 even under a window.
// An item boundary depends on nothing but the sequence's own length and this number.
func Fixed(tokens int) Policy { return Policy{Mode: ModeFixed, N: tokens} }

// Splits cuts every sequence into n pieces, or into pages if it has fewer.
func Splits(n int) Policy { return Policy{Mode: ModeSplits, N: n} }

// ParsePolicy reads "auto", "none", "fixed:N" or "splits:S".
func ParsePolicy(s string) (Policy, error) {
	name, arg, hasArg := strings.Cut(s, ":")
	p := Policy{}
	switch name {
	case "auto":
	case "none":
		p.Mode = ModeNone
	case "fixed":
		p.Mode = ModeFixed
	case "splits":
		p.Mode = ModeSplits
	default:
		return p, fmt.Errorf("plan: unknown policy %q: want auto, none, fixed:N or splits:S", s)
	}
	if wantArg := p.Mode == ModeFixed || p.Mode == ModeSplits; wantArg != hasArg {
		return p, fmt.Errorf("plan: policy %q: want auto, none, fixed:N or splits:S", s)
	}
	if hasArg {
		n, err := strconv.Atoi(arg)
		if errors.Is(err, strconv.ErrRange) {
			return p, p.bad(arg)
		}
		if err != nil {
			return p, fmt.Errorf("plan: policy %q: %q is not a number", s, arg)
		}
		p.N = n
	}
	return p, p.check()
}

func (p Policy) check() error {
	switch {
	case p.Mode > ModeSplits:
		return fmt.Errorf("plan: unknown policy mode %d", p.Mode)
	case (p.Mode == ModeFixed || p.Mode == ModeSplits) && (p.N < 1 || p.N > maxTokens):
		return p.bad(strconv.Itoa(p.N))
	}
	return nil
}

// bad refuses the number n.
func (p Policy) bad(n string) error {
	if p.Mode == ModeFixed {
		return fmt.Errorf("plan: fixed:%s: want 1 to %d tokens per item", n, maxTokens)
	}
	return fmt.Errorf("plan: splits:%s: want 1 to %d splits", n, maxTokens)
}

// String is what ParsePolicy reads.
func (p Policy) String() string {
	switch p.Mode {
	case ModeNone:
		return "none"
	case ModeFixed:
		return "fixed:" + strconv.Itoa(p.N)
	case ModeSplits:
		return "splits:" + strconv.Itoa(p.N)
	}
	return "auto"
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePolicy(string(text))
	return err
}
