package chat

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// operate computes x op y.
func (r *run) operate(op string, x, y value) (value, error) {
	switch op {
	case "~":
		return r.join(x, y)
	case "+":
		if a, ok := x.(string); ok {
			if b, ok := y.(string); ok {
				if err := r.made(len(a) + len(b)); err != nil {
					return nil, err
				}
				return a + b, nil
			}
		}
		if a, ok := x.(*list); ok {
			if b, ok := y.(*list); ok {
				if err := r.room(len(a.items)+len(b.items), itemBytes); err != nil {
					return nil, err
				}
				return &list{items: append(append(make([]value, 0, len(a.items)+len(b.items)), a.items...), b.items...)}, nil
			}
		}
	case "*":
		if v, done, err := r.repeat(x, y); done || err != nil {
			return v, err
		}
		if v, done, err := r.repeat(y, x); done || err != nil {
			return v, err
		}
	case "%":
		if format, ok := x.(string); ok {
			return r.format(format, y)
		}
	}
	return arithmetic(op, x, y)
}

// join is x ~ y.
func (r *run) join(x, y value) (value, error) {
	a, err := r.text(x)
	if err != nil {
		return nil, err
	}
	b, err := r.text(y)
	if err != nil {
		return nil, err
	}
	if err := r.made(len(a) + len(b)); err != nil {
		return nil, err
	}
	return a + b, nil
}

// repeat is x·n for a string or a list.
func (r *run) repeat(x, n value) (v value, done bool, err error) {
	count, ok := n.(int64)
	if !ok {
		return nil, false, nil
	}
	times := int(max(0, min(count, math.MaxInt32)))
	switch x := x.(type) {
	case string:
		if err := r.room(times, len(x)); err != nil {
			return nil, true, err
		}
		if x == "" {
			times = 0
		}
		return strings.Repeat(x, times), true, nil
	case *list:
		if err := r.room(times, len(x.items)*itemBytes); err != nil {
			return nil, true, err
		}
		var items []value
		if len(x.items) > 0 {
			for range times {
				items = append(items, x.items...)
			}
		}
		return &list{items: items}, true, nil
	}
	return nil, false, nil
}

// arithmetic is x op y of numbers.
func arithmetic(op string, x, y value) (value, error) {
	xi, xf, xInt, xOK := number(x)
	yi, yf, yInt, yOK := number(y)
	switch {
	case !xOK || !yOK:
		return nil, fmt.Errorf("chat: template computes %s %s %s", kind(x), op, kind(y))
	case (op == "/" || op == "//" || op == "%") && yf == 0:
		return nil, fmt.Errorf("chat: template divides by zero")
	case xInt && yInt && op != "/":
		return integers(op, xi, yi)
	}
	switch op {
	case "+":
		return xf + yf, nil
	case "-":
		return xf - yf, nil
	case "*":
		return xf * yf, nil
	case "/":
		return xf / yf, nil
	case "//":
		return math.Floor(xf / yf), nil
	case "%":
		m := math.Mod(xf, yf)
		if m != 0 && (m < 0) != (yf < 0) {
			m += yf
		}
		return m, nil
	}
	return math.Pow(xf, yf), nil
}

// integers is x op y. Python's integers have no end; ours are an error beyond 64 bits.
func integers(op string, x, y int64) (value, error) {
	sum, overflow := x, false
	switch op {
	case "+":
		sum = x + y
		overflow = (sum > x) != (y > 0)
	case "-":
		sum = x - y
		overflow = (sum < x) != (y > 0)
	case "*":
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		sum, overflow = x*y, hi != 0 || lo > math.MaxInt64
	case "//", "%":
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) {
			q, m = q-1, m+y
		}
		if sum = q; op == "%" {
			sum = m
		}
	case "**":
		f := math.Pow(float64(x), float64(y))
		if y < 0 || f > 1<<53 || f < -1<<53 {
			return f, nil
		}
		return int64(f), nil
	}
	if overflow && y != 0 {
		return nil, fmt.Errorf("chat: template computes %d %s %d, which is too large", x, op, y)
	}
	return sum, nil
}
