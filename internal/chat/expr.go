package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expr writes the tokens of an expression with the meter's filters at its operands: x ~ f(y)|upper becomes
// x|of ~ f(y|of)|of|upper|of. What is refused becomes a filter that fails, for a template may never come to it.
type expr struct {
	out      strings.Builder
	toks     []token
	i, line  int
	outer    int       // brackets around the expression
	brackets []bracket // open ones
	top      bracket   // around the next token
}

// bracket is an open bracket.
type bracket struct {
	close  string
	call   bool   // of arguments, which may have names
	test   bool   // of the arguments of a test, which is no operand
	binary string // the operator in front of the next operand
}

// rule is what is evaluated of a filter or method: calls with at most args arguments and with the named ones, of which check
// approves.
type rule struct {
	args  int
	named string
	check func(args []argument) bool
}

// argument is one of a call, with the name of a named one.
type argument struct {
	name string
	toks []token
}

var filters = map[string]rule{
	"abs": {}, "batch": {args: 1}, "capitalize": {}, "count": {}, "d": {2, "boolean", nil}, "default": {2, "boolean", nil},
	"dictsort": {0, "case_sensitive reverse", nil}, "e": {}, "escape": {}, "first": {}, "float": {}, "from_json": {}, "fromjson": {},
	"indent": {2, "width first", smallNumber}, "int": {}, "items": {}, "join": {1, "attribute", shortStrings}, "last": {}, "length": {},
	"list": {}, "lower": {}, "map": {0, "attribute default", nil}, "max": {}, "min": {}, "reject": {2, "", plainTest},
	"rejectattr": {3, "", plainTest}, "replace": {3, "", nil}, "reverse": {}, "round": {1, "precision", nil}, "safe": {},
	"select": {2, "", plainTest}, "selectattr": {3, "", plainTest}, "sort": {0, "reverse", nil}, "string": {}, "sum": {}, "title": {},
	"tojson": {0, "ensure_ascii indent separators", jsonOptions}, "trim": {1, "", shortStrings}, "unique": {}, "upper": {}, "wordcount": {},
}

// cheap filters look at no more than the type and the length of a value.
var cheap = []string{"length", "count", "first", "last", "default", "d"}

// arithmetic are the operators for numbers only: those that repeat strings, and those that the library makes numbers for.
var arithmetic = []string{"*", "**", "/", "//", "%", "-"}

// methods are those of the library. Those with args below 0 are refused: they change values, or multiply them.
var methods = map[string]rule{
	"append": {args: -1}, "insert": {args: -1}, "pop": {args: -1}, "update": {args: -1}, "format": {args: -1},
	"strip": {1, "", shortStrings}, "lstrip": {1, "", shortStrings}, "rstrip": {1, "", shortStrings}, "split": {args: 1},
	"startswith": {1, "", noTuples}, "endswith": {1, "", noTuples}, "replace": {args: 3}, "upper": {}, "lower": {}, "title": {},
	"capitalize": {}, "count": {args: 1}, "find": {args: 1}, "items": {}, "keys": {}, "values": {}, "get": {args: 2},
}

func shortStrings(args []argument) bool {
	return !slices.ContainsFunc(args, func(a argument) bool {
		return a.name == "" && (len(a.toks) != 1 || a.toks[0].kind != str || len(a.toks[0].text) > maxShort)
	})
}

func noTuples(args []argument) bool {
	return !slices.ContainsFunc(args, func(a argument) bool { return a.toks[0].text == "(" && a.toks[0].kind == op })
}

// plainTest keeps select from looking for each of many values in many.
func plainTest(args []argument) bool {
	for i, a := range args {
		if i > 0 && len(args[i-1].toks) == 1 && args[i-1].toks[0] == (token{str, "in"}) && a.toks[0].kind == name {
			return false
		}
		if i < len(args)-1 && (len(a.toks) != 1 || a.toks[0].kind != str) {
			return false // names of attributes and tests are to be seen
		}
	}
	return true
}

