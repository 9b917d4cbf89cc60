package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/flashdecode/flashdecode/internal/quote"
)

// Bounds on what a file may claim. Real models stay far below them; they keep a hostile file from
// costing more than a small multiple of its size.
const (
	maxName     = 1<<16 - 1 // bytes of a key or a tensor name: the format's limit for keys
	maxDims     = 4         // the format's limit
	maxNesting  = 4         // arrays within arrays
	maxAlign    = 1 << 30
	minKVSize   = 8 + 1 + 4 + 1         // key length, key, type, value
	minInfoSize = 8 + 1 + 4 + 0 + 4 + 8 // name length, name, dimensions, type, offset
	headerSize  = 4 + 4 + 8 + 8         // magic, version, counts
	magic       = uint32('G' | 'G'<<8 | 'U'<<16 | 'F'<<24)
)

// reader walks the bytes of a file. After the first error it returns zeros and keeps that error.
type reader struct {
	data []byte
	off  int
	err  error
}

func (r *reader) left() int { return len(r.data) - r.off }

// fail records an error at offset at.
func (r *reader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("offset %d: %w", at, fmt.Errorf(format, args...))
	}
}

// take returns the next n bytes, or nil if there are fewer. what says what they are.
func (r *reader) take(n uint64, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(r.left()) {
		r.fail(r.off, "%s: %d bytes wanted, the file has %d left", what, n, r.left())
		return nil
	}
	b := r.data[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return b
}

func (r *reader) u32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// name reads a key or the name of a tensor.
func (r *reader) name(what string) string {
	at := r.off
	n := r.u64(what)
	if r.err == nil && (n == 0 || n > maxName) {
		r.fail(at, "%s of %d bytes (allowed: 1 to %d)", what, n, maxName)
	}
	return string(r.take(n, what))
}

// value is a metadata value: a scalar or string decoded, an array still in the file.
type value struct {
	typ  ValueType
	bits uint64 // scalars, as the file has them, not sign-extended
	str  string

	elem       ValueType // arrays: type, number and place of the elements
	count      int
	start, end int
}

// value reads the value of key.
func (r *reader) value(key string) value {
	at := r.off
	v := value{typ: ValueType(r.u32("type of a value"))}
	switch {
	case r.err != nil:
	case v.typ >= numValueTypes:
		r.fail(at, "key %s: unknown value type %d", quote.Name(key), uint32(v.typ))
	case v.typ == Array:
		v.elem, v.count, v.start = r.array(key, 1)
		v.end = r.off
	case v.typ == String:
		v.str = string(r.take(r.u64("length of a string"), "string"))
	default:
		var b [8]byte
		copy(b[:], r.take(uint64(v.typ.size()), "value"))
		v.bits = binary.LittleEndian.Uint64(b[:])
		if v.typ == Bool && v.bits > 1 {
			r.fail(at+4, "key %s: bool of value %d", quote.Name(key), v.bits)
		}
	}
	if r.err != nil {
		return value{}
	}
	return v
}

// array reads an array's head and walks over its elements, which begin at start.
func (r *reader) array(key string, depth int) (elem ValueType, count, start int) {
	at := r.off
	elem = ValueType(r.u32("type of an array's elements"))
	n := r.u64("length of an array")
	start = r.off
	if r.err != nil {
		return 0, 0, 0
	}
	if elem >= numValueTypes {
		r.fail(at, "key %s: unknown element type %d", quote.Name(key), uint32(elem))
		return 0, 0, 0
	}
	least := uint64(8) // a string's length
	switch elem {
	case String:
	case Array:
		least = 12
	default:
		least = uint64(elem.size())
	}
	if n > uint64(r.left())/least {
		r.fail(at, "key %s: array of %d %vs, the file has %d bytes left", quote.Name(key), n, elem, r.left())
		return 0, 0, 0
	}
	switch elem {
	case String:
		r.skipStrings(key, int(n))
	case Array:
		if depth == maxNesting {
			r.fail(at, "key %s: arrays nested deeper than %d", quote.Name(key), maxNesting)
		}
		for i := 0; i < int(n) && r.err == nil; i++ {
			r.array(key, depth+1)
		}
	default:
		r.take(n*least, "array")
	}
	return elem, int(n), start
}

// skipStrings walks over n strings. A vocabulary has some 100,000: this loop is what opening costs.
func (r *reader) skipStrings(key string, n int) {
	data, off := r.data, r.off
	for i := range n {
		if len(data)-off < 8 {
			r.fail(off, "key %s: the file ends in string %d of %d", quote.Name(key), i, n)
			return
		}
		size := binary.LittleEndian.Uint64(data[off:])
		off += 8
		if size > uint64(len(data)-off) {
			r.fail(off-8, "key %s: string %d of %d: %d bytes wanted, the file has %d left", quote.Name(key), i, n, size, len(data)-off)
			return
		}
		off += int(size)
	}
	r.off = off
}

// header reads magic, version and counts.
func (r *reader) header() (tensors, kvs int) {
	if len(r.data) < headerSize {
		r.fail(0, "file of %d bytes is too short for a GGUF header", len(r.data))
		return 0, 0
	}
	if m := r.u32("magic"); m != magic {
		r.fail(0, "not a GGUF file: it begins with %q%s", r.data[:4], hint(r.data))
		return 0, 0
	}
	switch v := r.u32("version"); {
	case v == 2 || v == 3:
	case v == 1:
		r.fail(4, "GGUF version 1 is not supported (2 and 3 are): convert the model again")
	case v != 0 && bits.ReverseBytes32(v) < 1<<16:
		r.fail(4, "big-endian GGUF is not supported: convert the model for little endian")
	default:
		r.fail(4, "GGUF version %d is not supported (2 and 3 are)", v)
	}
	t, k := r.u64("tensor count"), r.u64("key count")
	if t > uint64(r.left())/minInfoSize {
		r.fail(8, "%d tensors claimed, the file has %d bytes left", t, r.left())
	}
	if k > uint64(r.left())/minKVSize {
		r.fail(16, "%d keys claimed, the file has %d bytes left", k, r.left())
	}
	if r.err != nil {
		return 0, 0
	}
	return int(t), int(k)
}

// hint explains common files that are taken for GGUF.
func hint(data []byte) string {
	switch {
	case string(data[:4]) == "vers":
		return ", a Git LFS pointer: fetch the file itself (git lfs pull)"
	case string(data[:2]) == "PK":
		return ", a zip archive or PyTorch file: convert it to GGUF"
	case data[8] == '{':
		return ", a safetensors file"
	case string(data[1:4]) == "mgg" || string(data[1:4]) == "jgg" || string(data[1:4]) == "tgg":
		return ", a file from before GGUF: convert the model again"
	}
	return ""
}
