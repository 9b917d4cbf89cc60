package chat

import "fmt"

// parser reads the body of one tag.
type parser struct {
	tokens []token
	at     int
	depth  *int // of nesting, of the whole template
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != 0 {
		p.at++
	}
	return t
}

// is reports whether the next token is this operator or word.
func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == 'o' || t.kind == 'n') && t.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return fmt.Errorf("chat: template has %s where %q should be", p.peek(), text)
	}
	return nil
}

func (p *parser) name() (string, error) {
	t := p.next()
	if t.kind != 'n' {
		return "", fmt.Errorf("chat: template has %s where a name should be", t)
	}
	return t.text, nil
}

func (p *parser) end() error {
	if t := p.peek(); t.kind != 0 {
		return fmt.Errorf("chat: template has %s where the tag should end", t)
	}
	return nil
}

// enter counts a level of nesting: a template must not exhaust the stack of who reads it.
func (p *parser) enter() error {
	if *p.depth++; *p.depth > maxNesting {
		return fmt.Errorf("%w: nested deeper than %d", ErrLimit, maxNesting)
	}
	return nil
}

func (p *parser) leave() { *p.depth-- }

// expr reads a whole expression: yes if test else no.
func (p *parser) expr() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.or()
	for err == nil && p.accept("if") {
		c := choice{yes: x}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.accept("else") {
			if c.no, err = p.expr(); err != nil {
				return nil, err
			}
		}
		x = c
		if err := p.long(1); err != nil {
			return nil, err
		}
	}
	return x, err
}

// long bounds what stands in a row, such as a.b.c or a + b + c.
func (p *parser) long(n int) error {
	if n > maxChain {
		return fmt.Errorf("%w: more than %d operators in a row", ErrLimit, maxChain)
	}
	return nil
}

func (p *parser) or() (expr, error)  { return p.logic("or", p.and) }
func (p *parser) and() (expr, error) { return p.logic("and", p.not) }

func (p *parser) logic(word string, operand func() (expr, error)) (expr, error) {
	x, err := operand()
	if err != nil || !p.is(word) {
		return x, err
	}
	l := logic{or: word == "or", xs: []expr{x}}
	for p.accept(word) {
		if x, err = operand(); err != nil {
			return nil, err
		}
		l.xs = append(l.xs, x)
	}
	return l, nil
}

