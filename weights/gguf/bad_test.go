package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// raw builds files that Write refuses to.
type raw []byte

func header(tensors, kvs uint64) raw {
	return raw("GGUF").u32(3).u64(tensors).u64(kvs)
}
func (b raw) u32(v uint32) raw { return binary.LittleEndian.AppendUint32(b, v) }
func (b raw) u64(v uint64) raw { return binary.LittleEndian.AppendUint64(b, v) }
func (b raw) str(s string) raw { return append(b.u64(uint64(len(s))), s...) }
func (b raw) zeros(n int) raw  { return append(b, make([]byte, n)...) }
func (b raw) info(name string, typ uint32, offset uint64, dims ...uint64) raw {
	b = b.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		b = b.u64(d)
	}
	return b.u32(typ).u64(offset)
}

// array appends key and the head of an array.
func (b raw) array(key string, elem ValueType, count uint64) raw {
	return b.str(key).u32(uint32(Array)).u32(uint32(elem)).u64(count)
}

// badFiles are files that must be refused, with what the error must say.
var badFiles = []struct {
	name string
	data []byte
	want []string
}{
	{"empty", nil, []string{"too short"}},
	{"magic", raw("GGML").zeros(40), []string{"not a GGUF file", `"GGML"`}},
	{"lfs", raw("version https://git-lfs.github.com/spec/v1"), []string{"Git LFS"}},
	{"zip", raw("PK\x03\x04").zeros(40), []string{"zip"}},
	{"safetensors", append(raw{}.u64(2), raw("{}").zeros(40)...), []string{"safetensors"}},
	{"old", raw("tjgg").zeros(40), []string{"before GGUF"}},
	{"v1", raw("GGUF").u32(1).zeros(40), []string{"version 1"}},
	{"v4", raw("GGUF").u32(4).zeros(40), []string{"version 4", "2 and 3"}},
	{"big endian", raw("GGUF").u32(3 << 24).zeros(40), []string{"big-endian"}},
	{"tensor count", header(1<<60, 0).zeros(40), []string{"1152921504606846976 tensors", "offset 8"}},
	{"key count", header(0, 1<<60).zeros(40), []string{"keys claimed", "offset 16"}},
	{"key length", header(0, 1).u64(1 << 40).zeros(40), []string{"key of 1099511627776 bytes", "offset 24"}},
	{"empty key", header(0, 1).u64(0).zeros(40), []string{"key of 0 bytes"}},
	{"key cut", header(0, 1).u64(100).zeros(40), []string{"key", "100 bytes wanted"}},
	{"value type", header(0, 1).str("k").u32(13).zeros(40), []string{`key "k"`, "unknown value type 13", "offset 33"}},
	{"value cut", header(0, 1).str("kkkkkkkk").u32(uint32(Uint64)).zeros(4), []string{"value", "8 bytes wanted"}},
	{"string length", header(0, 1).str("k").u32(uint32(String)).u64(1 << 63).zeros(9), []string{"string", "9223372036854775808 bytes wanted"}},
	{"bool", append(header(0, 1).str("k").u32(uint32(Bool)), 2), []string{`key "k"`, "bool of value 2"}},
	{"element type", header(0, 1).array("k", 99, 1).zeros(40), []string{`key "k"`, "element type 99"}},
	{"array count", header(0, 1).array("k", Uint8, 41).zeros(40), []string{`key "k"`, "array of 41 uint8s", "40 bytes left"}},
	{"array overflow", header(0, 1).array("k", Uint64, 1<<61+1).zeros(40), []string{`key "k"`, "array of"}},
	{"strings count", header(0, 1).array("k", String, 6).zeros(40), []string{`key "k"`, "6 strings"}},
	{"strings length", header(0, 1).array("k", String, 2).str("abc").u64(1 << 62).zeros(9), []string{`key "k"`, "string 1 of 2"}},
	{"strings cut", header(0, 1).array("k", String, 2).str("abcdefgh").zeros(7), []string{`key "k"`, "string 1 of 2"}},
	{"nesting", nested(maxNesting + 1), []string{`key "k"`, "nested deeper than 4"}},
	{"key twice", header(0, 2).str("k").u32(0).zeros(1).str("k").u32(0).zeros(1), []string{`key "k"`, "twice", "offset 38"}},
	{"alignment 0", header(0, 1).str("general.alignment").u32(uint32(Uint32)).u32(0), []string{"general.alignment is 0"}},
	{"alignment 48", header(0, 1).str("general.alignment").u32(uint32(Uint32)).u32(48), []string{"general.alignment is 48"}},
	{"alignment huge", header(0, 1).str("general.alignment").u32(uint32(Uint64)).u64(1 << 62), []string{"general.alignment is"}},
	{"alignment type", header(0, 1).str("general.alignment").u32(uint32(String)).str("32"), []string{"general.alignment", "found string"}},
	{"dims", header(1, 0).info("t", 0, 0, 1, 1, 1, 1, 1), []string{`tensor "t"`, "5 dimensions", "offset 24"}},
	{"dim", header(1, 0).info("t", 0, 0, 1<<63).zeros(99), []string{`tensor "t"`, "dimension 0"}},
	{"dims product", header(1, 0).info("t", 0, 0, 1<<32, 1<<32).zeros(99), []string{`tensor "t"`, "dimension 1"}},
	{"elements overflow", header(1, 0).info("t", 99, 0, 1<<62, 3).zeros(99), []string{`tensor "t"`, "dimension 1"}},
	{"bytes overflow", header(1, 0).info("t", 0, 0, 1<<62).zeros(99), []string{`tensor "t"`, "too large"}},
	{"blocks", header(1, 0).info("t", 12, 0, 128, 2).zeros(999), []string{`tensor "t"`, "rows of 128 weights", "Q4_K blocks of 256"}},
	{"offset", header(1, 0).info("t", 0, 1<<63, 4).zeros(99), []string{`tensor "t"`, "offset 9223372036854775808"}},
	{"misaligned", header(1, 0).info("t", 0, 8, 4).zeros(99), []string{`tensor "t"`, "8 is not a multiple of the alignment 32"}},
	{"beyond", header(1, 0).info("t", 0, 1<<40, 4).zeros(99), []string{`tensor "t"`, "beyond the end"}},
	{"truncated data", header(1, 0).info("t", 0, 0, 5).zeros(26), []string{`tensor "t"`, "20 bytes at 64", "beyond the end"}},
	{"tensor twice", header(2, 0).info("t", 0, 0, 4).info("t", 0, 32, 4).zeros(99), []string{`tensor "t"`, "twice", "offset 57"}},
	{"overlap", header(2, 0).info("a", 0, 0, 9).info("b", 0, 32, 4).zeros(99), []string{`tensor "b"`, "overlap", `"a"`}},
	{"list cut", header(1, 0).str("a longer name").u32(2).u64(4), []string{"dimension", "8 bytes wanted"}},
}

