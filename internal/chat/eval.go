package chat

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

func (l literal) eval(r *run, _ *scope) (value, error) { return l.v, r.step() }
func (n nameOf) eval(r *run, s *scope) (value, error)  { return s.get(n.name), r.step() }

func (l listOf) eval(r *run, s *scope) (value, error) {
	if err := r.room(len(l.items), itemBytes); err != nil {
		return nil, err
	}
	items := make([]value, len(l.items))
	for i, x := range l.items {
		v, err := x.eval(r, s)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return &list{items, l.tuple}, r.step()
}

func (d dictOf) eval(r *run, s *scope) (value, error) {
	if err := r.room(len(d.keys), 3*itemBytes); err != nil {
		return nil, err
	}
	out := newDict()
	for i := range d.keys {
		k, err := d.keys[i].eval(r, s)
		if err != nil {
			return nil, err
		}
		v, err := d.values[i].eval(r, s)
		if err != nil {
			return nil, err
		}
		key, err := r.text(k)
		if err != nil {
			return nil, err
		}
		out.set(key, v)
	}
	return out, r.step()
}

func (l logic) eval(r *run, s *scope) (v value, err error) {
	for _, x := range l.xs {
		if v, err = x.eval(r, s); err != nil || truth(v) == l.or {
			return v, err
		}
	}
	return v, r.step()
}

func (c choice) eval(r *run, s *scope) (value, error) {
	v, err := c.test.eval(r, s)
	switch {
	case err != nil:
		return nil, err
	case truth(v):
		return c.yes.eval(r, s)
	case c.no == nil:
		return undefined{"a choice without else"}, nil
	}
	return c.no.eval(r, s)
}

func (u unary) eval(r *run, s *scope) (value, error) {
	v, err := u.x.eval(r, s)
	if err != nil {
		return nil, err
	}
	if u.op == "not" {
		return !truth(v), r.step()
	}
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		return nil, fmt.Errorf("chat: template takes %s for a number", kind(v))
	case u.op == "+" && isInt:
		return i, nil
	case u.op == "+":
		return f, nil
	case isInt && i != math.MinInt64:
		return -i, nil
	}
	return -f, nil
}

func (b binary) eval(r *run, s *scope) (value, error) {
	v, err := b.x.eval(r, s)
	for i := range b.ys {
		if err != nil {
			return nil, err
		}
		var y value
		if y, err = b.ys[i].eval(r, s); err != nil {
			return nil, err
		}
		if err = r.step(); err == nil {
			v, err = r.operate(b.ops[i], v, y)
		}
	}
	return v, err
}

func (c comparison) eval(r *run, s *scope) (value, error) {
	x, err := c.x.eval(r, s)
	if err != nil {
		return nil, err
	}
	for i, op := range c.ops {
		y, err := c.ys[i].eval(r, s)
		if err != nil {
			return nil, err
		}
		yes, err := r.relation(op, x, y)
		if err != nil || !yes {
			return false, err
		}
		x = y
	}
	return true, nil
}

// relation is whether x op y.
func (r *run) relation(op string, x, y value) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := r.equal(x, y, 0)
		return same == (op == "=="), err
	case "in", "not in":
		has, err := r.contains(y, x)
		return has == (op == "in"), err
	}
	c, err := r.compare(x, y, 0)
	switch op {
	case "<":
		return c < 0, err
	case ">":
		return c > 0, err
	case "<=":
		return c <= 0, err
	}
	return c >= 0, err
}

