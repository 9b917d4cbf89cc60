package chat

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// rewriter turns a template into an equal one that the library renders exactly and in bounds:
//
//   - White space is controlled here as Jinja's documentation, "Whitespace Control", says for trim_blocks and
//     lstrip_blocks, and text is passed on as string literals. The library takes a "-" to reach over an expression to the
//     text before it, which loses spaces in published templates.
//   - Calls of the meter are put around every operand and into every body that may run more than once: a template is a
//     program out of a file, and the library neither ends one that loops or calls itself nor limits what it allocates.
//   - What the library would evaluate otherwise than Jinja, or at a cost that no operand shows, is refused (expr.go).
//
// Tags keep their lines, which errors name.
type rewriter struct {
	out           strings.Builder
	line, outLine int
	blocks        []block // open ones
}

// block is an open tag, with what to write behind its end.
type block struct{ end, before, after string }

// Functions that rewritten templates call; no template may use the prefix.
const (
	fnPrefix  = "_fd_"
	fnOperand = fnPrefix + "of"
	fnNumber  = fnPrefix + "number"
	fnInto    = fnPrefix + "into"
	fnKeep    = fnPrefix + "keep"
	fnBound   = fnPrefix + "bound"
	fnPass    = fnPrefix + "pass"
	fnEnter   = fnPrefix + "enter"
	fnLeave   = fnPrefix + "leave"
	fnReplace = fnPrefix + "replace"
	fnIndent  = fnPrefix + "indent"
	fnRefuse  = fnPrefix + "refuse"
	varBlock  = fnPrefix + "block"
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
	if strings.Contains(src, fnPrefix) {
		return "", fmt.Errorf("chat: template uses a name with %q, which is reserved", fnPrefix)
	}
	w := rewriter{line: 1, outLine: 1}
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
		w.line += strings.Count(src[:k], "\n")
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
				return "", fmt.Errorf("%w, in line %d", err, w.line)
			}
		}
		w.line += strings.Count(src[k:len(src)-len(after)], "\n")
		src = after
	}
	if n := len(w.blocks); n > 0 {
		return "", fmt.Errorf("chat: template has no %s", w.blocks[n-1].end)
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

var endRaw = regexp.MustCompile(`\{%[-+]?\s*endraw\s*[-+]?%\}`)

// raw writes the text up to endraw as it is, and returns what follows that tag.
func (w *rewriter) raw(s string) (rest string, end tag, err error) {
	at := endRaw.FindStringIndex(s)
	if at == nil {
		return "", tag{}, errors.New("chat: template has no endraw")
	}
	end, rest, err = readTag(s[at[0]:])
	w.text(textBefore(s[:at[0]], end, false))
	return rest, end, err
}

var literal = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (w *rewriter) text(s string) {
	if s != "" {
		w.emit('{', `"`+literal.Replace(s)+`"|`+fnOperand)
		w.outLine += strings.Count(s, "\n")
	}
}

// emit writes a tag that strips, and text that is stripped: the library looks for text in front of and behind each tag.
func (w *rewriter) emit(kind byte, body string) {
	for ; w.outLine < w.line; w.outLine++ {
		w.out.WriteByte('\n')
	}
	if kind == '{' {
		w.out.WriteString(" {{- " + body + " -}} ")
	} else {
		w.out.WriteString(" {%- " + body + " -%} ")
	}
}

// call calls a function of the meter; the assignment keeps the result out of the output.
func (w *rewriter) call(name string) { w.emit('%', "set "+fnPrefix+" = "+name+"()") }

// tag writes a tag and the calls that belong to it.
func (w *rewriter) tag(t tag) error {
	if t.kind == '#' {
		return nil
	}
	toks, err := lex(t.body)
	if err != nil {
		return err
	}
	if t.kind == '{' {
		body, err := operands(toks, w.line)
		w.emit('{', body)
		return err
	}
	if len(toks) == 0 {
		return errors.New("chat: template has a tag without a word")
	}
	word, args := toks[0].text, toks[1:]
	switch word {
	case "if", "elif":
		body, err := operands(args, w.line)
		if word == "if" {
			w.open(block{end: "endif"})
		}
		w.emit('%', word+" "+body)
		if err != nil {
			return err
		}
	case "for":
		err = w.loop(args)
	case "set":
		err = w.set(args)
	case "macro":
		err = w.macro(args)
	case "call":
		err = w.callBlock(args)
	case "filter":
		filters, err := operands(append([]token{{name, varBlock}, {op, "|"}}, args...), w.line)
		w.open(block{end: "endfilter", before: "endset", after: "{{- " + filters + " -}}"})
		w.emit('%', "set "+varBlock)
		if err != nil {
			return err
		}
	case "generation", "endgeneration": // mark the assistant's tokens for training
	case "else", "break", "continue":
		w.emit('%', word)
	default:
		return w.end(word)
	}
	if err == nil && len(w.blocks) > maxBlocks {
		err = fmt.Errorf("%w: tags in each other deeper than %d", ErrLimit, maxBlocks)
	}
	return err
}

func (w *rewriter) open(b block) { w.blocks = append(w.blocks, b) }

func (w *rewriter) end(word string) error {
	n := len(w.blocks) - 1
	if !strings.HasPrefix(word, "end") {
		return fmt.Errorf("chat: template has a tag %q, which is not known", word)
	}
	if n < 0 || w.blocks[n].end != word {
		return fmt.Errorf("chat: template has %q without its beginning", word)
	}
	b := w.blocks[n]
	w.blocks = w.blocks[:n]
	if b.before == "" {
		b.before = word
	}
	w.emit('%', b.before)
	w.out.WriteString(b.after)
	return nil
}

// loop writes for TARGETS in VALUES [if CONDITION].
func (w *rewriter) loop(args []token) error {
	in := slices.Index(args, token{name, "in"})
	if in < 0 {
		return errors.New("chat: template has a loop without in")
	}
	targets, err := names(args[:in])
	if err != nil {
		return err
	}
	body, err := operands(args[in+1:], w.line)
	w.open(block{end: "endfor"})
	w.emit('%', "for "+targets+" in "+body)
	w.call(fnPass)
	return err
}

// names writes names with commas between them, which is all that the library takes for targets and parameters.
func names(toks []token) (string, error) {
	var b strings.Builder
	for i, t := range toks {
		if (i%2 == 0) != (t.kind == name) || i%2 == 1 && t.text != "," || t.kind == name && keywords[t.text] {
			return "", refused(fmt.Sprintf("%q where names are expected", t.text))
		}
		b.WriteString(t.text)
	}
	return b.String(), nil
}

// set writes set NAME = VALUE, set NAMESPACE.NAME = VALUE and set NAME [| FILTERS].
func (w *rewriter) set(args []token) error {
	n := 1
	if len(args) > 2 && args[1].text == "." {
		n = 3
	}
	if len(args) < n || args[0].kind != name || args[n-1].kind != name {
		return errors.New("chat: template has a set without a name")
	}
	target := args[0].text
	switch rest := args[n:]; {
	case len(rest) == 0 && n == 1:
		w.open(block{end: "endset", after: " {%- set " + fnPrefix + " = " + target + "|" + fnOperand + " -%} "})
		w.emit('%', "set "+target)
	case len(rest) > 0 && n == 1 && rest[0].text == "|":
		filters, err := operands(args, w.line)
		w.open(block{end: "endset", after: " {%- set " + target + " = " + filters + " -%} "})
		w.emit('%', "set "+target)
		return err
	case len(rest) > 1 && rest[0].text == "=":
		value, err := operands(rest[1:], w.line)
		if n == 1 {
			w.emit('%', "set "+target+" = ("+value+")|"+fnKeep)
		} else {
			w.emit('%', "set "+target+"."+args[2].text+" = ("+value+")|"+fnInto+"("+target+")")
		}
		return err
	default:
		return refused("set of other than one name or attribute")
	}
	return nil
}

// macro writes macro NAME(PARAMETERS), with constants for defaults: those are evaluated before the body counts the call.
func (w *rewriter) macro(args []token) error {
	n := len(args)
	if n < 3 || args[0].kind != name || args[1].text != "(" || args[n-1].text != ")" {
		return errors.New("chat: template has a macro without a name and parameters")
	}
	var b strings.Builder
	for _, t := range args {
		if t.kind == str && strings.ContainsAny(t.text, ",=") || t.kind == op && !strings.Contains("()[]{},=-", t.text) {
			return refused(fmt.Sprintf("%.20q in a default of a macro", t.text))
		}
		b.WriteString(t.spell())
	}
	for _, t := range args[2 : n-1] {
		if t.text == "(" {
			return refused("a call in a default of a macro")
		}
	}
	w.open(block{end: "endmacro", before: "set " + fnPrefix + " = " + fnLeave + "()", after: " {%- endmacro -%} "})
	w.emit('%', "macro "+b.String())
	w.call(fnEnter)
	return nil
}

// callBlock writes call[(PARAMETERS)] MACRO(ARGUMENTS). What the macro makes is set first, as an operand to be counted.
func (w *rewriter) callBlock(args []token) error {
	head := "call"
	if k := slices.Index(args, token{op, ")"}); len(args) > 0 && args[0].text == "(" && k > 0 {
		params, err := names(args[1:k])
		if err != nil {
			return err
		}
		head, args = "call("+params+")", args[k+1:]
	}
	n := len(args)
	if n < 3 || args[0].kind != name || args[1].text != "(" || args[n-1].text != ")" {
		return refused("call of other than a macro")
	}
	macro, err := operands(args, w.line)
	w.open(block{
		end: "endcall", before: "set " + fnPrefix + " = " + fnLeave + "()",
		after: " {%- endcall -%} {%- endset -%} {{- " + varBlock + "|" + fnOperand + " -}} ",
	})
	w.emit('%', "set "+varBlock)
	w.emit('%', head+" "+strings.TrimSuffix(macro, "|"+fnOperand))
	w.call(fnEnter)
	return err
}
