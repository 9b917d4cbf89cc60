package chat

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// path is an attribute of an item: a key, an index, or several joined by dots.
func (r *run) path(v, attribute value) (value, error) {
	name, ok := attribute.(string)
	if !ok {
		return r.item(v, attribute)
	}
	for part := range strings.SplitSeq(name, ".") {
		var err error
		if isUndefined(v) {
			return v, nil
		}
		if v, err = r.item(v, part); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// mapped is map(attribute="name") or map("filter", arguments).
func mapped(r *run, v value, a args) (value, error) {
	items, err := r.items(v)
	if err == nil {
		err = r.room(len(items), itemBytes)
	}
	if err != nil {
		return nil, err
	}
	var each func(x value) (value, error)
	if attribute, ok := a.kw["attribute"]; ok {
		each = func(x value) (value, error) {
			y, err := r.path(x, attribute)
			if def, ok := a.kw["default"]; ok && err == nil && isUndefined(y) {
				y = def
			}
			return y, err
		}
	} else {
		name, _ := a.get(0, "", nil).(string)
		f := filterNamed(name)
		if f == nil {
			return nil, fmt.Errorf("chat: template maps by the filter %.40q, which is not supported", name)
		}
		each = func(x value) (value, error) {
			return r.call(&callable{name, func(r *run, rest args) (value, error) { return f(r, x, rest) }}, args{a.pos[1:], a.kw})
		}
	}
	out := make([]value, len(items))
	for i, x := range items {
		if out[i], err = each(x); err != nil {
			return nil, err
		}
	}
	return &list{items: out}, nil
}

// chosen is select, reject, selectattr or rejectattr.
func chosen(keep, byAttribute bool) filterFunc {
	return func(r *run, v value, a args) (value, error) {
		items, err := r.items(v)
		if err != nil {
			return nil, err
		}
		var attribute value
		if byAttribute {
			if len(a.pos) == 0 {
				return nil, fmt.Errorf("chat: template selects by an attribute without a name")
			}
			attribute, a.pos = a.pos[0], a.pos[1:]
		}
		test := func(_ *run, x value, _ args) (bool, error) { return truth(x), nil }
		if len(a.pos) > 0 {
			name, _ := a.pos[0].(string)
			var ok bool
			if test, ok = tests[name]; !ok {
				return nil, fmt.Errorf("chat: template selects by the test %.40q, which is not supported", name)
			}
			a.pos = a.pos[1:]
		}
		var out []value
		for _, item := range items {
			x := item
			if byAttribute {
				if x, err = r.path(item, attribute); err != nil {
					return nil, err
				}
			}
			yes, err := test(r, x, a)
			if err == nil {
				err = r.step()
			}
			if err != nil {
				return nil, err
			}
			if yes == keep {
				out = append(out, item)
			}
		}
		return r.list(out)
	}
}

// sortBy sorts items by what key says.
func (r *run) sortBy(items []value, key func(value) (value, error), backwards bool) ([]value, error) {
	type pair struct{ key, item value }
	if err := r.room(len(items), 3*itemBytes); err != nil {
		return nil, err
	}
	pairs := make([]pair, len(items))
	for i, x := range items {
		k, err := key(x)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{k, x}
	}
	var failed error
	slices.SortStableFunc(pairs, func(x, y pair) int {
		if failed != nil {
			return 0
		}
		c, err := r.compare(x.key, y.key, 0)
		if failed = err; backwards {
			c = -c
		}
		return c
	})
	out := make([]value, len(pairs))
	for i, p := range pairs {
		out[i] = p.item
	}
	return out, failed
}

// folded is x for comparing without regard to case, unless exact.
func (r *run) folded(x value, exact bool) (value, error) {
	s, ok := x.(string)
	if !ok || exact {
		return x, nil
	}
	if err := r.room(3, len(s)); err != nil {
		return nil, err
	}
	return strings.ToLower(s), nil
}

func sorted(r *run, v value, a args) (value, error) {
	items, err := r.items(v)
	if err != nil {
		return nil, err
	}
	exact, attribute := truth(a.get(1, "case_sensitive", false)), a.get(2, "attribute", nil)
	items, err = r.sortBy(items, func(x value) (value, error) {
		if attribute != nil {
			var err error
			if x, err = r.path(x, attribute); err != nil {
				return nil, err
			}
		}
		return r.folded(x, exact)
	}, truth(a.get(0, "reverse", false)))
	return &list{items: items}, err
}

func dictSort(r *run, v value, a args) (value, error) {
	pairs, err := itemsOf(r, v, args{})
	if err != nil {
		return nil, err
	}
	which := 0
	if a.get(1, "by", "key") == "value" {
		which = 1
	}
	exact := truth(a.get(0, "case_sensitive", false))
	items, err := r.sortBy(pairs.(*list).items, func(x value) (value, error) {
		return r.folded(x.(*list).items[which], exact)
	}, truth(a.get(2, "reverse", false)))
	return &list{items: items}, err
}

func unique(r *run, v value, a args) (value, error) {
	items, err := r.items(v)
	if err != nil {
		return nil, err
	}
	var out, keys []value
	for _, x := range items {
		k := x
		if attribute := a.get(1, "attribute", nil); attribute != nil {
			if k, err = r.path(x, attribute); err != nil {
				return nil, err
			}
		}
		if k, err = r.folded(k, truth(a.get(0, "case_sensitive", false))); err != nil {
			return nil, err
		}
		seen, err := r.contains(&list{items: keys}, k)
		if err != nil {
			return nil, err
		}
		if !seen {
			keys, out = append(keys, k), append(out, x)
		}
	}
	return r.list(out)
}

// extreme is max (1) or min (-1).
func extreme(sign int) filterFunc {
	return func(r *run, v value, a args) (value, error) {
		items, err := r.items(v)
		if err != nil || len(items) == 0 {
			return undefined{"the extreme of nothing"}, err
		}
		best := items[0]
		for _, x := range items[1:] {
			c, err := r.compare(x, best, 0)
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = x
			}
		}
		return best, nil
	}
}

func sum(r *run, v value, a args) (value, error) {
	items, err := r.items(v)
	if err != nil {
		return nil, err
	}
	total := a.get(1, "start", int64(0))
	for _, x := range items {
		if attribute := a.get(0, "attribute", nil); attribute != nil {
			if x, err = r.path(x, attribute); err != nil {
				return nil, err
			}
		}
		if err := r.step(); err != nil {
			return nil, err
		}
		if total, err = r.operate("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}
