package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Methods of Python's str, dict and list. Those that change a dict or a list are missing, as in transformers' sandbox.
var (
	stringMethods = map[string]func(r *run, s string, a args) (value, error){
		"strip": strip, "lstrip": stripLeft, "rstrip": stripRight, "split": splitText(false), "rsplit": splitText(true),
		"splitlines": splitLines, "startswith": hasAffix(strings.HasPrefix), "endswith": hasAffix(strings.HasSuffix),
		"replace": replaceIn, "upper": onString(strings.ToUpper), "lower": onString(strings.ToLower), "title": onString(title),
		"capitalize": onString(capitalize), "count": counted, "find": found(strings.Index, true), "rfind": found(strings.LastIndex, true),
		"index": found(strings.Index, false), "join": joinBy, "format": formatBraces, "removeprefix": without(strings.TrimPrefix),
		"removesuffix": without(strings.TrimSuffix), "isdigit": all(unicode.IsDigit), "isnumeric": all(unicode.IsNumber),
		"isalpha": all(unicode.IsLetter), "isspace": all(unicode.IsSpace), "isupper": inCase(strings.ToUpper, strings.ToLower),
		"islower":   inCase(strings.ToLower, strings.ToUpper),
		"isalnum":   all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"partition": partition,
	}
	dictMethods = map[string]func(r *run, d *dict, a args) (value, error){
		"get": dictGet, "items": dictItems, "keys": dictKeys, "values": dictValues, "copy": func(_ *run, d *dict, _ args) (value, error) { return d, nil },
	}
	listMethods = map[string]func(r *run, l *list, a args) (value, error){
		"index": listIndex, "count": listCount, "copy": func(_ *run, l *list, _ args) (value, error) { return l, nil },
	}
)

// texts are the first n arguments, which must be strings.
func (a args) texts(n int) ([]string, error) {
	if len(a.pos) < n {
		return nil, fmt.Errorf("chat: template gives %d arguments where %d are needed", len(a.pos), n)
	}
	out := make([]string, n)
	for i := range out {
		s, ok := a.pos[i].(string)
		if !ok {
			return nil, fmt.Errorf("chat: template gives %s where a string is needed", kind(a.pos[i]))
		}
		out[i] = s
	}
	return out, nil
}

// cutset is what strip takes off s: the characters of its argument, or white space.
func (r *run) cutset(s string, a args) (func(rune) bool, error) {
	v := a.get(0, "chars", nil)
	if v == nil {
		return unicode.IsSpace, r.work(len(s))
	}
	chars, ok := v.(string)
	if !ok || len(chars) > maxIndent {
		return func(rune) bool { return false }, fmt.Errorf("chat: template strips %s", kind(v))
	}
	return func(c rune) bool { return strings.ContainsRune(chars, c) }, r.work(len(s) * (1 + len(chars)/4))
}

func strip(r *run, s string, a args) (value, error) {
	cut, err := r.cutset(s, a)
	return strings.TrimFunc(s, cut), err
}

func stripLeft(r *run, s string, a args) (value, error) {
	cut, err := r.cutset(s, a)
	return strings.TrimLeftFunc(s, cut), err
}

func stripRight(r *run, s string, a args) (value, error) {
	cut, err := r.cutset(s, a)
	return strings.TrimRightFunc(s, cut), err
}

func onString(f func(string) string) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, _ args) (value, error) {
		if err := r.room(3, len(s)); err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

// splitText is split or, from the right, rsplit.
func splitText(right bool) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, a args) (value, error) {
		most, ok := a.get(1, "maxsplit", int64(-1)).(int64)
		if !ok {
			return nil, fmt.Errorf("chat: template splits a number of times that is no number")
		}
		if most < 0 || most > int64(len(s)) {
			most = int64(len(s))
		}
		var parts []string
		switch sep := a.get(0, "sep", nil).(type) {
		case nil:
			if err := r.room(len(s)/2+1, itemBytes); err != nil {
				return nil, err
			}
			parts = fields(s, int(most))
		case string:
			if sep == "" {
				return nil, fmt.Errorf("chat: template splits at an empty string")
			}
			if err := r.room(strings.Count(s, sep)+1, itemBytes); err != nil {
				return nil, err
			}
			parts = strings.Split(s, sep)
			if right && len(parts) > int(most)+1 { // the first parts stay together
				n := len(parts) - int(most) - 1
				parts = append([]string{strings.Join(parts[:n+1], sep)}, parts[n+1:]...)
			}
			if !right {
				parts = strings.SplitN(s, sep, int(most)+1)
			}
		default:
			return nil, fmt.Errorf("chat: template splits at %s", kind(sep))
		}
		return r.strings(parts)
	}
}

// fields is split without a separator, at most so many times.
func fields(s string, most int) (parts []string) {
	for {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		end := strings.IndexFunc(s, unicode.IsSpace)
		switch {
		case s == "":
			return parts
		case end < 0 || len(parts) == most:
			return append(parts, s)
		}
		parts, s = append(parts, s[:end]), s[end:]
	}
}

