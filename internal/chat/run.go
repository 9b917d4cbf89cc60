package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// run is one rendering. It counts what it costs: a template is a program out of a file.
type run struct {
	now      time.Time
	deadline time.Time
	steps    int // nodes, expressions and values visited
	look     int // the step at which to look at the clock
	bytes    int // of values made, whether they still live or not
	most     int // bytes allowed
	depth    int // of calls
}

var errBreak, errContinue = errors.New("break"), errors.New("continue")

// scope is names and their values.
type scope struct {
	names  map[string]value
	parent *scope
}

func (s *scope) inner() *scope { return &scope{parent: s} }

func (s *scope) set(name string, v value) {
	if s.names == nil {
		s.names = map[string]value{}
	}
	s.names[name] = v
}

func (s *scope) get(name string) value {
	for ; s != nil; s = s.parent {
		if v, ok := s.names[name]; ok {
			return v
		}
	}
	return undefined{name}
}

// output is what a body has written.
type output struct{ strings.Builder }

// step counts one step.
func (r *run) step() error {
	if r.steps++; r.steps > maxSteps {
		return fmt.Errorf("%w: more than %d steps", ErrLimit, maxSteps)
	}
	if r.steps >= r.look {
		r.look = r.steps + 1024
		if time.Now().After(r.deadline) {
			return fmt.Errorf("%w: more than %v", ErrLimit, timeout)
		}
	}
	return nil
}

// work is steps for going through n bytes.
func (r *run) work(n int) error {
	r.steps += n / 16
	return r.step()
}

// made counts bytes of a value that is new.
func (r *run) made(n int) error {
	if n > maxStringBytes {
		return fmt.Errorf("%w: a value of %d bytes, at most %d", ErrLimit, n, maxStringBytes)
	}
	if r.bytes += n; r.bytes > r.most {
		return fmt.Errorf("%w: values of more than %d bytes in all", ErrLimit, r.most)
	}
	return nil
}

// room is made for a value that is n times size bytes large, before it is.
func (r *run) room(n, size int) error {
	if n > 0 && size > maxStringBytes/n {
		return fmt.Errorf("%w: a value of %d times %d bytes, at most %d", ErrLimit, n, size, maxStringBytes)
	}
	return r.made(max(n, 0) * size)
}

// itemBytes is what an item of a list takes, besides what it refers to.
const itemBytes = 48

// visit is a step through a value at a depth, of which n bytes of text have been written.
func (r *run) visit(n, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("%w: a value nested deeper than %d", ErrLimit, maxNesting)
	}
	if n > maxStringBytes {
		return r.made(n)
	}
	return r.step()
}

// string is a new string as a value.
func (r *run) string(s string) (value, error) { return s, r.made(len(s)) }

// list is a new list as a value.
func (r *run) list(items []value) (value, error) {
	return &list{items: items}, r.made(len(items) * itemBytes)
}

func (r *run) write(out *output, s string) error {
	if out.Len()+len(s) > maxStringBytes {
		return fmt.Errorf("%w: text of more than %d bytes", ErrLimit, maxStringBytes)
	}
	out.WriteString(s)
	return r.made(len(s))
}

// body executes nodes.
func (r *run) body(nodes []node, s *scope, out *output) error {
	for _, n := range nodes {
		if err := r.step(); err != nil {
			return err
		}
		if err := n.exec(r, s, out); err != nil {
			return err
		}
	}
	return nil
}

func (n textNode) exec(r *run, _ *scope, out *output) error { return r.write(out, n.text) }

func (n outputNode) exec(r *run, s *scope, out *output) error {
	v, err := n.x.eval(r, s)
	if err != nil {
		return err
	}
	text, err := r.text(v)
	if err != nil {
		return err
	}
	return r.write(out, text)
}

