package chat

import "fmt"

// items is what a loop over v goes through.
func (r *run) items(v value) ([]value, error) {
	switch v := v.(type) {
	case *list:
		return v.items, nil
	case undefined:
		return nil, nil
	case string:
		return r.characters(v)
	case *dict:
		if v.namespace {
			break
		}
		if err := r.room(len(v.keys), itemBytes); err != nil {
			return nil, err
		}
		keys := make([]value, len(v.keys))
		for i, k := range v.keys {
			keys[i] = k
		}
		return keys, nil
	}
	return nil, fmt.Errorf("chat: template goes through %s", kind(v))
}

func (r *run) characters(s string) ([]value, error) {
	if err := r.room(len(s), itemBytes); err != nil {
		return nil, err
	}
	items := make([]value, 0, len(s))
	for i, c := range s {
		n := len(string(c))
		items = append(items, s[i:min(i+n, len(s))])
	}
	return items, nil
}

func (n forNode) exec(r *run, s *scope, out *output) error {
	v, err := n.over.eval(r, s)
	if err != nil {
		return err
	}
	return n.run(r, s, out, v, 0)
}

// run loops over v; depth is that of a recursive loop.
func (n forNode) run(r *run, s *scope, out *output, v value, depth int) error {
	items, err := r.items(v)
	if err == nil && n.filter != nil {
		items, err = n.filtered(r, s, items)
	}
	switch {
	case err != nil:
		return err
	case len(items) == 0:
		return r.body(n.otherwise, s.inner(), out)
	}
	l := &loop{n: n, s: s, items: items, depth: depth}
	for i := range items {
		inner := s.inner()
		if err := n.bind(r, inner, items[i]); err != nil {
			return err
		}
		l.at = i
		inner.set("loop", l.value())
		if err := r.made(4 * itemBytes); err != nil {
			return err
		}
		switch err := r.body(n.body, inner, out); err {
		case nil, errContinue:
		case errBreak:
			return nil
		default:
			return err
		}
	}
	return nil
}

func (n forNode) bind(r *run, s *scope, item value) error {
	if len(n.targets) == 1 {
		s.set(n.targets[0], item)
		return nil
	}
	parts, err := r.apart(item, len(n.targets))
	if err != nil {
		return err
	}
	for i, name := range n.targets {
		s.set(name, parts[i])
	}
	return nil
}

func (n forNode) filtered(r *run, s *scope, items []value) (kept []value, err error) {
	for _, item := range items {
		inner := s.inner()
		if err := n.bind(r, inner, item); err != nil {
			return nil, err
		}
		v, err := n.filter.eval(r, inner)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			kept = append(kept, item)
		}
	}
	return kept, r.made(len(kept) * itemBytes)
}

// loop is a loop under way. Templates see it as a value of the same name.
type loop struct {
	n       forNode
	s       *scope
	items   []value
	at      int
	depth   int
	changed value // what loop.changed saw last
	any     bool  // whether it saw something
}

// loopValue is a loop in one pass: at stays what it is.
type loopValue struct {
	*loop
	at int
}

func (l *loop) value() loopValue { return loopValue{l, l.at} }

// attr is one of the loop's attributes.
func (l loopValue) attr(name string) value {
	n := len(l.items)
	beside := func(i int) value {
		if i < 0 || i >= n {
			return undefined{"loop." + name}
		}
		return l.items[i]
	}
	switch name {
	case "index":
		return int64(l.at + 1)
	case "index0":
		return int64(l.at)
	case "revindex":
		return int64(n - l.at)
	case "revindex0":
		return int64(n - l.at - 1)
	case "first":
		return l.at == 0
	case "last":
		return l.at == n-1
	case "length":
		return int64(n)
	case "previtem":
		return beside(l.at - 1)
	case "nextitem":
		return beside(l.at + 1)
	case "depth":
		return int64(l.depth + 1)
	case "depth0":
		return int64(l.depth)
	case "cycle":
		return &callable{"loop.cycle", func(_ *run, a args) (value, error) {
			if len(a.pos) == 0 {
				return nil, fmt.Errorf("chat: template cycles through nothing")
			}
			return a.pos[l.at%len(a.pos)], nil
		}}
	case "changed":
		return &callable{"loop.changed", l.isChanged}
	}
	return undefined{"loop." + name}
}

func (l loopValue) isChanged(r *run, a args) (value, error) {
	now := &list{items: a.pos}
	if l.any {
		same, err := r.equal(l.changed, now, 0)
		if same || err != nil {
			return false, err
		}
	}
	l.loop.changed, l.loop.any = now, true
	return true, nil
}

// again is loop(items) in a recursive loop.
func (l loopValue) again(r *run, a args) (value, error) {
	if !l.n.recursive || len(a.pos) != 1 {
		return nil, fmt.Errorf("chat: template calls a loop that is not recursive, or not with one list")
	}
	var out output
	if err := l.n.run(r, l.s, &out, a.pos[0], l.depth+1); err != nil {
		return nil, err
	}
	return out.String(), nil
}