// strings is a list of parts of a string.
func (r *run) strings(parts []string) (value, error) {
	items := make([]value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return r.list(items)
}

func splitLines(r *run, s string, _ args) (value, error) {
	if err := r.room(strings.Count(s, "\n")+1, itemBytes); err != nil {
		return nil, err
	}
	parts := strings.Split(s, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return r.strings(parts)
}

// hasAffix is startswith or endswith, of a string or any of several.
func hasAffix(has func(s, affix string) bool) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, a args) (value, error) {
		if l, ok := a.get(0, "", nil).(*list); ok {
			a.pos = l.items
		} else if len(a.pos) > 1 {
			a.pos = a.pos[:1]
		}
		affixes, err := a.texts(len(a.pos))
		for _, x := range affixes {
			if has(s, x) {
				return true, err
			}
		}
		return false, err
	}
}

func replaceIn(r *run, s string, a args) (value, error) {
	t, err := a.texts(2)
	if err != nil {
		return nil, err
	}
	most, ok := a.get(2, "count", nil).(int64)
	n := strings.Count(s, t[0])
	if ok && most >= 0 {
		n = int(min(int64(n), most))
	}
	if err := r.room(n, len(t[1])); err != nil {
		return nil, err
	}
	if err := r.made(len(s)); err != nil {
		return nil, err
	}
	return strings.Replace(s, t[0], t[1], n), nil
}

func title(s string) string {
	letter := false
	return strings.Map(func(c rune) rune {
		before := letter
		letter = unicode.IsLetter(c)
		if before {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToTitle(c)) + strings.ToLower(s[n:])
}

func counted(r *run, s string, a args) (value, error) {
	t, err := a.texts(1)
	if err != nil {
		return nil, err
	}
	return int64(strings.Count(s, t[0])), r.work(len(s))
}

// found is find, rfind or index.
func found(search func(s, part string) int, missing bool) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, a args) (value, error) {
		t, err := a.texts(1)
		if err != nil {
			return nil, err
		}
		i := search(s, t[0])
		switch {
		case i >= 0:
			return int64(utf8.RuneCountInString(s[:i])), r.work(len(s))
		case !missing:
			return nil, fmt.Errorf("chat: template looks for a text that is not there")
		}
		return int64(-1), r.work(len(s))
	}
}

func joinBy(r *run, s string, a args) (value, error) {
	return joinItems(r, a.get(0, "", undefined{"items to join"}), args{pos: []value{s}})
}

func without(cut func(s, affix string) string) func(r *run, s string, a args) (value, error) {
	return func(_ *run, s string, a args) (value, error) {
		t, err := a.texts(1)
		if err != nil {
			return nil, err
		}
		return cut(s, t[0]), nil
	}
}

func all(is func(rune) bool) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, _ args) (value, error) {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0, r.work(len(s))
	}
}

func inCase(same, other func(string) string) func(r *run, s string, a args) (value, error) {
	return func(r *run, s string, _ args) (value, error) { return isCase(r, s, same, other) }
}

func partition(r *run, s string, a args) (value, error) {
	t, err := a.texts(1)
	if err != nil {
		return nil, err
	}
	before, after, ok := strings.Cut(s, t[0])
	sep := ""
	if ok {
		sep = t[0]
	}
	return &list{[]value{before, sep, after}, true}, nil
}

func dictGet(r *run, d *dict, a args) (value, error) {
	key, err := r.text(a.get(0, "key", nil))
	if err != nil {
		return nil, err
	}
	if v, ok := d.values[key]; ok {
		return v, nil
	}
	return a.get(1, "default", nil), nil
}

func dictItems(r *run, d *dict, _ args) (value, error) {
	if err := r.room(len(d.keys), 4*itemBytes); err != nil {
		return nil, err
	}
	items := make([]value, len(d.keys))
	for i, k := range d.keys {
		items[i] = &list{[]value{k, d.values[k]}, true}
	}
	return &list{items: items}, nil
}

func dictKeys(r *run, d *dict, _ args) (value, error) {
	items, err := r.items(d)
	return &list{items: items}, err
}

func dictValues(r *run, d *dict, _ args) (value, error) {
	items, err := dictKeys(r, d, args{})
	if err != nil {
		return nil, err
	}
	l := items.(*list)
	for i, k := range l.items {
		l.items[i] = d.values[k.(string)]
	}
	return l, nil
}

func listIndex(r *run, l *list, a args) (value, error) {
	for i, x := range l.items {
		same, err := r.equal(x, a.get(0, "", nil), 0)
		if same || err != nil {
			return int64(i), err
		}
	}
	return nil, fmt.Errorf("chat: template looks for an item that is not there")
}

func listCount(r *run, l *list, a args) (value, error) {
	n := int64(0)
	for _, x := range l.items {
		same, err := r.equal(x, a.get(0, "", nil), 0)
		if err != nil {
			return nil, err
		}
		if same {
			n++
		}
	}
	return n, nil
}
