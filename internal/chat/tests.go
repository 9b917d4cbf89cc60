package chat

import (
	"fmt"
	"strings"
)

// tests are what may stand behind "is".
var tests = map[string]func(r *run, v value, a args) (bool, error){
	"defined":     func(_ *run, v value, _ args) (bool, error) { return !isUndefined(v), nil },
	"undefined":   func(_ *run, v value, _ args) (bool, error) { return isUndefined(v), nil },
	"none":        func(_ *run, v value, _ args) (bool, error) { return v == nil, nil },
	"true":        func(_ *run, v value, _ args) (bool, error) { return v == true, nil },
	"false":       func(_ *run, v value, _ args) (bool, error) { return v == false, nil },
	"boolean":     isA[bool],
	"integer":     isA[int64],
	"float":       isA[float64],
	"string":      isA[string],
	"mapping":     isA[*dict],
	"callable":    isA[*callable],
	"number":      func(_ *run, v value, _ args) (bool, error) { _, _, _, ok := number(v); return ok, nil },
	"sequence":    isSequence,
	"iterable":    isSequence,
	"in":          func(r *run, v value, a args) (bool, error) { return r.contains(a.get(0, "seq", nil), v) },
	"eq":          isRelated("=="),
	"equalto":     isRelated("=="),
	"ne":          isRelated("!="),
	"lt":          isRelated("<"),
	"lessthan":    isRelated("<"),
	"le":          isRelated("<="),
	"gt":          isRelated(">"),
	"greaterthan": isRelated(">"),
	"ge":          isRelated(">="),
	"sameas":      isRelated("=="),
	"odd":         func(_ *run, v value, _ args) (bool, error) { return divides(v, 2, 1) },
	"even":        func(_ *run, v value, _ args) (bool, error) { return divides(v, 2, 0) },
	"divisibleby": func(_ *run, v value, a args) (bool, error) {
		n, _ := a.get(0, "num", nil).(int64)
		return divides(v, n, 0)
	},
	"upper": func(r *run, v value, _ args) (bool, error) { return isCase(r, v, strings.ToUpper, strings.ToLower) },
	"lower": func(r *run, v value, _ args) (bool, error) { return isCase(r, v, strings.ToLower, strings.ToUpper) },
}

func isUndefined(v value) bool {
	_, ok := v.(undefined)
	return ok
}

func isA[T any](_ *run, v value, _ args) (bool, error) {
	_, ok := v.(T)
	return ok, nil
}

// isSequence is Jinja's sequence and iterable, which in Python strings, dicts and what is undefined are, too.
func isSequence(_ *run, v value, _ args) (bool, error) {
	switch v := v.(type) {
	case string, *list, undefined:
		return true, nil
	case *dict:
		return !v.namespace, nil
	}
	return false, nil
}

func isRelated(op string) func(r *run, v value, a args) (bool, error) {
	return func(r *run, v value, a args) (bool, error) { return r.relation(op, v, a.get(0, "other", nil)) }
}

func divides(v value, n, rest int64) (bool, error) {
	i, ok := v.(int64)
	if !ok || n == 0 {
		return false, fmt.Errorf("chat: template divides %s", kind(v))
	}
	return (i%n+n)%n == rest, nil
}

// isCase is whether a text is in one case and has letters.
func isCase(r *run, v value, same, other func(string) string) (bool, error) {
	s, err := r.text(v)
	if err == nil {
		err = r.room(2, len(s))
	}
	if err != nil {
		return false, err
	}
	return s == same(s) && s != other(s), nil
}
