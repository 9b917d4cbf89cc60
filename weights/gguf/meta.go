package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/weights"
)

// Meta is a file's metadata. Every accessor's error names the key, and for a value of another type what
// was wanted and what was found; for a missing key it wraps weights.ErrNotFound. The accessors named Or
// return def for a missing key, but still an error for one of another type.
//
// Arrays are decoded anew by each call. Meta is safe for concurrent use until the file is closed.
type Meta struct {
	values map[string]value
	keys   []string
	file   *File // whose first shard the arrays lie in
}

// Keys returns all keys in the order of the file.
func (m *Meta) Keys() []string { return slices.Clone(m.keys) }

// Has reports whether there is a value for key.
func (m *Meta) Has(key string) bool {
	_, ok := m.values[key]
	return ok
}

// TypeOf returns the type of key's value, for an array also its elements' type and their number.
func (m *Meta) TypeOf(key string) (typ, elem ValueType, count int, ok bool) {
	v, ok := m.values[key]
	return v.typ, v.elem, v.count, ok
}

func (m *Meta) get(key string) (value, error) {
	v, ok := m.values[key]
	if !ok {
		return value{}, fmt.Errorf("gguf: key %s: %w", quote.Name(key), weights.ErrNotFound)
	}
	return v, nil
}

// describe names the type of v for an error.
func (v value) describe() string {
	if v.typ == Array {
		return fmt.Sprintf("an array of %d %vs", v.count, v.elem)
	}
	return v.typ.String()
}

func wrongType(key, want string, v value) error {
	return fmt.Errorf("gguf: key %s: want %s, found %s", quote.Name(key), want, v.describe())
}

// integer returns the value of a scalar of an integer type: its bits sign-extended, and whether that is
// to be read as negative.
func integer(t ValueType, raw uint64) (u uint64, negative, ok bool) {
	var s int64
	switch t {
	case Uint8, Uint16, Uint32, Uint64:
		return raw, false, true
	case Int8:
		s = int64(int8(raw))
	case Int16:
		s = int64(int16(raw))
	case Int32:
		s = int64(int32(raw))
	case Int64:
		s = int64(raw)
	default:
		return 0, false, false
	}
	return uint64(s), s < 0, true
}

// float returns the value of a scalar of a floating-point type.
func float(t ValueType, raw uint64) (float64, bool) {
	switch t {
	case Float32:
		return float64(math.Float32frombits(uint32(raw))), true
	case Float64:
		return math.Float64frombits(raw), true
	}
	return 0, false
}

// String returns a string.
func (m *Meta) String(key string) (string, error) {
	v, err := m.get(key)
	if err != nil {
		return "", err
	}
	if v.typ != String {
		return "", wrongType(key, "string", v)
	}
	return v.str, nil
}

// Uint returns a value of any integer type that is not negative.
func (m *Meta) Uint(key string) (uint64, error) {
	v, err := m.get(key)
	if err != nil {
		return 0, err
	}
	u, negative, ok := integer(v.typ, v.bits)
	if !ok {
		return 0, wrongType(key, "an unsigned integer", v)
	}
	if negative {
		return 0, fmt.Errorf("gguf: key %s: want an unsigned integer, found %d", quote.Name(key), int64(u))
	}
	return u, nil
}

// Int returns a value of any integer type that fits an int.
func (m *Meta) Int(key string) (int, error) {
	v, err := m.get(key)
	if err != nil {
		return 0, err
	}
	u, negative, ok := integer(v.typ, v.bits)
	if !ok {
		return 0, wrongType(key, "an integer", v)
	}
	if !negative && u > math.MaxInt || negative && int64(u) < math.MinInt {
		return 0, fmt.Errorf("gguf: key %s: %d is too large", quote.Name(key), u)
	}
	return int(u), nil
}

// Float returns a float32 or float64.
func (m *Meta) Float(key string) (float64, error) {
	v, err := m.get(key)
	if err != nil {
		return 0, err
	}
	f, ok := float(v.typ, v.bits)
	if !ok {
		return 0, wrongType(key, "a float", v)
	}
	return f, nil
}

// Bool returns a bool.
func (m *Meta) Bool(key string) (bool, error) {
	v, err := m.get(key)
	if err != nil {
		return false, err
	}
	if v.typ != Bool {
		return false, wrongType(key, "bool", v)
	}
	return v.bits != 0, nil
}

// or returns what get finds for key, or def if there is no such key.
func or[T any](m *Meta, get func(string) (T, error), key string, def T) (T, error) {
	if !m.Has(key) {
		return def, nil
	}
	return get(key)
}

// StringOr is String with a default.
func (m *Meta) StringOr(key, def string) (string, error) { return or(m, m.String, key, def) }

// UintOr is Uint with a default.
func (m *Meta) UintOr(key string, def uint64) (uint64, error) { return or(m, m.Uint, key, def) }

// IntOr is Int with a default.
func (m *Meta) IntOr(key string, def int) (int, error) { return or(m, m.Int, key, def) }

// FloatOr is Float with a default.
func (m *Meta) FloatOr(key string, def float64) (float64, error) { return or(m, m.Float, key, def) }

// BoolOr is Bool with a default.
func (m *Meta) BoolOr(key string, def bool) (bool, error) { return or(m, m.Bool, key, def) }