func (p *parser) not() (expr, error) {
	if !p.accept("not") {
		return p.comparison()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.not()
	return unary{"not", x}, err
}

func (p *parser) comparison() (expr, error) {
	x, err := p.sum()
	c := comparison{x: x}
	for err == nil {
		op := p.peek().text
		switch {
		case p.accept("=="), p.accept("!="), p.accept("<"), p.accept(">"), p.accept("<="), p.accept(">="), p.accept("in"):
		case p.is("not") && p.tokens[p.at+1].kind == 'n' && p.tokens[p.at+1].text == "in":
			p.at += 2
			op = "not in"
		default:
			if len(c.ops) == 0 {
				return x, nil
			}
			return c, nil
		}
		var y expr
		y, err = p.sum()
		c.ops, c.ys = append(c.ops, op), append(c.ys, y)
	}
	return nil, err
}

func (p *parser) sum() (expr, error)     { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() (expr, error)  { return p.binary(p.product, "~") }
func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	x, err := operand()
	b := binary{x: x}
	for err == nil {
		op := ""
		for _, o := range ops {
			if t := p.peek(); t.kind == 'o' && t.text == o {
				op = o
			}
		}
		if op == "" {
			if len(b.ops) == 0 {
				return x, nil
			}
			return b, nil
		}
		p.at++
		var y expr
		y, err = operand()
		b.ops, b.ys = append(b.ops, op), append(b.ys, y)
	}
	return nil, err
}

func (p *parser) unary(filters bool) (x expr, err error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	switch {
	case p.accept("-"):
		x, err = p.unary(false)
		x = unary{"-", x}
	case p.accept("+"):
		x, err = p.unary(false)
		x = unary{"+", x}
	default:
		x, err = p.primary()
	}
	for n := 1; err == nil; n++ {
		if err := p.long(n); err != nil {
			return nil, err
		}
		var y expr
		switch y, err = p.postfix(x); {
		case err != nil || y != nil:
		case !filters:
			return x, nil
		default:
			if y, err = p.filterOrTest(x); y == nil && err == nil {
				return x, nil
			}
		}
		x = y
	}
	return nil, err
}

// postfix reads one of .name, [key] and (arguments) behind x; nil if there is none.
func (p *parser) postfix(x expr) (expr, error) {
	switch {
	case p.accept("."):
		if t := p.peek(); t.kind == 'i' {
			p.at++
			return itemOf{x, literal{t.i}}, nil
		}
		name, err := p.name()
		return attrOf{x, name}, err
	case p.accept("["):
		return p.subscript(x)
	case p.is("("):
		a, err := p.arguments()
		return call{x, a}, err
	}
	return nil, nil
}

func (p *parser) subscript(x expr) (expr, error) {
	var parts [3]expr
	n := 0
	for !p.is("]") {
		if p.accept(":") {
			if n++; n > 2 {
				return nil, fmt.Errorf("chat: template has a slice of more than three parts")
			}
			continue
		}
		y, err := p.expr()
		if err != nil {
			return nil, err
		}
		if parts[n] != nil {
			return nil, fmt.Errorf("chat: template has %s where \"]\" should be", p.peek())
		}
		parts[n] = y
	}
	p.at++
	switch {
	case n > 0:
		return sliceOf{x, parts[0], parts[1], parts[2]}, nil
	case parts[0] == nil:
		return nil, fmt.Errorf("chat: template has empty brackets behind a value")
	}
	return itemOf{x, parts[0]}, nil
}

// filterOrTest reads |name(arguments) or is name behind x; nil if there is neither.
func (p *parser) filterOrTest(x expr) (expr, error) {
	switch {
	case p.accept("|"):
		return p.filter(x)
	case p.accept("is"):
		c := check{x: x, negated: p.accept("not")}
		var err error
		if c.name, err = p.name(); err != nil {
			return nil, err
		}
		if _, ok := tests[c.name]; !ok {
			return nil, fmt.Errorf("chat: template has the test %.40q, which is not supported", c.name)
		}
		switch t := p.peek(); {
		case p.is("("):
			c.arguments, err = p.arguments()
		case t.kind == 's' || t.kind == 'i' || t.kind == 'f' || p.is("[") || p.is("{"),
			t.kind == 'n' && !p.is("else") && !p.is("or") && !p.is("and") && !p.is("is") && !p.is("if") && !p.is("in") && !p.is("not"):
			var y expr
			if y, err = p.primary(); err == nil {
				c.pos = []expr{y}
			}
		}
		return c, err
	}
	return nil, nil
}

func (p *parser) filter(x expr) (expr, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if filterNamed(name) == nil {
		return nil, fmt.Errorf("chat: template has the filter %.40q, which is not supported", name)
	}
	f := filter{x: x, name: name}
	if p.is("(") {
		f.arguments, err = p.arguments()
	}
	return f, err
}

// arguments reads (a, b, name=c).
func (p *parser) arguments() (a arguments, err error) {
	if err := p.expect("("); err != nil {
		return a, err
	}
	for !p.accept(")") {
		if len(a.pos)+len(a.kw) > 0 {
			if err := p.expect(","); err != nil {
				return a, err
			}
			if p.accept(")") {
				break
			}
		}
		name := ""
		if next := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.peek().kind == 'n' && next.kind == 'o' && next.text == "=" {
			name = p.peek().text
			p.at += 2
		}
		x, err := p.expr()
		if err != nil {
			return a, err
		}
		switch {
		case name != "":
			a.names, a.kw = append(a.names, name), append(a.kw, x)
		case len(a.kw) > 0:
			return a, fmt.Errorf("chat: template has an argument without a name behind one with a name")
		default:
			a.pos = append(a.pos, x)
		}
	}
	return a, nil
}

func (p *parser) primary() (expr, error) {
	switch t := p.next(); {
	case t.kind == 's':
		text := t.text
		for p.peek().kind == 's' {
			text += p.next().text
		}
		return literal{text}, nil
	case t.kind == 'i':
		return literal{t.i}, nil
	case t.kind == 'f':
		return literal{t.f}, nil
	case t.kind == 'n':
		switch t.text {
		case "true", "True":
			return literal{true}, nil
		case "false", "False":
			return literal{false}, nil
		case "none", "None":
			return literal{nil}, nil
		}
		return nameOf{t.text}, nil
	case t.text == "(" && t.kind == 'o':
		return p.parenthesis()
	case t.text == "[" && t.kind == 'o':
		items, err := p.list("]")
		return listOf{items: items}, err
	case t.text == "{" && t.kind == 'o':
		return p.dict()
	default:
		return nil, fmt.Errorf("chat: template has %s where a value should be", t)
	}
}

// parenthesis is an expression or a tuple.
func (p *parser) parenthesis() (expr, error) {
	if p.accept(")") {
		return listOf{tuple: true}, nil
	}
	x, err := p.expr()
	if err != nil {
		return nil, err
	}
	if p.accept(")") {
		return x, nil
	}
	if err := p.expect(","); err != nil {
		return nil, err
	}
	rest, err := p.list(")")
	return listOf{append([]expr{x}, rest...), true}, err
}

// list reads expressions up to the closing bracket.
func (p *parser) list(end string) (items []expr, err error) {
	for !p.accept(end) {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.accept(end) {
				break
			}
		}
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	var d dictOf
	for !p.accept("}") {
		if len(d.keys) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.accept("}") {
				break
			}
		}
		k, err := p.expr()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		v, err := p.expr()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, k), append(d.values, v)
	}
	return d, nil
}
