package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// A value is nil (None), bool, int64, float64, string, *list, *dict, *callable, loopValue or undefined.
type (
	value any

	// undefined is a name, key or index that leads nowhere. It prints as nothing.
	undefined struct{ name string }
	list      struct {
		items []value
		tuple bool // which only prints differently
	}
	// dict keeps its keys, which are texts, in order. Only those of namespaces change once they are made, as in transformers, where
	// templates run in an immutable sandbox.
	dict struct {
		keys      []string
		values    map[string]value
		namespace bool
	}
	callable struct {
		name string
		call func(r *run, a args) (value, error)
	}
	// args are the arguments of a call.
	args struct {
		pos []value
		kw  map[string]value
	}
)

func newDict() *dict { return &dict{values: map[string]value{}} }

func (d *dict) set(key string, v value) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}

// get is the argument at place i or called name, or def.
func (a args) get(i int, name string, def value) value {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if v, ok := a.kw[name]; ok {
		return v
	}
	return def
}

// truth is Python's.
func truth(v value) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return v.namespace || len(v.keys) > 0
	}
	return true
}

// kind names a value's type for errors, as Python does.
func kind(v value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		return "list"
	case *dict:
		return "dict"
	case *callable:
		return "function " + v.name
	case undefined:
		return fmt.Sprintf("%.40q, which is undefined", v.name)
	}
	return fmt.Sprintf("%T", v)
}

// text is what a value prints as, str(v) in Python.
func (r *run) text(v value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case undefined:
		return "", nil
	}
	var b strings.Builder
	if err := r.repr(&b, v, 0); err != nil {
		return "", err
	}
	return b.String(), r.made(b.Len())
}

// repr writes a value as Python's repr does.
func (r *run) repr(b *strings.Builder, v value, depth int) error {
	if err := r.visit(b.Len(), depth); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{false: "False", true: "True"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(floatText(v))
	case string:
		quotePython(b, v)
	case undefined:
		b.WriteString("Undefined")
	case *callable:
		b.WriteString("<function " + v.name + ">")
	case *list:
		brackets := map[bool]string{false: "[]", true: "()"}[v.tuple]
		b.WriteByte(brackets[0])
		for i, x := range v.items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := r.repr(b, x, depth+1); err != nil {
				return err
			}
		}
		if v.tuple && len(v.items) == 1 {
			b.WriteByte(',')
		}
		b.WriteByte(brackets[1])
	case *dict:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			quotePython(b, k)
			b.WriteString(": ")
			if err := r.repr(b, v.values[k], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	}
	return nil
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quotePython writes s as a Python literal.
func quotePython(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f && c < 0xa0:
			fmt.Fprintf(b, `\x%02x`, c)
		case c < unicode.MaxASCII || unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 1<<16:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteByte(quote)
}

// number is a value as a number: an integer, or else a float. Python's bools are integers.
func number(v value) (i int64, f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// equal is Python's ==.
func (r *run) equal(x, y value, depth int) (bool, error) {
	if err := r.visit(0, depth); err != nil {
		return false, err
	}
	if xi, xf, xInt, ok := number(x); ok {
		yi, yf, yInt, ok := number(y)
		if xInt && yInt {
			return ok && xi == yi, nil
		}
		return ok && xf == yf, nil
	}
	switch x := x.(type) {
	case nil:
		return y == nil, nil
	case undefined:
		_, ok := y.(undefined)
		return ok, nil
	case string:
		s, ok := y.(string)
		return ok && s == x, nil
	case *callable:
		c, ok := y.(*callable)
		return ok && c == x, nil
	case *list:
		l, ok := y.(*list)
		if !ok || len(l.items) != len(x.items) {
			return false, nil
		}
		for i := range x.items {
			if same, err := r.equal(x.items[i], l.items[i], depth+1); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	case *dict:
		d, ok := y.(*dict)
		if !ok || len(d.keys) != len(x.keys) || (d.namespace || x.namespace) && d != x {
			return false, nil
		}
		for _, k := range x.keys {
			other, ok := d.values[k]
			if !ok {
				return false, nil
			}
			if same, err := r.equal(x.values[k], other, depth+1); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return false, nil
}

// compare is negative, zero or positive as x is less than, equal to or greater than y.
func (r *run) compare(x, y value, depth int) (int, error) {
	if err := r.visit(0, depth); err != nil {
		return 0, err
	}
	xi, xf, xInt, xOK := number(x)
	yi, yf, yInt, yOK := number(y)
	switch {
	case xOK && yOK && xInt && yInt:
		return cmpOrdered(xi, yi), nil
	case xOK && yOK:
		return cmpOrdered(xf, yf), nil
	}
	switch x := x.(type) {
	case string:
		if s, ok := y.(string); ok {
			return strings.Compare(x, s), nil
		}
	case *list:
		l, ok := y.(*list)
		if !ok {
			break
		}
		for i := range min(len(x.items), len(l.items)) {
			if c, err := r.compare(x.items[i], l.items[i], depth+1); c != 0 || err != nil {
				return c, err
			}
		}
		return len(x.items) - len(l.items), nil
	}
	return 0, fmt.Errorf("chat: template orders %s and %s", kind(x), kind(y))
}

func cmpOrdered[T int64 | float64](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// fromGo makes a value of a Go value; unknown types are undefined.
func fromGo(v any) value {
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v
	case int:
		return int64(v)
	case []any:
		l := &list{items: make([]value, len(v))}
		for i, x := range v {
			l.items[i] = fromGo(x)
		}
		return l
	case map[string]any:
		d := newDict()
		for _, k := range sortedKeys(v) {
			d.set(k, fromGo(v[k]))
		}
		return d
	}
	return undefined{"a value of the program"}
}
