package chat

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// token is a part of a tag, in the spelling that the library knows.
type token struct {
	kind tokenKind
	text string
}

type tokenKind uint8

const (
	op tokenKind = iota
	name
	number
	str
)

var (
	tokenRE  = regexp.MustCompile(`^(?s:([A-Za-z_]\w*)|(\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\*\*|//|==|!=|<=|>=|[-+*/%~|.,:()\[\]{}<>=]))`)
	keywords = map[string]bool{"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "else": true, "recursive": true}
)

func lex(s string) ([]token, error) {
	var toks []token
	for {
		s = strings.TrimLeft(s, " \t\n\r\f\v")
		if s == "" {
			return toks, nil
		}
		if len(toks) == maxTokens {
			return nil, fmt.Errorf("%w: more than %d words in a tag", ErrLimit, maxTokens)
		}
		m := tokenRE.FindStringSubmatch(s)
		if m == nil {
			return nil, fmt.Errorf("chat: template has %.10q in a tag, which is no Jinja", s)
		}
		s = s[len(m[0]):]
		switch {
		case m[1] != "":
			toks = append(toks, token{name, m[1]})
		case m[2] != "":
			t, err := spellNumber(strings.ReplaceAll(m[2], "_", ""))
			if err != nil {
				return nil, err
			}
			toks = append(toks, token{number, t})
		case m[3] != "":
			toks = append(toks, token{str, unquote(m[3])})
		default:
			toks = append(toks, token{op, m[4]})
		}
	}
}

// spellNumber writes the point that the library wants before an exponent.
func spellNumber(t string) (string, error) {
	digits, exponent, isFloat := strings.Cut(strings.ToLower(t), "e")
	if !strings.Contains(digits, ".") {
		if !isFloat {
			if _, err := strconv.ParseInt(digits, 10, 64); err != nil {
				return "", refused("an integer of more than 64 bits")
			}
			return digits, nil
		}
		digits += ".0"
	}
	if isFloat {
		digits += "e" + exponent
	}
	return digits, nil
}

// unquote evaluates the escapes of a string literal; unknown ones stay, as in Python.
func unquote(s string) string {
	quote := s[0]
	s = s[1 : len(s)-1]
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if len(s) > 1 && s[0] == '\\' && (s[1] == '"' || s[1] == '\'' || s[1] == '\n') {
			if s[1] != '\n' {
				b.WriteByte(s[1])
			}
			s = s[2:]
			continue
		}
		r, _, rest, err := strconv.UnquoteChar(s, quote)
		if err != nil || s[0] != '\\' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		b.WriteRune(r)
		s = rest
	}
	return b.String()
}

// spell is the token as source.
func (t token) spell() string {
	if t.kind == str {
		return `"` + strings.ReplaceAll(literal.Replace(t.text), "\n", `\n`) + `"`
	}
	return t.text
}
