package chat

import (
	"fmt"
)

// written is the name under which the filters of a block find its text. No template can use it.
const written = "the block"

// reader walks over the pieces of a template.
type reader struct {
	pieces []tag
	depth  int
	loops  int // open for loops
}

// parse reads a whole template.
func parse(src string) ([]node, error) {
	pieces, err := split(src)
	if err != nil {
		return nil, err
	}
	r := &reader{pieces: pieces}
	body, end, err := r.nodes()
	if err == nil && end != nil {
		err = fmt.Errorf("chat: template has {%% %.40s %%} without its beginning", end.tokens[0].text)
	}
	return body, err
}

// nodes reads up to a tag that is not a beginning, and returns that tag, or nil at the end of the template.
func (r *reader) nodes() (body []node, end *parser, err error) {
	if r.depth++; r.depth > maxNesting {
		return nil, nil, fmt.Errorf("%w: nested deeper than %d", ErrLimit, maxNesting)
	}
	defer func() { r.depth-- }()
	for len(r.pieces) > 0 {
		t := r.pieces[0]
		r.pieces = r.pieces[1:]
		if t.kind == 't' {
			body = append(body, textNode{t.body})
			continue
		}
		tokens, err := lex(t.body)
		if err != nil {
			return nil, nil, err
		}
		p := &parser{tokens: tokens, depth: &r.depth}
		if t.kind == '{' {
			x, err := p.tuple()
			if err == nil {
				err = p.end()
			}
			if err != nil {
				return nil, nil, err
			}
			body = append(body, outputNode{x})
			continue
		}
		n, ended, err := r.statement(p)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%w (in %.60q)", err, "{% "+t.body+" %}")
		case ended:
			return body, p, nil
		case n != nil:
			body = append(body, n)
		}
	}
	return body, nil, nil
}

// statement reads the rest of a {% %} tag and what belongs to it. ended means that it is no beginning.
func (r *reader) statement(p *parser) (n node, ended bool, err error) {
	word, err := p.name()
	if err != nil {
		return nil, false, err
	}
	switch word {
	case "if":
		n, err = r.ifTag(p)
	case "for":
		n, err = r.forTag(p)
	case "set":
		n, err = r.setTag(p)
	case "macro":
		n, err = r.macroTag(p)
	case "call":
		n, err = r.callTag(p)
	case "filter":
		n, err = r.filterTag(p)
	case "break", "continue":
		if r.loops == 0 {
			return nil, false, fmt.Errorf("chat: template has a %s outside of a loop", word)
		}
		n, err = jumpNode{map[string]error{"break": errBreak, "continue": errContinue}[word]}, p.end()
	case "generation", "endgeneration": // mark the assistant's tokens for training
		return nil, false, p.end()
	case "else", "elif", "endif", "endfor", "endset", "endmacro", "endcall", "endfilter":
		p.at = 0
		return nil, true, nil
	default:
		return nil, false, fmt.Errorf("chat: template has the tag %.40q, which is not supported", word)
	}
	return n, false, err
}

// close checks that a block ended with the given tag.
func closeTag(end *parser, word string) error {
	if end == nil {
		return fmt.Errorf("chat: template has no %s", word)
	}
	if err := end.expect(word); err != nil {
		return err
	}
	if word == "endmacro" && end.peek().kind == 'n' {
		end.at++ // its name
	}
	return end.end()
}

// block reads a body that ends with word.
func (r *reader) block(p *parser, word string) ([]node, error) {
	if err := p.end(); err != nil {
		return nil, err
	}
	body, end, err := r.nodes()
	if err == nil {
		err = closeTag(end, word)
	}
	return body, err
}

func (r *reader) ifTag(p *parser) (node, error) {
	var n ifNode
	for {
		test, err := p.expr()
		if err == nil {
			err = p.end()
		}
		if err != nil {
			return nil, err
		}
		body, end, err := r.nodes()
		if err != nil {
			return nil, err
		}
		n.tests, n.bodies = append(n.tests, test), append(n.bodies, body)
		switch {
		case end != nil && end.accept("elif"):
			p = end
		case end != nil && end.accept("else"):
			if body, err = r.block(end, "endif"); err != nil {
				return nil, err
			}
			n.bodies = append(n.bodies, body)
			return n, nil
		default:
			return n, closeTag(end, "endif")
		}
	}
}

