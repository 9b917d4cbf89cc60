package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// define sets the functions that templates expect and those that rewrite calls. The library takes a function for a filter
// where it has none of the name.
func (m *meter) define(vars map[string]jinja.Value, now time.Time) {
	for name, f := range map[string]func(args []jinja.Value) (jinja.Value, error){
		"range": rangeOf, "raise_exception": raise,
		"strftime_now": func(args []jinja.Value) (jinja.Value, error) { return strftimeNow(now, args) },
		"cycler":       func([]jinja.Value) (jinja.Value, error) { return refuse("cycler") },
		"dict":         func([]jinja.Value) (jinja.Value, error) { return refuse("dict()") },
		fnOperand:      m.operand, fnNumber: m.number, fnInto: m.into, fnKeep: m.keep, fnBound: m.bound, fnPass: m.pass, fnEnter: m.enter, fnLeave: m.leave,
		fnReplace: m.replace, fnIndent: indentJSON,
		fnRefuse: func(args []jinja.Value) (jinja.Value, error) { return refuse(args[1].AsString()) },
	} {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			return m.first(f(args))
		})
	}
	vars["namespace"] = jinja.NewCallable("namespace", func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
		return m.first(m.namespace(args, named))
	})
}

// first keeps the first error: the library goes on after one in the bounds of a slice.
func (m *meter) first(v jinja.Value, err error) (jinja.Value, error) {
	if m.err == nil {
		m.err = err
	}
	return v, m.err
}

func refuse(what string) (jinja.Value, error) {
	return jinja.Undefined(), refused(what)
}

func refused(what string) error { return fmt.Errorf("chat: template has %s: %w", what, ErrRefused) }

func (m *meter) namespace(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
	if len(args) > 0 {
		return refuse("namespace() of a dictionary")
	}
	ns := jinja.NewDict()
	names := make([]string, 0, len(named))
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names) // the library has lost their order
	for _, name := range names {
		if _, err := m.size(named[name], 1); err != nil {
			return ns, err
		}
		ns.AsDict().Set(name, named[name])
	}
	m.namespaces[ns.AsDict()] = true
	return ns, m.spend(dictBytes)
}

func strftimeNow(now time.Time, args []jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("chat: strftime_now wants one format")
	}
	return jinja.NewString(strftime(now, args[0].AsString())), nil
}

func raise(args []jinja.Value) (jinja.Value, error) {
	message := "no reason given"
	if len(args) > 0 {
		message = args[0].String()
		if args[0].IsString() {
			message = args[0].AsString()
		}
	}
	return jinja.Undefined(), &RaisedError{message}
}

// replace is str.replace, whose result is as large as the product of its arguments.
func (m *meter) replace(args []jinja.Value) (jinja.Value, error) {
	if len(args) > 0 && args[0].IsUndefined() {
		args[0] = jinja.NewString("")
	}
	if len(args) < 3 || len(args) > 4 || !args[0].IsString() || !args[1].IsString() || !args[2].IsString() || len(args) == 4 && !args[3].IsInt() {
		return refuse("replace of other than strings")
	}
	s, old, by := args[0].AsString(), args[1].AsString(), args[2].AsString()
	count := strings.Count(s, old)
	if len(args) == 4 && args[3].AsInt() >= 0 {
		count = int(min(int64(count), args[3].AsInt()))
	}
	if n := len(s) + count*(len(by)-len(old)); n > m.maxString {
		return jinja.Undefined(), fmt.Errorf("%w: replace makes a string of %d bytes, at most %d", ErrLimit, n, m.maxString)
	}
	return jinja.NewString(strings.Replace(s, old, by, count)), nil
}

// indentJSON spreads JSON as Python does; the library's own indent sorts keys.
func indentJSON(args []jinja.Value) (jinja.Value, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(args[0].AsString()), "", strings.Repeat(" ", int(args[1].AsInt()))); err != nil {
		return jinja.Undefined(), fmt.Errorf("chat: tojson: %w", err)
	}
	return jinja.NewString(b.String()), nil
}

// rangeOf is Jinja's range with an end: the library builds the list in memory.
func rangeOf(args []jinja.Value) (jinja.Value, error) {
	if len(args) == 0 || len(args) > 3 {
		return jinja.Undefined(), fmt.Errorf("chat: range wants one to three integers, not %d", len(args))
	}
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		if !a.IsInt() {
			return jinja.Undefined(), fmt.Errorf("chat: range wants integers, not %.60s", a)
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
