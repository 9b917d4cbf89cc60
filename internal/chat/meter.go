package chat

import (
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// meter counts what one rendering costs, in bytes: those of each operand that is evaluated, for operations take time and memory
// in proportion to their operands, and a fee for each operand, call and pass. Lists and dictionaries count as trees, once for
// each way to a value, as printing would write them.
type meter struct {
	spent, budget       int
	maxString, maxValue int // bytes of one string, of one tree
	started             time.Time
	timeout             time.Duration
	ticks, calls        int
	namespaces          map[*jinja.Dict]bool
	err                 error // the first error of a function of ours; all others return it, too
}

// Fees in bytes, about what Go allocates.
const (
	operandBytes = 16
	passBytes    = 64
	nodeBytes    = 64 // a value in a list
	dictBytes    = 512
)

// newMeter has limits for small conversations, and as much more as the variables have bytes: templates take them apart.
func newMeter(vars map[string]jinja.Value) *meter {
	m := &meter{started: time.Now(), namespaces: map[*jinja.Dict]bool{}}
	m.maxValue = 1 << 62
	given := 0
	for _, v := range vars {
		n, _ := m.size(v, 0) // of the caller's, which neither nests without end nor has namespaces
		given += n
	}
	m.budget = 32<<20 + 256*given
	m.maxString = 512<<10 + 8*given
	m.maxValue = 1<<20 + 80*given // a list of the characters of all messages
	m.timeout = time.Second + time.Duration(given)*time.Microsecond
	return m
}

// size is the size of v as a tree; it stops above the limit. No value contains itself: the library's methods that change lists
// and dictionaries are refused, so only namespaces change, which size lets no value contain.
func (m *meter) size(v jinja.Value, depth int) (n int, err error) {
	switch {
	case depth > maxDepth:
		return 0, fmt.Errorf("%w: lists and dictionaries nested deeper than %d", ErrLimit, maxDepth)
	case v.IsString():
		n = len(v.AsString())
	case v.IsList():
		for _, item := range v.AsList().Items {
			if err := m.add(&n, item, depth); err != nil {
				return 0, err
			}
		}
	case v.IsDict():
		d := v.AsDict()
		if depth > 0 && m.namespaces[d] {
			return 0, refused("a namespace in another value")
		}
		n = dictBytes
		for _, k := range d.Keys {
			n += len(k)
			if err := m.add(&n, d.Data[k], depth); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (m *meter) add(n *int, item jinja.Value, depth int) error {
	k, err := m.size(item, depth+1)
	if *n += k + nodeBytes; err == nil && *n > m.maxValue {
		err = fmt.Errorf("%w: a value of more than %d bytes", ErrLimit, m.maxValue)
	}
	return err
}

func (m *meter) spend(n int) error {
	m.spent += n
	m.ticks++
	switch {
	case m.spent > m.budget:
		return fmt.Errorf("%w: more than %d bytes of values, operands and calls", ErrLimit, m.budget)
	case (m.ticks%64 == 0 || n > 1<<12) && time.Since(m.started) > m.timeout:
		return fmt.Errorf("%w: more than %v", ErrLimit, m.timeout)
	}
	return nil
}

// operand is the filter at the end of each operand.
func (m *meter) operand(args []jinja.Value) (jinja.Value, error) {
	n, err := m.check(args[0], 0)
	if err == nil {
		err = m.spend(operandBytes + n)
	}
	return args[0], err
}

func (m *meter) check(v jinja.Value, depth int) (int, error) {
	n, err := m.size(v, depth)
	if err == nil && v.IsString() && n > m.maxString {
		err = fmt.Errorf("%w: a string of %d bytes, at most %d", ErrLimit, n, m.maxString)
	}
	return n, err
}

// keep is the filter at the end of what is assigned. Its bytes are those of operands, which have been counted.
func (m *meter) keep(args []jinja.Value) (jinja.Value, error) {
	_, err := m.check(args[0], 0)
	if err == nil {
		err = m.spend(operandBytes)
	}
	return args[0], err
}

// number is operand for those of arithmetic.
func (m *meter) number(args []jinja.Value) (jinja.Value, error) {
	if v := args[0]; !v.IsNumber() && !v.IsBool() {
		return v, refused(fmt.Sprintf("arithmetic with %.40s, which is no number", v))
	}
	return m.operand(args)
}

// into is keep for what is assigned to an attribute: v|into(namespace).
func (m *meter) into(args []jinja.Value) (jinja.Value, error) {
	if !args[1].IsDict() || !m.namespaces[args[1].AsDict()] {
		return args[0], fmt.Errorf("chat: template sets an attribute of what is no namespace")
	}
	_, err := m.check(args[0], 1) // 1: of another value
	if err == nil {
		err = m.spend(operandBytes)
	}
	return args[0], err
}

// bound is the filter of each bound of a slice: the library walks from one to the other, outside of the value, too.
func (m *meter) bound(args []jinja.Value) (jinja.Value, error) {
	if !args[0].IsInt() {
		return args[0], refused(fmt.Sprintf("a slice to %.40s", args[0]))
	}
	most := int64(m.maxValue)
	return jinja.NewInt(min(max(args[0].AsInt(), -most), most)), nil
}

func (m *meter) pass([]jinja.Value) (jinja.Value, error) { return jinja.None(), m.spend(passBytes) }

func (m *meter) enter([]jinja.Value) (jinja.Value, error) {
	if m.calls++; m.calls > maxCalls {
		return jinja.None(), fmt.Errorf("%w: calls of macros nested deeper than %d", ErrLimit, maxCalls)
	}
	return jinja.None(), m.spend(passBytes)
}

func (m *meter) leave([]jinja.Value) (jinja.Value, error) {
	m.calls--
	return jinja.None(), nil
}
