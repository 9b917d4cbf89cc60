package chat

import (
	"fmt"
	"strings"
	"unicode"
)

// rewrite turns a template into an equal one that the library renders exactly and in bounds:
//
//   - White space is controlled here as Jinja's documentation, "Whitespace Control", says for trim_blocks and
//     lstrip_blocks, and text is passed on as string literals. The library takes a "-" to reach over an expression to the
//     text before it, which loses spaces in published templates.
//   - Calls of guards are put into every body that may run more than once, and behind every assignment: a template is a
//     program out of a file, and the library neither ends one that loops or calls itself nor limits what it allocates.
type rewriter struct {
	out    strings.Builder
	blocks []string // target of each open block assignment
}

// Guards, called by the rewritten template. No template may use the prefix.
const (
	guardPrefix = "_fd_"
	guardLoop   = guardPrefix + "loop"
	guardCall   = guardPrefix + "call"
	guardSize   = guardPrefix + "size"
)

// tag is one of {{ }}, {% %} and {# #}.
type tag struct {
	kind        byte // '{', '%' or '#'
	body        string
	left, right byte // '-', '+' or 0
}

func rewrite(src string) (string, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	if strings.Contains(src, guardPrefix) {
		return "", fmt.Errorf("chat: template uses a name with %q, which is reserved", guardPrefix)
	}
	var w rewriter
	lineStart := true // nothing but the end of a line before src
	for src != "" {
		k := tagStart(src)
		if k < 0 {
			w.text(src)
			break
		}
		t, rest, err := readTag(src[k:])
		if err != nil {
			return "", err
		}
		w.text(textBefore(src[:k], t, lineStart))
		raw := t.kind == '%' && strings.TrimSpace(t.body) == "raw"
		after := trimAfter(rest, t, raw)
		if raw {
			if after, t, err = w.raw(after); err != nil {
				return "", err
			}
			rest, after = after, trimAfter(after, t, false)
		}
		skipped := rest[:len(rest)-len(after)]
		lineStart = strings.HasSuffix(skipped, "\n")
		if !raw {
			if err := w.tag(t); err != nil {
				return "", err
			}
		}
		src = after
	}
	return w.out.String(), nil
}

// tagStart returns the index of the next tag, or -1.
func tagStart(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// readTag reads the tag that s begins with. Only comments may have unpaired quotes.
func readTag(s string) (t tag, rest string, err error) {
	t.kind = s[1]
	end := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[t.kind]
	i := 2
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		t.left = s[i]
		i++
	}
	start, depth := i, 0
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case strings.HasPrefix(s[i:], end) && depth <= 0:
			t.body = s[start:i]
			if n := len(t.body); n > 0 && (t.body[n-1] == '-' || t.body[n-1] == '+' && t.kind != '{') {
				t.right, t.body = t.body[n-1], t.body[:n-1]
			}
			return t, s[i+2:], nil
		case t.kind == '#':
		case c == '"' || c == '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case c == '{':
			depth++ // of a dictionary, whose end may stand before the tag's: {{ {'a': {}}}}
		case c == '}':
			depth--
		}
	}
	return t, "", fmt.Errorf("chat: template has no %q for %.40q", end, s)
}

// textBefore is the text in front of a tag, without what the tag strips.
func textBefore(text string, t tag, lineStart bool) string {
	switch {
	case t.left == '-':
		return strings.TrimRightFunc(text, unicode.IsSpace)
	case t.left == '+' || t.kind == '{':
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || lineStart) && strings.TrimSpace(text[line:]) == "" {
		return text[:line]
	}
	return text
}

// trimAfter is the text behind a tag, without what the tag strips.
func trimAfter(text string, t tag, raw bool) string {
	switch {
	case t.right == '-':
		return strings.TrimLeftFunc(text, unicode.IsSpace)
	case t.right == '+' || t.kind == '{' || raw:
		return text
	}
	return strings.TrimPrefix(text, "\n")
}

// raw writes the text up to endraw as it is, and returns what follows that tag.
func (w *rewriter) raw(s string) (rest string, end tag, err error) {
	for from := 0; ; {
		k := strings.Index(s[from:], "{%")
		if k < 0 {
			return "", tag{}, fmt.Errorf("chat: template has no endraw")
		}
		k += from
		t, rest, err := readTag(s[k:])
		if err == nil && strings.TrimSpace(t.body) == "endraw" {
			w.text(textBefore(s[:k], t, false))
			return rest, t, nil
		}
		from = k + 2
	}
}

var literal = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (w *rewriter) text(s string) {
	if s != "" {
		w.out.WriteString(`{{ "`)
		literal.WriteString(&w.out, s)
		w.out.WriteString(`" }}`)
	}
}

// tag writes a tag and the guards that belong to it.
func (w *rewriter) tag(t tag) error {
	body := strings.TrimSpace(t.body)
	switch t.kind {
	case '#':
		return nil
	case '{':
		w.out.WriteString("{{ " + parted(body) + " }}")
		return nil
	}
	word := body
	if k := strings.IndexFunc(body, func(r rune) bool { return !unicode.IsLetter(r) }); k >= 0 {
		word = body[:k]
	}
	if word == "generation" || word == "endgeneration" {
		return nil // marks the assistant's tokens for training
	}
	w.out.WriteString("{% " + body + " %}")
	switch word {
	case "for":
		w.guard(guardLoop, "")
		if strings.Contains(body, "recursive") {
			w.guard(guardCall, "")
		}
	case "macro", "call":
		w.guard(guardCall, "")
	case "set":
		target, _, inline := strings.Cut(strings.TrimSpace(body[len(word):]), "=")
		target, _, _ = strings.Cut(target, "|") // a block may be filtered
		target = strings.TrimSpace(target)
		if strings.ContainsAny(target, ",(") {
			return fmt.Errorf("chat: template assigns to several variables at once, which is not supported: %.60q", body)
		}
		if inline {
			w.guard(guardSize, target)
		} else {
			w.blocks = append(w.blocks, target)
		}
	case "endset":
		if n := len(w.blocks); n > 0 {
			w.guard(guardSize, w.blocks[n-1])
			w.blocks = w.blocks[:n-1]
		}
	}
	return nil
}

// parted puts a space between closing braces outside strings, where the library would end the tag.
func parted(body string) string {
	if !strings.Contains(body, "}}") {
		return body
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(body); i++ {
		c := body[i]
		b.WriteByte(c)
		switch {
		case quote != 0 && c == '\\' && i+1 < len(body):
			i++
			b.WriteByte(body[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '}':
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// guard calls a guard; the assignment keeps the result out of the output.
func (w *rewriter) guard(name, args string) {
	w.out.WriteString("{% set " + guardPrefix + " = " + name + "(" + args + ") %}")
}