func smallNumber(args []argument) bool {
	for i, a := range args {
		if (i == 0 || a.name == "width") && a.name != "first" && !isSmall(a.toks) {
			return false
		}
	}
	return true
}

func isSmall(toks []token) bool {
	return len(toks) == 1 && toks[0].kind == number && len(toks[0].text) == 1
}

func jsonOptions(args []argument) bool {
	for _, a := range args {
		switch {
		case a.name == "indent" && !isSmall(a.toks), a.name == "ensure_ascii" && (len(a.toks) != 1 || strings.ToLower(a.toks[0].text) != "false"):
			return false
		case a.name == "separators" && slices.ContainsFunc(a.toks, func(t token) bool { return t.kind > op && (t.kind != str || len(t.text) > maxShort) }):
			return false
		}
	}
	return true
}

// operands writes an expression.
func operands(toks []token, line int) (string, error) { return operandsIn(toks, line, 0) }

func operandsIn(toks []token, line, brackets int) (string, error) {
	e := expr{toks: toks, line: line, outer: brackets}
	for e.i < len(toks) {
		if err := e.token(); err != nil {
			return "", err
		}
	}
	switch {
	case len(e.brackets) > 0:
		return "", fmt.Errorf("chat: template has no %q", e.top.close)
	case len(toks) == 0:
		return "", fmt.Errorf("chat: template has a tag without an expression")
	}
	return strings.TrimSpace(e.out.String()), nil
}

// at is the token i places on.
func (e *expr) at(i int) token {
	if e.i+i >= 0 && e.i+i < len(e.toks) {
		return e.toks[e.i+i]
	}
	return token{}
}

func (e *expr) is(i int, texts ...string) bool {
	t := e.at(i)
	return t.kind == op && t.text != "" && slices.Contains(texts, t.text)
}

func (e *expr) write(s string) { e.out.WriteString(s + " ") }

// token writes the next token or tokens, where an operand may begin or an operator stand.
func (e *expr) token() error {
	t := e.at(0)
	switch {
	case t.kind == name && t.text == "recursive" && len(e.brackets) == 0:
		return refused("a recursive loop")
	case t.kind == name && t.text == "is":
		return e.test()
	case t.kind == name && keywords[t.text]:
		e.top.binary = ""
	case t.kind == name && e.top.call && e.is(1, "="):
		e.write(t.text + " =")
		e.i += 2
		return nil
	case t.kind == str && e.repeat():
		return e.chain()
	case t.kind == str && e.is(-1, "[") && e.is(1, "]"): // a key of a dictionary
		e.write(t.spell())
		e.i++
		return nil
	case t.kind != op:
		e.write(t.spell())
		e.i++
		return e.chain()
	case e.is(0, "(", "[", "{"):
		return e.open(false)
	case e.is(0, ")", "]", "}"):
		return e.close()
	case e.is(0, "+", "-") && !e.operandBefore():
	default:
		e.top.binary = t.text
	}
	e.write(t.text)
	e.i++
	return nil
}

func (e *expr) operandBefore() bool {
	t := e.at(-1)
	return t.kind != op && !(t.kind == name && keywords[t.text]) || e.is(-1, ")", "]", "}")
}

// repeat puts a constant for a short string literal times a number.
func (e *expr) repeat() bool {
	t, n := e.at(0), e.at(2)
	if !e.is(1, "*") || n.kind != number || len(n.text) > 2 || e.is(3, "*", "**", ".", "[", "(", "|") || e.top.binary == "*" || e.top.binary == "**" {
		return false
	}
	count, err := strconv.Atoi(n.text)
	if err != nil || count*len(t.text) > maxShort*4 {
		return false
	}
	e.write(token{str, strings.Repeat(t.text, count)}.spell())
	e.i += 3
	return true
}