func (n ifNode) exec(r *run, s *scope, out *output) error {
	for i, test := range n.tests {
		v, err := test.eval(r, s)
		if err != nil {
			return err
		}
		if truth(v) {
			return r.body(n.bodies[i], s, out)
		}
	}
	if len(n.bodies) > len(n.tests) {
		return r.body(n.bodies[len(n.tests)], s, out)
	}
	return nil
}

func (n jumpNode) exec(*run, *scope, *output) error { return n.err }

func (n setNode) exec(r *run, s *scope, _ *output) error {
	v, err := n.x.eval(r, s)
	if err != nil {
		return err
	}
	if len(n.targets) == 1 {
		return r.assign(s, n.targets[0], v)
	}
	items, err := r.apart(v, len(n.targets))
	if err != nil {
		return err
	}
	for i, t := range n.targets {
		if err := r.assign(s, t, items[i]); err != nil {
			return err
		}
	}
	return nil
}

// apart is the items of v, which must be n.
func (r *run) apart(v value, n int) ([]value, error) {
	items, err := r.items(v)
	if err == nil && len(items) != n {
		err = fmt.Errorf("chat: template takes %d items apart as %d", len(items), n)
	}
	return items, err
}

func (r *run) assign(s *scope, t target, v value) error {
	if t.attr == "" {
		s.set(t.name, v)
		return r.made(itemBytes)
	}
	d, ok := s.get(t.name).(*dict)
	if !ok || !d.namespace {
		return fmt.Errorf("chat: template sets an attribute of %.40q, which is no namespace", t.name)
	}
	d.set(t.attr, v)
	return r.made(itemBytes)
}

// captured is what nodes write, after filters.
func (r *run) captured(nodes []node, s *scope, filters expr) (value, error) {
	var out output
	inner := s.inner()
	if err := r.body(nodes, inner, &out); err != nil {
		return nil, err
	}
	if filters == nil {
		return out.String(), nil
	}
	inner.set(written, out.String())
	return filters.eval(r, inner)
}

func (n setBlock) exec(r *run, s *scope, _ *output) error {
	v, err := r.captured(n.body, s, n.filters)
	if err != nil {
		return err
	}
	return r.assign(s, n.target, v)
}

func (n filterBlock) exec(r *run, s *scope, out *output) error {
	v, err := r.captured(n.body, s, n.filters)
	if err != nil {
		return err
	}
	text, err := r.text(v)
	if err != nil {
		return err
	}
	return r.write(out, text)
}

func (n macroNode) exec(r *run, s *scope, _ *output) error {
	s.set(n.name, n.callable(s))
	return r.made(itemBytes)
}

// callable is the macro as a function that finds other names in s.
func (n macroNode) callable(s *scope) *callable {
	return &callable{n.name, func(r *run, a args) (value, error) {
		if len(a.pos) > len(n.params) {
			return nil, fmt.Errorf("chat: template gives %d arguments to %s, which takes %d", len(a.pos), n.name, len(n.params))
		}
		inner := s.inner()
		for i, name := range n.params {
			v := a.get(i, name, undefined{name})
			if _, ok := a.kw[name]; i >= len(a.pos) && !ok && n.defaults[i] != nil {
				var err error
				if v, err = n.defaults[i].eval(r, inner); err != nil {
					return nil, err
				}
			}
			inner.set(name, v)
		}
		if c, ok := a.kw["caller"]; ok {
			inner.set("caller", c)
		}
		var out output
		if err := r.body(n.body, inner, &out); err != nil {
			return nil, err
		}
		return out.String(), nil
	}}
}

func (n callNode) exec(r *run, s *scope, out *output) error {
	c := n.call.(call)
	fn, err := c.fn.eval(r, s)
	if err != nil {
		return err
	}
	a, err := c.arguments.eval(r, s)
	if err != nil {
		return err
	}
	if a.kw == nil {
		a.kw = map[string]value{}
	}
	a.kw["caller"] = n.caller.callable(s)
	v, err := r.call(fn, a)
	if err != nil {
		return err
	}
	text, err := r.text(v)
	if err != nil {
		return err
	}
	return r.write(out, text)
}
