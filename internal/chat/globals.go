package chat

import "fmt"

// globals are the functions that every template finds.
func globals() map[string]value {
	vars := map[string]value{}
	for name, f := range map[string]func(r *run, a args) (value, error){
		"range": rangeOf, "namespace": namespaceOf, "dict": dictCall, "joiner": joiner, "cycler": cycler,
		"raise_exception": raise, "strftime_now": strftimeNow,
	} {
		vars[name] = &callable{name, f}
	}
	return vars
}

func strftimeNow(r *run, a args) (value, error) {
	if len(a.pos) == 1 {
		if format, ok := a.pos[0].(string); ok && len(format) <= maxIndent {
			return r.string(strftime(r.now, format))
		}
	}
	return nil, fmt.Errorf("chat: strftime_now wants one format")
}

func raise(r *run, a args) (value, error) {
	message, err := r.text(a.get(0, "message", "no reason given"))
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{message}
}

// rangeOf is Python's range, as a list.
func rangeOf(r *run, a args) (value, error) {
	if len(a.pos) == 0 || len(a.pos) > 3 {
		return nil, fmt.Errorf("chat: range wants one to three integers, not %d", len(a.pos))
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("chat: range wants integers, not %s", kind(v))
		}
		bounds[i] = n
	}
	if len(a.pos) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	at, end, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, fmt.Errorf("chat: range with a step of 0")
	}
	var items []value
	for step > 0 && at < end || step < 0 && at > end {
		if len(items) == maxRange {
			return nil, fmt.Errorf("%w: range of more than %d numbers", ErrLimit, maxRange)
		}
		items = append(items, at)
		next := at + step
		if (next > at) != (step > 0) {
			break // beyond 64 bits
		}
		at = next
	}
	return r.list(items)
}

func namespaceOf(r *run, a args) (value, error) {
	v, err := dictCall(r, a)
	if err == nil {
		v.(*dict).namespace = true
	}
	return v, err
}

func dictCall(r *run, a args) (value, error) {
	d := newDict()
	if from, ok := a.get(0, "", nil).(*dict); ok && len(a.pos) > 0 {
		for _, k := range from.keys {
			d.set(k, from.values[k])
		}
	}
	for _, k := range sortedKeys(a.kw) {
		d.set(k, a.kw[k])
	}
	return d, r.made(len(d.keys) * 3 * itemBytes)
}

func joiner(r *run, a args) (value, error) {
	sep, err := r.text(a.get(0, "sep", ", "))
	used := false
	return &callable{"joiner", func(*run, args) (value, error) {
		if !used {
			used = true
			return "", nil
		}
		return sep, nil
	}}, err
}

func cycler(_ *run, a args) (value, error) {
	if len(a.pos) == 0 {
		return nil, fmt.Errorf("chat: cycler of nothing")
	}
	at := 0
	d := newDict()
	d.namespace = true // its attributes are no methods of a dict
	d.set("current", a.pos[0])
	d.set("next", &callable{"cycler.next", func(*run, args) (value, error) {
		v := a.pos[at]
		at = (at + 1) % len(a.pos)
		d.set("current", a.pos[at])
		return v, nil
	}})
	d.set("reset", &callable{"cycler.reset", func(*run, args) (value, error) {
		at = 0
		d.set("current", a.pos[0])
		return nil, nil
	}})
	return d, nil
}