// test writes is [not] NAME [(ARGUMENTS)].
func (e *expr) test() error {
	e.write("is")
	e.i++
	if e.at(0).text == "not" {
		e.write("not")
		e.i++
	}
	if e.at(0).kind == name {
		e.write(e.at(0).text)
		e.i++
	}
	e.top.binary = ""
	if !e.is(0, "(") {
		return nil
	}
	err := e.open(true)
	e.top.test = true
	return err
}

func (e *expr) open(call bool) error {
	t := e.at(0).text
	e.brackets = append(e.brackets, e.top)
	e.top = bracket{close: map[string]string{"(": ")", "[": "]", "{": "}"}[t], call: call}
	e.write(t)
	e.i++
	if e.outer+len(e.brackets) > maxBrackets {
		return fmt.Errorf("%w: brackets in each other deeper than %d", ErrLimit, maxBrackets)
	}
	return nil
}

func (e *expr) close() error {
	b, n := e.top, len(e.brackets)
	if n == 0 || b.close != e.at(0).text {
		return fmt.Errorf("chat: template has %q without its beginning", e.at(0).text)
	}
	e.top, e.brackets = e.brackets[n-1], e.brackets[:n-1]
	e.write(b.close)
	e.i++
	if b.test {
		return nil
	}
	if b.call && e.is(0, ".", "[") {
		e.write("|" + fnOperand)
	}
	return e.chain()
}

// chain writes what belongs to the operand before, up to the next bracket that opens, or ends the operand.
func (e *expr) chain() error {
	for {
		switch {
		case e.is(0, "."):
			if done, err := e.attribute(); done || err != nil {
				return err
			}
		case e.is(0, "|"):
			if done, err := e.filter(); done || err != nil {
				return err
			}
		case e.is(0, "["):
			if args := e.arguments(1); len(args) == 1 && len(outerColons(args[0].toks)) > 0 {
				return e.slice(args[0].toks)
			}
			return e.open(false)
		case e.is(0, "("):
			if e.at(-1).kind == str || e.at(-1).kind == number {
				return fmt.Errorf("chat: template calls %.20q", e.at(-1).text)
			}
			return e.open(true)
		case e.is(0, arithmetic...) || slices.Contains(arithmetic, e.top.binary):
			e.write("|" + fnNumber)
			return nil
		default:
			e.write("|" + fnOperand)
			return nil
		}
	}
}

// attribute writes .NAME, and .METHOD( with its bracket. done says that the chain goes on elsewhere.
func (e *expr) attribute() (done bool, err error) {
	n := e.at(1).text
	r, isMethod := methods[n]
	switch {
	case e.at(1).kind == op || e.at(1).kind == str:
		return true, fmt.Errorf("chat: template has %q where the name of an attribute is expected", n)
	case !isMethod || !e.is(2, "("):
		if isMethod { // an item of this name: the method, called under another name, would escape its rule
			e.write(`["` + n + `"]`)
		} else {
			e.write("." + n)
		}
		e.i += 2
		return false, nil
	case r.args < 0 || !r.holds(e.arguments(3)):
		return true, e.refuse("the method "+n+" with these arguments", 3)
	case n == "replace":
		e.write("|" + fnOperand + "|" + fnReplace)
	default:
		e.write("." + n)
	}
	e.i += 2
	return true, e.open(true)
}

// filter writes |NAME, and |NAME( with its bracket. done says that the chain goes on elsewhere.
func (e *expr) filter() (done bool, err error) {
	n := e.at(1).text
	r, known := filters[n]
	if e.at(1).kind != name {
		return true, fmt.Errorf("chat: template has %q where the name of a filter is expected", n)
	}
	if !slices.Contains(cheap, n) {
		e.write("|" + fnOperand)
	}
	var args []argument
	if e.is(2, "(") {
		args = e.arguments(3)
	}
	if !known || !r.holds(args) || n == "map" && len(args) == 0 {
		what := "the filter " + n
		if known {
			what += " with these arguments"
		}
		after := 2
		if e.is(2, "(") {
			after = 3
		}
		return true, e.refuse(what, after)
	}
	e.i += 2
	switch {
	case n == "tojson" && e.is(0, "("):
		return true, e.json(args)
	case n == "replace":
		n = fnReplace
	}
	e.write("|" + n)
	if e.is(0, "(") {
		return true, e.open(true)
	}
	return false, nil
}