func nested(depth int) raw {
	b := header(0, 1).str("k").u32(uint32(Array))
	for range depth - 1 {
		b = b.u32(uint32(Array)).u64(1)
	}
	return b.u32(uint32(Uint8)).u64(1).zeros(1)
}

func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.data)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "gguf: memory: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestLongNames: no error repeats all of a name that a damaged file claims.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("ü", maxName/2)
	files := map[string][]byte{
		"type": header(0, 1).str(long).u32(13).zeros(40), "bool": append(header(0, 1).str(long).u32(uint32(Bool)), 2),
		"element": header(0, 1).array(long, 99, 1).zeros(40), "count": header(0, 1).array(long, Uint8, 41).zeros(40),
		"strings": header(0, 1).array(long, String, 2).str("abc").u64(1 << 62).zeros(9), "cut": header(0, 1).array(long, String, 2).str("abcdefgh").zeros(7),
		"twice": header(0, 2).str(long).u32(0).zeros(1).str(long).u32(0).zeros(1),
		"dims":  header(1, 0).info(long, 0, 0, 1, 1, 1, 1, 1), "dim": header(1, 0).info(long, 0, 0, 1<<63).zeros(99),
		"blocks": header(1, 0).info(long, 12, 0, 128, 2).zeros(999), "misaligned": header(1, 0).info(long, 0, 8, 4).zeros(99),
		"beyond": header(1, 0).info(long, 0, 1<<40, 4).zeros(99), "again": header(2, 0).info(long, 0, 0, 4).info(long, 0, 32, 4).zeros(99),
		"overlap": header(2, 0).info(long[2:], 0, 0, 9).info(long, 0, 32, 4).zeros(99),
	}
	for name, data := range files {
		if _, err := Parse(data); err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), "ü\"…") {
			t.Errorf("%s: %.600v", name, err)
		}
	}
	f, err := Parse(header(1, 1).str(long).u32(uint32(Bool)).zeros(1).info(long, 16, 0, 256).zeros(999))
	if err != nil {
		t.Fatal(err)
	}
	_, errs := f.Meta.Strings(long)
	_, missing := f.Meta.Int("x" + long)
	_, unsupported := f.Tensor(long)
	for _, err := range []error{errs, missing, unsupported, Write(io.Discard, []KV{{long, struct{}{}}}, nil)} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%.600v", err)
		}
	}
}

