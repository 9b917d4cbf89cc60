package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// jsonStyle is how Python's json.dumps is asked to write.
type jsonStyle struct {
	item, key string // separators
	indent    string // of a level; "": everything on one line
	lines     bool
	sorted    bool
	ascii     bool
}

// toJSON is transformers' tojson: json.dumps(v, ensure_ascii=False, …).
func toJSON(r *run, v value, a args) (value, error) {
	st := jsonStyle{item: ", ", key: ": ", ascii: truth(a.get(0, "ensure_ascii", false)), sorted: truth(a.get(3, "sort_keys", false))}
	switch indent := a.get(1, "indent", nil).(type) {
	case nil:
	case int64:
		if indent < 0 || indent > maxIndent {
			return nil, fmt.Errorf("%w: an indent of %d, at most %d", ErrLimit, indent, maxIndent)
		}
		st.lines, st.indent, st.item = true, strings.Repeat(" ", int(indent)), ","
	case string:
		if len(indent) > maxIndent {
			return nil, fmt.Errorf("%w: an indent of %d bytes, at most %d", ErrLimit, len(indent), maxIndent)
		}
		st.lines, st.indent, st.item = true, indent, ","
	default:
		return nil, fmt.Errorf("chat: template indents by %s", kind(indent))
	}
	if seps, ok := a.get(2, "separators", nil).(*list); ok {
		if len(seps.items) != 2 {
			return nil, fmt.Errorf("chat: template gives tojson %d separators, not 2", len(seps.items))
		}
		item, ok1 := seps.items[0].(string)
		key, ok2 := seps.items[1].(string)
		if !ok1 || !ok2 || len(item) > maxIndent || len(key) > maxIndent {
			return nil, fmt.Errorf("chat: template gives tojson separators that are not short strings")
		}
		st.item, st.key = item, key
	}
	var b strings.Builder
	if err := r.json(&b, v, &st, 0); err != nil {
		return nil, err
	}
	return b.String(), r.made(b.Len())
}

func (r *run) json(b *strings.Builder, v value, st *jsonStyle, depth int) error {
	if err := r.visit(b.Len(), depth); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case int64:
		fmt.Fprint(b, v)
	case float64:
		b.WriteString(jsonFloat(v))
	case string:
		quoteJSON(b, v, st.ascii)
	case *list:
		return r.jsonItems(b, st, depth, "[]", len(v.items), func(i int) error { return r.json(b, v.items[i], st, depth+1) })
	case *dict:
		keys := v.keys
		if st.sorted {
			keys = sortedKeys(v.values)
		}
		return r.jsonItems(b, st, depth, "{}", len(keys), func(i int) error {
			quoteJSON(b, keys[i], st.ascii)
			b.WriteString(st.key)
			return r.json(b, v.values[keys[i]], st, depth+1)
		})
	default:
		return fmt.Errorf("chat: template writes %s as JSON", kind(v))
	}
	return nil
}

// jsonItems writes n items between brackets.
func (r *run) jsonItems(b *strings.Builder, st *jsonStyle, depth int, brackets string, n int, item func(i int) error) error {
	b.WriteByte(brackets[0])
	line := func(depth int) {
		if st.lines && n > 0 {
			b.WriteString("\n" + strings.Repeat(st.indent, depth))
		}
	}
	for i := range n {
		if i > 0 {
			b.WriteString(st.item)
		}
		line(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	line(depth)
	b.WriteByte(brackets[1])
	return nil
}

func jsonFloat(f float64) string {
	switch s := floatText(f); s {
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	case "nan":
		return "NaN"
	default:
		return s
	}
}

// quoteJSON writes s as json.dumps does.
func quoteJSON(b *strings.Builder, s string, ascii bool) {
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c < ' ' || ascii && c >= 0x7f && c < 1<<16:
			fmt.Fprintf(b, `\u%04x`, c)
		case ascii && c >= 1<<16:
			c -= 1 << 16
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}

// fromJSON reads a text as a value.
func fromJSON(r *run, v value, _ args) (value, error) {
	s, ok := v.(string)
	if !ok || !utf8.ValidString(s) {
		return nil, fmt.Errorf("chat: template reads %s as JSON", kind(v))
	}
	if err := r.room(len(s), itemBytes); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("chat: template reads a text that is not JSON")
	}
	return fromNumbers(out), nil
}

// fromNumbers is fromGo of what a decoder yields: whole numbers stay whole.
func fromNumbers(v any) value {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		l := &list{items: make([]value, len(v))}
		for i, x := range v {
			l.items[i] = fromNumbers(x)
		}
		return l
	case map[string]any:
		d := newDict()
		for _, k := range sortedKeys(v) {
			d.set(k, fromNumbers(v[k]))
		}
		return d
	}
	return fromGo(v)
}