// contains is whether x is in v.
func (r *run) contains(v, x value) (bool, error) {
	switch v := v.(type) {
	case string:
		s, ok := x.(string)
		if !ok {
			return false, fmt.Errorf("chat: template looks for %s in a string", kind(x))
		}
		return strings.Contains(v, s), r.work(len(v))
	case *list:
		for _, item := range v.items {
			if same, err := r.equal(item, x, 0); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case *dict:
		key, ok := x.(string)
		_, has := v.values[key]
		return ok && has, nil
	case undefined:
		return false, nil
	}
	return false, fmt.Errorf("chat: template looks for something in %s", kind(v))
}

func (a attrOf) eval(r *run, s *scope) (value, error) {
	v, err := a.obj.eval(r, s)
	if err != nil {
		return nil, err
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case undefined:
		return nil, fmt.Errorf("chat: template takes .%s of %s", a.name, kind(v))
	case loopValue:
		return v.attr(a.name), nil
	case *dict:
		if v.namespace {
			break
		}
		if m, ok := dictMethods[a.name]; ok {
			return bound(a.name, v, m), nil
		}
	case string:
		if m, ok := stringMethods[a.name]; ok {
			return bound(a.name, v, m), nil
		}
	case *list:
		if m, ok := listMethods[a.name]; ok {
			return bound(a.name, v, m), nil
		}
	}
	return lookUp(v, a.name), nil
}

func bound[T any](name string, v T, m func(*run, T, args) (value, error)) value {
	return &callable{name, func(r *run, a args) (value, error) { return m(r, v, a) }}
}

func lookUp(v value, key string) value {
	if d, ok := v.(*dict); ok {
		if x, ok := d.values[key]; ok {
			return x
		}
	}
	return undefined{key}
}

func (i itemOf) eval(r *run, s *scope) (value, error) {
	v, err := i.obj.eval(r, s)
	if err != nil {
		return nil, err
	}
	key, err := i.key.eval(r, s)
	if err != nil {
		return nil, err
	}
	return r.item(v, key)
}

// item is v[key].
func (r *run) item(v, key value) (value, error) {
	switch v := v.(type) {
	case undefined:
		return nil, fmt.Errorf("chat: template takes an item of %s", kind(v))
	case *dict:
		k, err := r.text(key)
		return lookUp(v, k), err
	case loopValue:
		if k, ok := key.(string); ok {
			return v.attr(k), nil
		}
	case *list:
		if i, ok := place(key, len(v.items)); ok {
			return v.items[i], nil
		}
	case string:
		if _, ok := key.(int64); !ok {
			break
		}
		if err := r.work(2 * len(v)); err != nil {
			return nil, err
		}
		n := len(v)
		if !ascii(v) {
			n = utf8.RuneCountInString(v)
		}
		if i, ok := place(key, n); ok {
			if n != len(v) {
				v = v[byteOf(v, i):]
				return v[:byteOf(v, 1)], nil
			}
			return v[i : i+1], nil
		}
	}
	k, err := r.text(key)
	return undefined{k}, err
}

// place is an index into n items; negative ones count from the end.
func place(key value, n int) (int, bool) {
	i, ok := key.(int64)
	if i < 0 {
		i += int64(n)
	}
	return int(i), ok && i >= 0 && i < int64(n)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func (c call) eval(r *run, s *scope) (value, error) {
	fn, err := c.fn.eval(r, s)
	if err != nil {
		return nil, err
	}
	a, err := c.arguments.eval(r, s)
	if err != nil {
		return nil, err
	}
	return r.call(fn, a)
}

// call calls fn, unless calls are nested too deep.
func (r *run) call(fn value, a args) (value, error) {
	if r.depth++; r.depth > maxNesting {
		return nil, fmt.Errorf("%w: calls nested deeper than %d", ErrLimit, maxNesting)
	}
	defer func() { r.depth-- }()
	if err := r.step(); err != nil {
		return nil, err
	}
	switch fn := fn.(type) {
	case *callable:
		return fn.call(r, a)
	case loopValue:
		return fn.again(r, a)
	}
	return nil, fmt.Errorf("chat: template calls %s", kind(fn))
}

func (a arguments) eval(r *run, s *scope) (out args, err error) {
	if err := r.made((len(a.pos) + len(a.kw)) * itemBytes); err != nil {
		return out, err
	}
	out.pos = make([]value, len(a.pos))
	for i, x := range a.pos {
		if out.pos[i], err = x.eval(r, s); err != nil {
			return out, err
		}
	}
	if len(a.kw) > 0 {
		out.kw = make(map[string]value, len(a.kw)+1)
	}
	for i, x := range a.kw {
		if out.kw[a.names[i]], err = x.eval(r, s); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (f filter) eval(r *run, s *scope) (value, error) {
	v, err := f.x.eval(r, s)
	if err != nil {
		return nil, err
	}
	a, err := f.arguments.eval(r, s)
	if err != nil {
		return nil, err
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	return filterNamed(f.name)(r, v, a)
}

func (c check) eval(r *run, s *scope) (value, error) {
	v, err := c.x.eval(r, s)
	if err != nil {
		return nil, err
	}
	a, err := c.arguments.eval(r, s)
	if err != nil {
		return nil, err
	}
	yes, err := tests[c.name](r, v, a)
	return yes != c.negated, err
}