// elements calls each with the bytes of every element of an array of a fixed-size type, guarded
// against the file being truncated meanwhile.
func (m *Meta) elements(v value, each func(i int, raw uint64) error) error {
	return m.file.read(v, func(data []byte) error {
		size := v.elem.size()
		for i := range v.count {
			var b [8]byte
			copy(b[:], data[i*size:(i+1)*size])
			if err := each(i, binary.LittleEndian.Uint64(b[:])); err != nil {
				return err
			}
		}
		return nil
	})
}

// Strings returns an array of strings. They are copies: the file may be closed.
func (m *Meta) Strings(key string) ([]string, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	if v.typ != Array || v.elem != String {
		return nil, wrongType(key, "an array of strings", v)
	}
	out := make([]string, v.count)
	err = m.file.read(v, func(data []byte) error {
		// One copy for all: a vocabulary's 100,000 small strings would cost as many allocations. Opening
		// has checked the lengths, but the file may have changed since.
		all, off := string(data), 0
		for i := range out {
			if len(data)-off < 8 {
				return weights.ErrChanged
			}
			n := binary.LittleEndian.Uint64(data[off:])
			off += 8
			if n > uint64(len(data)-off) {
				return weights.ErrChanged
			}
			out[i] = all[off : off+int(n)]
			off += int(n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gguf: key %s: %w", quote.Name(key), err)
	}
	return out, nil
}

// Ints returns an array of any integer type, or a single integer as an array of one: keys that may
// differ by layer are written either way.
func (m *Meta) Ints(key string) ([]int, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	if v.typ != Array {
		n, err := m.Int(key)
		if err != nil {
			return nil, wrongType(key, "integers", v)
		}
		return []int{n}, nil
	}
	return integers[int](m, key, v, "integers", math.MinInt, math.MaxInt)
}

// Int32s returns an array of any integer type whose values fit int32.
func (m *Meta) Int32s(key string) ([]int32, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	return integers[int32](m, key, v, "an array of int32", math.MinInt32, math.MaxInt32)
}

// integers decodes an array whose values lie in lo..hi.
func integers[T int | int32](m *Meta, key string, v value, want string, lo, hi int64) ([]T, error) {
	if _, _, ok := integer(v.elem, 0); v.typ != Array || !ok {
		return nil, wrongType(key, want, v)
	}
	out := make([]T, v.count)
	err := m.elements(v, func(i int, raw uint64) error {
		u, negative, _ := integer(v.elem, raw)
		if negative && int64(u) < lo || !negative && u > uint64(hi) {
			return fmt.Errorf("element %d: %d is out of range", i, raw)
		}
		out[i] = T(u)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gguf: key %s: %w", quote.Name(key), err)
	}
	return out, nil
}

// Float32s returns an array of float32, or of float64 rounded to it.
func (m *Meta) Float32s(key string) ([]float32, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	if _, ok := float(v.elem, 0); v.typ != Array || !ok {
		return nil, wrongType(key, "an array of floats", v)
	}
	out := make([]float32, v.count)
	err = m.elements(v, func(i int, raw uint64) error {
		f, _ := float(v.elem, raw)
		out[i] = float32(f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gguf: key %s: %w", quote.Name(key), err)
	}
	return out, nil
}

// Bools returns an array of bools.
func (m *Meta) Bools(key string) ([]bool, error) {
	v, err := m.get(key)
	if err != nil {
		return nil, err
	}
	if v.typ != Array || v.elem != Bool {
		return nil, wrongType(key, "an array of bools", v)
	}
	out := make([]bool, v.count)
	err = m.elements(v, func(i int, raw uint64) error {
		if raw > 1 {
			return fmt.Errorf("element %d: bool of value %d", i, raw)
		}
		out[i] = raw == 1
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gguf: key %s: %w", quote.Name(key), err)
	}
	return out, nil
}

// Format returns key's value as text for people: arrays are cut after a few elements.
func (m *Meta) Format(key string) string {
	const shown = 4
	v, ok := m.values[key]
	if !ok {
		return ""
	}
	if v.typ != Array {
		return v.format()
	}
	var parts []string
	switch v.elem {
	case String:
		all, err := m.Strings(key)
		if err != nil {
			return err.Error()
		}
		for _, s := range all[:min(shown, len(all))] {
			parts = append(parts, fmt.Sprintf("%q", s))
		}
	case Array:
		parts = append(parts, "…")
	default:
		short := v
		short.count = min(shown, v.count)
		if err := m.elements(short, func(_ int, raw uint64) error {
			parts = append(parts, value{typ: v.elem, bits: raw}.format())
			return nil
		}); err != nil {
			return err.Error()
		}
	}
	more := ""
	if v.count > len(parts) {
		more = fmt.Sprintf(", … %d in all", v.count)
	}
	return "[" + strings.Join(parts, ", ") + more + "]"
}

// format prints a scalar or string.
func (v value) format() string {
	if v.typ == String {
		return v.str
	}
	if v.typ == Bool {
		return fmt.Sprint(v.bits != 0)
	}
	if v.typ == Float32 {
		return fmt.Sprint(math.Float32frombits(uint32(v.bits)))
	}
	if f, ok := float(v.typ, v.bits); ok {
		return fmt.Sprint(f)
	}
	u, negative, _ := integer(v.typ, v.bits)
	if negative {
		return fmt.Sprint(int64(u))
	}
	return fmt.Sprint(u)
}
