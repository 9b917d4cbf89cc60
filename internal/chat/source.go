package chat

import (
	"fmt"
	"strings"
	"unicode"
)

// tag is one of {{ }}, {% %} and {# #}, or, as kind 't', text.
type tag struct {
	kind        byte // '{', '%', '#' or 't'
	body        string
	left, right byte // '-', '+' or 0
}

// split cuts a template into text and tags, and takes white space away as Jinja's documentation, "Whitespace Control",
// says for trim_blocks and lstrip_blocks.
func split(src string) (pieces []tag, err error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	text := func(s string) {
		if s != "" {
			pieces = append(pieces, tag{kind: 't', body: s})
		}
	}
	lineStart := true // nothing but the end of a line before src
	for src != "" {
		k := tagStart(src)
		if k < 0 {
			text(src)
			break
		}
		t, rest, err := readTag(src[k:])
		if err != nil {
			return nil, err
		}
		text(textBefore(src[:k], t, lineStart))
		raw := t.kind == '%' && strings.TrimSpace(t.body) == "raw"
		after := trimAfter(rest, t, raw)
		if raw {
			var inside string
			if inside, after, t, err = readRaw(after); err != nil {
				return nil, err
			}
			text(inside)
			rest, after = after, trimAfter(after, t, false)
		} else if t.kind != '#' {
			t.body = strings.TrimSpace(t.body)
			pieces = append(pieces, t)
		}
		lineStart = strings.HasSuffix(rest[:len(rest)-len(after)], "\n")
		src = after
	}
	return pieces, nil
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

// readRaw returns the text up to endraw, what follows that tag, and the tag.
func readRaw(s string) (text, rest string, end tag, err error) {
	for from := 0; ; {
		k := strings.Index(s[from:], "{%")
		if k < 0 {
			return "", "", tag{}, fmt.Errorf("chat: template has no endraw")
		}
		k += from
		t, rest, err := readTag(s[k:])
		if err == nil && strings.TrimSpace(t.body) == "endraw" {
			return textBefore(s[:k], t, false), rest, t, nil
		}
		from = k + 2
	}
}
