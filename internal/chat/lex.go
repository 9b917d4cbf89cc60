package chat

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a part of an expression: its kind is 'n' for a name, 's' a string, 'i' an integer, 'f' a float, 'o' an operator or
// 0 for the end. text is the name, the operator or the decoded string.
type token struct {
	kind byte
	text string
	i    int64
	f    float64
}

func (t token) String() string {
	if t.kind == 0 {
		return "the end of the tag"
	}
	return fmt.Sprintf("%.40q", t.text)
}

// operators, the long ones first.
var operators = []string{
	"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "|",
}

// lex splits the body of a tag.
func lex(s string) (tokens []token, err error) {
	for {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		if s == "" {
			return append(tokens, token{}), nil
		}
		c, _ := utf8.DecodeRuneInString(s)
		var t token
		switch {
		case c == '"' || c == '\'':
			t, s, err = lexString(s)
		case c >= '0' && c <= '9':
			t, s, err = lexNumber(s)
		case c == '_' || unicode.IsLetter(c):
			n := strings.IndexFunc(s, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
			if n < 0 {
				n = len(s)
			}
			t, s = token{kind: 'n', text: s[:n]}, s[n:]
		default:
			t, s, err = lexOperator(s)
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
}

func lexOperator(s string) (token, string, error) {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return token{kind: 'o', text: op}, s[len(op):], nil
		}
	}
	return token{}, "", fmt.Errorf("chat: template has %.20q, which means nothing there", s)
}

// lexNumber reads 12, 1_000, 1.5 or 1e-3.
func lexNumber(s string) (token, string, error) {
	n := 0
	digits := func() {
		for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '_') {
			n++
		}
	}
	digits()
	float := false
	if n+1 < len(s) && s[n] == '.' && s[n+1] >= '0' && s[n+1] <= '9' {
		float = true
		n++
		digits()
	}
	if n+1 < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m+1 < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if s[m] >= '0' && s[m] <= '9' {
			float, n = true, m
			digits()
		}
	}
	t := token{kind: 'i', text: s[:n]}
	clean := strings.ReplaceAll(s[:n], "_", "")
	var err error
	if float {
		t.kind = 'f'
		t.f, err = strconv.ParseFloat(clean, 64)
	} else {
		t.i, err = strconv.ParseInt(clean, 10, 64)
	}
	if err != nil {
		return t, "", fmt.Errorf("chat: template has the number %.40s, which is too large", s[:n])
	}
	return t, s[n:], nil
}

// escapes are Python's that stand for one character.
var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

func lexString(s string) (token, string, error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return token{kind: 's', text: b.String()}, s[i+1:], nil
		case c != '\\' || i+1 == len(s):
			b.WriteByte(c)
		default:
			i++
			if e, ok := escapes[s[i]]; ok {
				b.WriteString(e)
				continue
			}
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
			code, err := strconv.ParseUint(s[i+1:min(i+1+n, len(s))], 16, 32)
			if n == 0 || err != nil || i+1+n > len(s) {
				b.WriteByte('\\')
				b.WriteByte(s[i])
				continue
			}
			b.WriteRune(rune(code))
			i += n
		}
	}
	return token{}, "", fmt.Errorf("chat: template has a string without an end: %.40q", s)
}