// json writes tojson and its arguments.
func (e *expr) json(args []argument) error {
	e.write("|tojson")
	for _, a := range args {
		if a.name == "separators" {
			e.write("( separators =")
			for _, t := range a.toks {
				e.write(t.spell())
			}
			e.write(")")
		}
	}
	for _, a := range args {
		if a.name == "indent" {
			e.write("|" + fnIndent + "(" + a.toks[0].text + ")")
		}
	}
	e.skip(1)
	return e.chain()
}

// refuse writes a filter that fails, for a filter, call or subscript whose arguments or end are n tokens on; no argument is
// evaluated.
func (e *expr) refuse(what string, n int) error {
	e.write(fmt.Sprintf(`|%s("%s, in line %d")`, fnRefuse, what, e.line))
	if e.is(n-1, "(", "[") {
		e.skip(n)
	} else {
		e.i += n
	}
	return e.chain()
}

// skip goes behind the bracket whose contents begin n tokens on.
func (e *expr) skip(n int) {
	e.i += n
	for depth := 1; depth > 0 && e.i < len(e.toks); e.i++ {
		depth += e.deeper(0)
	}
}

// deeper is 1 for an opening bracket and -1 for a closing one.
func (e *expr) deeper(i int) int {
	switch {
	case e.is(i, "(", "[", "{"):
		return 1
	case e.is(i, ")", "]", "}"):
		return -1
	}
	return 0
}

// arguments splits what is in the bracket whose contents begin n tokens on.
func (e *expr) arguments(n int) (args []argument) {
	var a argument
	for depth := 1; e.i+n < len(e.toks); n++ {
		depth += e.deeper(n)
		end := depth == 0 || depth == 1 && e.is(n, ",")
		switch {
		case !end && len(a.toks) == 0 && e.at(n).kind == name && e.is(n+1, "="):
			a.name = e.at(n).text
			n++
		case !end:
			a.toks = append(a.toks, e.at(n))
		case len(a.toks) > 0:
			args = append(args, a)
			a = argument{}
		}
		if depth == 0 {
			break
		}
	}
	return args
}

// slice writes [START:STOP] and [::-1]. Other steps are refused: the library takes as many steps as the bounds are apart.
func (e *expr) slice(toks []token) error {
	if len(toks) == 4 && toks[0].text == ":" && toks[1].text == ":" && toks[2].text == "-" && toks[3].text == "1" {
		e.write("[::-1]")
		e.skip(1)
		return e.chain()
	}
	colons := outerColons(toks)
	if len(colons) > 1 {
		return e.refuse("a slice with a step other than [::-1]", 1)
	}
	var bounds [2]string
	for i, toks := range [][]token{toks[:colons[0]], toks[colons[0]+1:]} {
		if len(toks) > 0 {
			b, err := operandsIn(toks, e.line, e.outer+len(e.brackets)+1)
			if err != nil {
				return err
			}
			bounds[i] = "(" + b + ")|" + fnBound
		}
	}
	e.write("[" + bounds[0] + ":" + bounds[1] + "]")
	e.skip(1)
	return e.chain()
}

// outerColons are the places of colons outside of brackets.
func outerColons(toks []token) (at []int) {
	depth := 0
	for i, t := range toks {
		switch {
		case t.kind != op:
		case strings.Contains("([{", t.text):
			depth++
		case strings.Contains(")]}", t.text):
			depth--
		case t.text == ":" && depth == 0:
			at = append(at, i)
		}
	}
	return at
}

func (r rule) holds(args []argument) bool {
	plain := 0
	for _, a := range args {
		switch {
		case a.name == "":
			plain++
		case !slices.Contains(strings.Fields(r.named), a.name):
			return false
		}
	}
	return plain <= r.args && (r.check == nil || r.check(args))
}
