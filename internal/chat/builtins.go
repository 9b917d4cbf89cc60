package chat

import (
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// run is one rendering: what its functions share.
type run struct {
	now          time.Time
	deadline     time.Time
	loops, calls int
	err          error // the first error of a function of ours
}

type callArgs = []jinja.Value

// define sets the functions that templates expect and the guards that rewrite calls.
func (r *run) define(vars map[string]jinja.Value) {
	for name, f := range map[string]func(args callArgs) (jinja.Value, error){
		"range": rangeOf, "strftime_now": r.strftimeNow, "raise_exception": raise,
		guardLoop: r.countLoop, guardCall: r.countCall, guardSize: checkSize,
	} {
		vars[name] = jinja.NewCallable(name, func(args callArgs, _ map[string]jinja.Value) (jinja.Value, error) {
			v, err := f(args)
			if err != nil && r.err == nil {
				r.err = err
			}
			return v, err
		})
	}
}

func (r *run) strftimeNow(args callArgs) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("chat: strftime_now wants one format")
	}
	return jinja.NewString(strftime(r.now, args[0].AsString())), nil
}

func raise(args callArgs) (jinja.Value, error) {
	message := "no reason given"
	if len(args) > 0 {
		message = args[0].String()
		if args[0].IsString() {
			message = args[0].AsString()
		}
	}
	return jinja.Undefined(), &RaisedError{message}
}

func (r *run) countLoop(callArgs) (jinja.Value, error) {
	if r.loops++; r.loops > maxLoops {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d passes through loops", ErrLimit, maxLoops)
	}
	if r.loops%64 == 0 && time.Now().After(r.deadline) {
		return jinja.Undefined(), fmt.Errorf("%w: more than %v", ErrLimit, timeout)
	}
	return jinja.None(), nil
}

func (r *run) countCall(callArgs) (jinja.Value, error) {
	if r.calls++; r.calls > maxCalls {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d calls of macros", ErrLimit, maxCalls)
	}
	return jinja.None(), nil
}

// checkSize looks at variables after an assignment, so that doubling one in a loop ends early.
func checkSize(args callArgs) (jinja.Value, error) {
	for _, a := range args {
		if a.IsString() && len(a.AsString()) > maxStringBytes || a.IsList() && a.AsList().Len() > maxStringBytes/64 {
			return jinja.Undefined(), fmt.Errorf("%w: a variable is above %d bytes", ErrLimit, maxStringBytes)
		}
	}
	return jinja.None(), nil
}

// rangeOf is Jinja's range with an end: the library builds the list in memory.
func rangeOf(args callArgs) (jinja.Value, error) {
	if len(args) == 0 || len(args) > 3 {
		return jinja.Undefined(), fmt.Errorf("chat: range wants one to three integers, not %d", len(args))
	}
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		if !a.IsInt() {
			return jinja.Undefined(), fmt.Errorf("chat: range wants integers, not %s", a)
		}
		bounds[i] = a.AsInt()
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	first, end, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return jinja.Undefined(), errors.New("chat: range with a step of 0")
	}
	var items []jinja.Value
	for i := first; step > 0 && i < end || step < 0 && i > end; i += step {
		if len(items) == maxRange {
			return jinja.Undefined(), fmt.Errorf("%w: range of more than %d numbers", ErrLimit, maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}
