package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// formatWith is the filter format: Python's string % arguments.
func formatWith(r *run, v value, a args) (value, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	return r.format(s, &list{items: a.pos})
}

// format is Python's s % v for %s, %r, %d, %i, %f, %g, %e, %x, %X, %o, %c and %%.
func (r *run) format(s string, v value) (value, error) {
	values := []value{v}
	if l, ok := v.(*list); ok {
		values = l.items
	}
	var b strings.Builder
	for {
		k := strings.IndexByte(s, '%')
		if k < 0 {
			break
		}
		b.WriteString(s[:k])
		s = s[k+1:]
		n := strings.IndexFunc(s, func(c rune) bool { return !strings.ContainsRune("0123456789.+- #", c) })
		if n > maxSpec {
			return nil, fmt.Errorf("%w: a format of %d characters, at most %d", ErrLimit, n, maxSpec)
		}
		if n < 0 {
			return nil, fmt.Errorf("chat: template formats by %.20q", "%"+s)
		}
		spec, verb := s[:n], s[n]
		s = s[n+1:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(values) == 0 {
			return nil, fmt.Errorf("chat: template formats with too few values")
		}
		text, err := r.formatOne(spec, verb, values[0])
		if err != nil {
			return nil, err
		}
		values = values[1:]
		b.WriteString(text)
		if err := r.visit(b.Len(), 0); err != nil {
			return nil, err
		}
	}
	if len(values) > 0 {
		if _, ok := v.(*list); ok || b.Len() == 0 && s == "" {
			return nil, fmt.Errorf("chat: template formats with too many values")
		}
	}
	b.WriteString(s)
	return r.string(b.String())
}

// formatOne is one value in a format such as 5.2 and f.
func (r *run) formatOne(spec string, verb byte, v value) (string, error) {
	for _, part := range strings.FieldsFunc(spec, func(c rune) bool { return c < '0' || c > '9' }) {
		if n, _ := strconv.Atoi(part); n > maxIndent {
			return "", fmt.Errorf("%w: a width of %d, at most %d", ErrLimit, n, maxIndent)
		}
	}
	i, f, isInt, isNumber := number(v)
	switch {
	case verb == 's':
		s, err := r.text(v)
		if err == nil {
			err = r.made(len(s) + maxIndent)
		}
		return fmt.Sprintf("%"+spec+"s", s), err
	case verb == 'r':
		var b strings.Builder
		err := r.repr(&b, v, 0)
		return b.String(), err
	case !isNumber:
	case strings.IndexByte("dixXoc", verb) >= 0:
		if !isInt {
			i = int64(math.Trunc(f))
		}
		if verb == 'i' {
			verb = 'd'
		}
		return fmt.Sprintf("%"+spec+string(verb), i), nil
	case strings.IndexByte("fFgGeE", verb) >= 0:
		if isInt {
			f = float64(i)
		}
		if strings.IndexByte("gG", verb) >= 0 && !strings.Contains(spec, ".") {
			spec += ".6"
		}
		return fmt.Sprintf("%"+spec+string(verb), f), nil
	}
	return "", fmt.Errorf("chat: template formats %s by %%%s%c", kind(v), spec, verb)
}

// formatBraces is str.format for {}, {0} and {name}.
func formatBraces(r *run, s string, a args) (value, error) {
	var b strings.Builder
	next := 0
	for s != "" {
		k := strings.IndexAny(s, "{}")
		if k < 0 || k+1 == len(s) {
			break
		}
		b.WriteString(s[:k])
		if s[k+1] == s[k] {
			b.WriteByte(s[k])
			s = s[k+2:]
			continue
		}
		name, rest, ok := strings.Cut(s[k+1:], "}")
		if s[k] == '}' || !ok || strings.ContainsAny(name, "{:!.[") {
			return nil, fmt.Errorf("chat: template formats by %.20q", s[k:])
		}
		s = rest
		if name == "" {
			name = strconv.Itoa(next)
			next++
		}
		v, ok := a.kw[name]
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(a.pos) {
			v, ok = a.pos[i], true
		}
		if !ok {
			return nil, fmt.Errorf("chat: template formats with no value for %.20q", name)
		}
		text, err := r.text(v)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
		if err := r.made(len(text)); err != nil {
			return nil, err
		}
		if err := r.visit(b.Len(), 0); err != nil {
			return nil, err
		}
	}
	b.WriteString(s)
	return r.string(b.String())
}