// TestTruncated: every prefix of a file is refused, but those that only lack padding or data that no
// tensor has.
func TestTruncated(t *testing.T) {
	meta, tensors := everything()
	data := write(t, meta, tensors)
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors[len(f.Tensors)-1]
	whole := int(last.Offset + last.Bytes)
	for n := range data {
		if _, err := Parse(data[:n:n]); (err == nil) != (n >= whole) {
			t.Fatalf("%d of %d bytes: error %v", n, len(data), err)
		}
	}
}

func TestBadBools(t *testing.T) {
	f, err := Parse(append(header(0, 1).array("k", Bool, 3), 0, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Meta.Bools("k"); err == nil || !strings.Contains(err.Error(), `key "k": element 2: bool of value 2`) {
		t.Errorf("a bool that is neither: %v", err)
	}
}

func TestNestedArrays(t *testing.T) {
	f, err := Parse(nested(maxNesting))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Meta.Ints("k"); err == nil || !strings.Contains(err.Error(), "an array of 1 arrays") {
		t.Errorf("integers of a nested array: %v", err)
	}
	if got := f.Meta.Format("k"); got != "[…]" {
		t.Errorf("a nested array prints as %q", got)
	}
}

// TestUnsupportedType: a tensor of a format that can't be read does not spoil the file.
func TestUnsupportedType(t *testing.T) {
	const iq2xs, future = 17, 99
	data := header(3, 0).info("ok", 0, 0, 4).info("iq", iq2xs, 32, 256, 2).info("new", future, 192, 7, 3).zeros(512)
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("ok"); err != nil {
		t.Error(err)
	}
	for name, typ := range map[string]string{"iq": "IQ2_XS", "new": "ggml type 99"} {
		_, err := f.Tensor(name)
		if !errors.Is(err, quant.ErrType) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{`"` + name + `"`, typ, "supported: F32"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
	if info, _ := f.Info("iq"); info.Bytes != 148 || info.Type != "IQ2_XS" {
		t.Errorf("info %+v", info)
	}
	if _, err := f.Tensor("none"); !errors.Is(err, weights.ErrNotFound) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("missing tensor: %v", err)
	}
}

func TestGapsAndEmptyTensors(t *testing.T) {
	f, err := Parse(header(3, 0).info("scalar", 0, 64).info("empty", 0, 0, 0, 5).info("a", 0, 128, 2).zeros(512))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"scalar": 4, "empty": 0, "a": 8} {
		if got, err := f.Tensor(name); err != nil || len(got.Data) != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestAllocationBound: claims that the file can't hold cost nothing; those that it can, a small
// multiple of it: about 300 bytes for the map entry and strings of the smallest key, of 14 bytes.
func TestAllocationBound(t *testing.T) {
	const n = 1 << 16
	many := header(0, n)
	for i := range n {
		many = append(many.u64(4).u32(uint32(i)).u32(uint32(Uint8)), 0)
	}
	for name, data := range map[string][]byte{
		"claimed keys":    header(0, 1<<60).zeros(1 << 20),
		"claimed tensors": header(1<<60, 0).zeros(1 << 20),
		"claimed strings": header(0, 1).array("k", String, 1<<60).zeros(1 << 20),
		"claimed string":  header(0, 1).str("k").u32(uint32(String)).u64(1 << 60).zeros(1 << 20),
		"many keys":       many,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(data)
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 40*uint64(len(data)) {
			t.Errorf("%s: %d bytes allocated for a file of %d", name, spent, len(data))
		} else if name != "many keys" && (err == nil || spent > 1<<16) {
			t.Errorf("%s: %d bytes allocated, error %v", name, spent, err)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	ok := weights.Tensor{Name: "t", Type: quant.F32, Shape: []int{2}, Data: make([]byte, 8)}
	with := func(change func(*weights.Tensor)) []weights.Tensor {
		bad := ok
		change(&bad)
		return []weights.Tensor{bad}
	}
	for name, c := range map[string]struct {
		meta    []KV
		tensors []weights.Tensor
		want    string
	}{
		"empty key":     {meta: []KV{{"", "x"}}, want: "key of 0 bytes"},
		"key twice":     {meta: []KV{{"k", "x"}, {"k", "x"}}, want: `key "k": appears twice`},
		"alignment":     {meta: []KV{{"general.alignment", uint32(5)}}, want: "general.alignment"},
		"value":         {meta: []KV{{"k", 5}}, want: "type int"},
		"array":         {meta: []KV{{"k", []any{5}}}, want: "[]interface"},
		"no name":       {tensors: with(func(t *weights.Tensor) { t.Name = "" }), want: "name of 0 bytes"},
		"tensor twice":  {tensors: []weights.Tensor{ok, ok}, want: `tensor "t": appears twice`},
		"type":          {tensors: with(func(t *weights.Tensor) { t.Type = 77 }), want: "unknown type"},
		"no shape":      {tensors: with(func(t *weights.Tensor) { t.Shape = nil }), want: "0 dimensions"},
		"five dims":     {tensors: with(func(t *weights.Tensor) { t.Shape = make([]int, 5) }), want: "5 dimensions"},
		"negative":      {tensors: with(func(t *weights.Tensor) { t.Shape = []int{-1, 2} }), want: "impossible shape"},
		"negative cols": {tensors: with(func(t *weights.Tensor) { t.Shape = []int{-2} }), want: "rows of -2"},
		"overflow":      {tensors: with(func(t *weights.Tensor) { t.Shape = []int{math.MaxInt, 2, 2} }), want: "impossible shape"},
		"row overflow":  {tensors: with(func(t *weights.Tensor) { t.Shape = []int{math.MaxInt, 2} }), want: "bytes of data"},
		"blocks":        {tensors: with(func(t *weights.Tensor) { t.Type = quant.Q4_0 }), want: "Q4_0 blocks of 32"},
		"long data":     {tensors: with(func(t *weights.Tensor) { t.Data = make([]byte, 9) }), want: "9 bytes of data"},
		"short data":    {tensors: with(func(t *weights.Tensor) { t.Data = t.Data[1:] }), want: "7 bytes of data"},
	} {
		var b bytes.Buffer
		if err := Write(&b, c.meta, c.tensors); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if b.Len() != 0 {
			t.Errorf("%s: %d bytes written before the error", name, b.Len())
		}
	}
}

// full is a disk that takes n more bytes.
type full struct{ n int }

var errFull = errors.New("no space left")

func (d *full) Write(b []byte) (int, error) {
	if len(b) > d.n {
		return d.n, errFull
	}
	d.n -= len(b)
	return len(b), nil
}

func TestWriteDiskFull(t *testing.T) {
	meta, tensors := everything()
	size := len(write(t, meta, tensors))
	for n := range size {
		if err := Write(&full{n}, meta, tensors); !errors.Is(err, errFull) {
			t.Fatalf("room for %d of %d bytes: %v", n, size, err)
		}
	}
}