func (r *reader) forTag(p *parser) (_ node, err error) {
	var n forNode
	brackets := p.accept("(")
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		n.targets = append(n.targets, name)
		if !p.accept(",") {
			break
		}
	}
	if brackets {
		if err := p.expect(")"); err != nil {
			return nil, err
		}
	}
	if err := p.expect("in"); err != nil {
		return nil, err
	}
	if n.over, err = p.items(p.or); err != nil {
		return nil, err
	}
	if p.accept("if") {
		if n.filter, err = p.expr(); err != nil {
			return nil, err
		}
	}
	n.recursive = p.accept("recursive")
	if err := p.end(); err != nil {
		return nil, err
	}
	r.loops++
	body, end, err := r.nodes()
	r.loops--
	if err != nil {
		return nil, err
	}
	n.body = body
	if end != nil && end.accept("else") {
		n.otherwise, err = r.block(end, "endfor")
		return n, err
	}
	return n, closeTag(end, "endfor")
}

// tuple reads an expression, or several separated by commas.
func (p *parser) tuple() (expr, error) { return p.items(p.expr) }

func (p *parser) items(one func() (expr, error)) (expr, error) {
	x, err := one()
	if err != nil || !p.is(",") {
		return x, err
	}
	l := listOf{[]expr{x}, true}
	for p.accept(",") {
		if t := p.peek(); t.kind == 0 {
			break
		}
		if x, err = one(); err != nil {
			return nil, err
		}
		l.items = append(l.items, x)
	}
	return l, nil
}

func (r *reader) setTag(p *parser) (node, error) {
	var targets []target
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		t := target{name: name}
		if p.accept(".") {
			if t.attr, err = p.name(); err != nil {
				return nil, err
			}
		}
		targets = append(targets, t)
		if !p.accept(",") {
			break
		}
	}
	if p.accept("=") {
		x, err := p.tuple()
		if err != nil {
			return nil, err
		}
		return setNode{targets, x}, p.end()
	}
	if len(targets) > 1 {
		return nil, fmt.Errorf("chat: template sets several names to one block")
	}
	n := setBlock{target: targets[0]}
	var err error
	if n.filters, err = p.blockFilters(false); err != nil {
		return nil, err
	}
	n.body, err = r.block(p, "endset")
	return n, err
}

// blockFilters reads the filters of a block: the first without its bar, if it is bare.
func (p *parser) blockFilters(bare bool) (x expr, err error) {
	for n := 1; bare || p.accept("|"); n++ {
		if x == nil {
			x = nameOf{written}
		}
		if x, err = p.filter(x); err == nil {
			err = p.long(n)
		}
		if err != nil {
			return nil, err
		}
		bare = false
	}
	return x, nil
}

func (r *reader) filterTag(p *parser) (_ node, err error) {
	var n filterBlock
	if n.filters, err = p.blockFilters(true); err != nil {
		return nil, err
	}
	n.body, err = r.block(p, "endfilter")
	return n, err
}

// params reads (a, b=1).
func (n *macroNode) readParams(p *parser) error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.accept(")") {
		if len(n.params) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		name, err := p.name()
		if err != nil {
			return err
		}
		var def expr
		if p.accept("=") {
			if def, err = p.expr(); err != nil {
				return err
			}
		}
		n.params, n.defaults = append(n.params, name), append(n.defaults, def)
	}
	return nil
}

// inside reads the body of a macro, in which the loops around it do not count.
func (r *reader) inside(p *parser, end string) ([]node, error) {
	loops := r.loops
	r.loops = 0
	defer func() { r.loops = loops }()
	return r.block(p, end)
}

func (r *reader) macroTag(p *parser) (_ node, err error) {
	var n macroNode
	if n.name, err = p.name(); err != nil {
		return nil, err
	}
	if err := n.readParams(p); err != nil {
		return nil, err
	}
	n.body, err = r.inside(p, "endmacro")
	return n, err
}

func (r *reader) callTag(p *parser) (_ node, err error) {
	n := callNode{caller: macroNode{name: "caller"}}
	if p.is("(") {
		if err := n.caller.readParams(p); err != nil {
			return nil, err
		}
	}
	if n.call, err = p.expr(); err != nil {
		return nil, err
	}
	if _, ok := n.call.(call); !ok {
		return nil, fmt.Errorf("chat: template has a call block that calls nothing")
	}
	n.caller.body, err = r.inside(p, "endcall")
	return n, err
}
