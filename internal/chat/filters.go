package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type filterFunc func(r *run, v value, a args) (value, error)

// filters are what may stand behind a bar, without map, which calls them.
var filters = map[string]filterFunc{
	"abs": absolute, "capitalize": onText(capitalize), "count": length, "d": orDefault, "default": orDefault, "dictsort": dictSort,
	"e": escapeHTML, "escape": escapeHTML, "first": first, "float": toFloat, "format": formatWith, "from_json": fromJSON,
	"fromjson": fromJSON, "indent": indent, "int": toInt, "items": itemsOf, "join": joinItems, "last": last, "length": length,
	"list": toList, "lower": onText(strings.ToLower), "max": extreme(1), "min": extreme(-1), "reject": chosen(false, false),
	"rejectattr": chosen(false, true), "replace": replace, "reverse": reverse, "round": round, "safe": sameValue,
	"select": chosen(true, false), "selectattr": chosen(true, true), "sort": sorted, "string": toString, "sum": sum,
	"title": onText(title), "tojson": toJSON, "trim": trim, "unique": unique, "upper": onText(strings.ToUpper), "wordcount": wordCount,
}

// filterNamed finds a filter, or nil.
func filterNamed(name string) filterFunc {
	if name == "map" {
		return mapped
	}
	return filters[name]
}

func sameValue(_ *run, v value, _ args) (value, error) { return v, nil }

// onText is a filter of texts whose result is about as long.
func onText(f func(string) string) filterFunc {
	return func(r *run, v value, _ args) (value, error) {
		s, err := r.text(v)
		if err == nil {
			err = r.room(3, len(s)) // a letter in the other case has at most three times the bytes
		}
		if err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

func absolute(_ *run, v value, _ args) (value, error) {
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		return nil, fmt.Errorf("chat: template takes the absolute value of %s", kind(v))
	case isInt:
		return max(i, -i), nil
	}
	return math.Abs(f), nil
}

func length(r *run, v value, _ args) (value, error) {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), r.work(len(v))
	case *list:
		return int64(len(v.items)), nil
	case *dict:
		return int64(len(v.keys)), nil
	case undefined:
		return int64(0), nil
	}
	return nil, fmt.Errorf("chat: template takes the length of %s", kind(v))
}

func orDefault(_ *run, v value, a args) (value, error) {
	if isUndefined(v) || truth(a.get(1, "boolean", false)) && !truth(v) {
		return a.get(0, "default_value", ""), nil
	}
	return v, nil
}

func escapeHTML(r *run, v value, _ args) (value, error) {
	s, err := r.text(v)
	if err == nil {
		err = r.room(5, len(s))
	}
	if err != nil {
		return nil, err
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s), nil
}

func first(r *run, v value, _ args) (value, error) {
	items, err := r.items(v)
	if err != nil || len(items) == 0 {
		return undefined{"the first of nothing"}, err
	}
	return items[0], nil
}

func last(r *run, v value, _ args) (value, error) {
	items, err := r.items(v)
	if err != nil || len(items) == 0 {
		return undefined{"the last of nothing"}, err
	}
	return items[len(items)-1], nil
}

func toFloat(_ *run, v value, a args) (value, error) {
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return f, nil
		}
	}
	if _, f, _, ok := number(v); ok {
		return f, nil
	}
	return a.get(0, "default", 0.0), nil
}

func toInt(_ *run, v value, a args) (value, error) {
	base, ok := a.get(1, "base", int64(10)).(int64)
	if !ok || base < 2 || base > 36 {
		return nil, fmt.Errorf("chat: template reads a number to a base that is not 2 to 36")
	}
	if s, ok := v.(string); ok {
		s = strings.ReplaceAll(strings.TrimSpace(s), "_", "")
		if i, err := strconv.ParseInt(s, int(base), 64); err == nil {
			return i, nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<62 {
			return int64(f), nil
		}
	}
	if i, f, isInt, ok := number(v); ok && isInt {
		return i, nil
	} else if ok && math.Abs(f) < 1<<62 {
		return int64(f), nil
	}
	return a.get(0, "default", int64(0)), nil
}

func toString(r *run, v value, _ args) (value, error) { return r.text(v) }

func toList(r *run, v value, _ args) (value, error) {
	items, err := r.items(v)
	if err == nil {
		err = r.room(len(items), itemBytes)
	}
	return &list{items: slices.Clone(items)}, err
}

func itemsOf(r *run, v value, _ args) (value, error) {
	d, ok := v.(*dict)
	switch {
	case isUndefined(v):
		return &list{}, nil
	case !ok:
		return nil, fmt.Errorf("chat: template takes the items of %s", kind(v))
	}
	return dictItems(r, d, args{})
}

func trim(r *run, v value, a args) (value, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	return strip(r, s, a)
}

func reverse(r *run, v value, _ args) (value, error) {
	items, err := r.items(v)
	if err == nil {
		err = r.room(len(items), itemBytes)
	}
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := v.(string); ok {
		return joinItems(r, &list{items: items}, args{})
	}
	return &list{items: items}, nil
}

func replace(r *run, v value, a args) (value, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	return replaceIn(r, s, a)
}

func joinItems(r *run, v value, a args) (value, error) {
	items, err := r.items(v)
	if err != nil {
		return nil, err
	}
	sep, err := r.text(a.get(0, "d", ""))
	if err != nil {
		return nil, err
	}
	attribute := a.get(1, "attribute", nil)
	var b strings.Builder
	for i, item := range items {
		if attribute != nil {
			if item, err = r.path(item, attribute); err != nil {
				return nil, err
			}
		}
		s, err := r.text(item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s)
		if err := r.made(len(sep) + len(s)); err != nil {
			return nil, err
		}
		if err := r.visit(b.Len(), 0); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

func indent(r *run, v value, a args) (value, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	width := ""
	switch w := a.get(0, "width", int64(4)).(type) {
	case int64:
		if w < 0 || w > maxIndent {
			return nil, fmt.Errorf("%w: an indent of %d, at most %d", ErrLimit, w, maxIndent)
		}
		width = strings.Repeat(" ", int(w))
	case string:
		width = w
	}
	blank := truth(a.get(2, "blank", false))
	if err := r.room(strings.Count(s, "\n")+1, len(width)); err != nil {
		return nil, err
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if i > 0 && (line != "" || blank) || i == 0 && truth(a.get(1, "first", false)) {
			lines[i] = width + line
		}
	}
	return r.string(strings.Join(lines, "\n"))
}

func round(_ *run, v value, a args) (value, error) {
	_, f, _, ok := number(v)
	digits, isInt := a.get(0, "precision", int64(0)).(int64)
	if !ok || !isInt || digits < -300 || digits > 300 {
		return nil, fmt.Errorf("chat: template rounds %s", kind(v))
	}
	scale := math.Pow(10, float64(digits))
	switch a.get(1, "method", "common") {
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return math.RoundToEven(f*scale) / scale, nil
}

func wordCount(r *run, v value, _ args) (value, error) {
	s, err := r.text(v)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for range strings.FieldsSeq(s) {
		n++
	}
	return n, r.work(len(s))
}
