package chat

import (
	"fmt"
	"unicode/utf8"
)

func (x sliceOf) eval(r *run, s *scope) (value, error) {
	v, err := x.obj.eval(r, s)
	if err != nil {
		return nil, err
	}
	var parts [3]value
	for i, e := range []expr{x.lo, x.hi, x.step} {
		if e == nil {
			continue
		}
		if parts[i], err = e.eval(r, s); err != nil {
			return nil, err
		}
		if _, ok := parts[i].(int64); !ok && parts[i] != nil {
			return nil, fmt.Errorf("chat: template slices at %s", kind(parts[i]))
		}
	}
	switch v := v.(type) {
	case *list:
		at, n, step, err := span(parts, len(v.items))
		if err != nil {
			return nil, err
		}
		if err := r.room(n, itemBytes); err != nil {
			return nil, err
		}
		items := make([]value, n)
		for i := range items {
			items[i] = v.items[at+i*step]
		}
		return &list{items: items}, nil
	case string:
		return r.sliceString(v, parts)
	}
	return nil, fmt.Errorf("chat: template slices %s", kind(v))
}

func (r *run) sliceString(s string, parts [3]value) (value, error) {
	if err := r.work(len(s)); err != nil {
		return nil, err
	}
	if ascii(s) {
		at, n, step, err := span(parts, len(s))
		switch {
		case err != nil:
			return nil, err
		case step == 1:
			return s[at : at+n], nil
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = s[at+i*step]
		}
		return r.string(string(b))
	}
	at, n, step, err := span(parts, utf8.RuneCountInString(s))
	if err != nil {
		return nil, err
	}
	if step == 1 {
		s = s[byteOf(s, at):]
		return s[:byteOf(s, n)], nil
	}
	if err := r.room(len(s), 4); err != nil {
		return nil, err
	}
	chars, out := []rune(s), make([]rune, n)
	for i := range out {
		out[i] = chars[at+i*step]
	}
	return r.string(string(out))
}

// byteOf is where character n begins, or the end.
func byteOf(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// span is where a slice of n items begins, how many it has, and how far apart they are, by Python's rules.
func span(parts [3]value, n int) (at, count, step int, err error) {
	part := func(i, def int) int {
		v, ok := parts[i].(int64)
		if !ok {
			return def
		}
		return int(max(-1<<40, min(v, 1<<40)))
	}
	if step = part(2, 1); step == 0 {
		return 0, 0, 0, fmt.Errorf("chat: template slices with a step of 0")
	}
	// clamp brings an end into lo … hi, where lo means before the first item.
	clamp := func(i, lo, hi int) int {
		if i < 0 {
			i += n
		}
		return max(lo, min(i, hi))
	}
	if step > 0 {
		at = clamp(part(0, 0), 0, n)
		end := clamp(part(1, n), 0, n)
		return at, max(0, (end-at+step-1)/step), step, nil
	}
	at, end := n-1, -1
	if parts[0] != nil {
		at = clamp(part(0, 0), -1, n-1)
	}
	if parts[1] != nil {
		end = clamp(part(1, 0), -1, n-1)
	}
	return at, max(0, (at-end-step-1)/-step), step, nil
}
