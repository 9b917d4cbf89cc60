package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/quant"
)

var _ weights.Source = (*File)(nil)
var _ weights.Mapped = (*File)(nil)

func pattern(n, step int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * step)
	}
	return b
}

func floats(values ...float32) []byte {
	b := make([]byte, 4*len(values))
	if err := quant.Quantize(quant.F32, b, values); err != nil {
		panic(err)
	}
	return b
}

// everything is the contents of testdata/python.gguf: see scripts/golden_gguf.py.
func everything() ([]KV, []weights.Tensor) {
	half := make([]byte, 24)
	for i := range 12 {
		binary.LittleEndian.PutUint16(half[2*i:], quant.F32ToF16(float32(i)))
	}
	return []KV{
			{"general.architecture", "llama"},
			{"general.alignment", uint32(64)},
			{"t.u8", uint8(200)}, {"t.i8", int8(-100)}, {"t.u16", uint16(60000)}, {"t.i16", int16(-30000)},
			{"t.u32", uint32(4000000000)}, {"t.i32", int32(-2000000000)},
			{"t.u64", uint64(1<<63 + 5)}, {"t.i64", int64(-1 << 62)},
			{"t.f32", float32(1e-5)}, {"t.f64", 0.1},
			{"t.yes", true}, {"t.no", false},
			{"t.str", "héllo\n▁world"}, {"t.empty", ""},
			{"a.str", []string{"<s>", "", "▁the", "😀"}},
			{"a.i32", []int32{1, -2, 3}}, {"a.u16", []uint16{1, 2, 65535}}, {"a.i64", []int64{-1, 1 << 40}},
			{"a.f32", []float32{0.5, -1000}}, {"a.f64", []float64{0.1}}, {"a.bool", []bool{true, false, true}},
		}, []weights.Tensor{
			{Name: "norm.weight", Type: quant.F32, Shape: []int{5}, Data: floats(-1, -0.5, 0, 0.5, 1)},
			{Name: "full.weight", Type: quant.F32, Shape: []int{16}, Data: floats(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)},
			{Name: "half.weight", Type: quant.F16, Shape: []int{3, 4}, Data: half},
			{Name: "q8.weight", Type: quant.Q8_0, Shape: []int{2, 3, 64}, Data: pattern(2*3*2*34, 7)},
			{Name: "q4k.weight", Type: quant.Q4_K, Shape: []int{2, 256}, Data: pattern(2*144, 5)},
			{Name: "bf16.weight", Type: quant.BF16, Shape: []int{6, 1}, Data: pattern(12, 3)},
		}
}

func write(t testing.TB, meta []KV, tensors []weights.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, meta, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteEqualsPython(t *testing.T) {
	want, err := os.ReadFile("testdata/python.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if got := write(t, first(everything()), second(everything())); !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("wrote %d bytes, want %d; first difference at %d", len(got), len(want), at)
	}
}

func first[A, B any](a A, _ B) A  { return a }
func second[A, B any](_ A, b B) B { return b }

func TestReadPython(t *testing.T) {
	f, err := Open("testdata/python.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	checkEverything(t, f)
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Tensor("norm.weight"); err == nil {
		t.Error("a tensor of a closed file")
	}
	if _, err := f.Meta.Strings("a.str"); err == nil {
		t.Error("an array of a closed file")
	}
	if err := f.Close(); err != nil {
		t.Error("closing again:", err)
	}
}

func TestParseMemory(t *testing.T) {
	data := write(t, first(everything()), second(everything()))
	for _, version := range []byte{2, 3} {
		data[4] = version
		f, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		checkEverything(t, f)
		if err := errors.Join(f.Check(), f.FaultAt(0), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

func checkEverything(t *testing.T, f *File) {
	t.Helper()
	meta, tensors := everything()
	var keys []string
	for _, kv := range meta {
		keys = append(keys, kv.Key)
		if !f.Meta.Has(kv.Key) {
			t.Errorf("key %q is missing", kv.Key)
		}
		got, err := fetch(f.Meta, kv)
		if err != nil || !reflect.DeepEqual(got, kv.Value) {
			t.Errorf("key %q: got %v, want %v, error %v", kv.Key, got, kv.Value, err)
		}
	}
	if got := f.Meta.Keys(); !slices.Equal(got, keys) {
		t.Errorf("keys %q, want %q", got, keys)
	}
	var names []string
	for _, want := range tensors {
		names = append(names, want.Name)
		got, err := f.Tensor(want.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("tensor %+v, want %+v", got, want)
		}
		if cap(got.Data) != len(got.Data) {
			t.Errorf("tensor %q: %d bytes behind its view are within reach", want.Name, cap(got.Data)-len(got.Data))
		}
		info, ok := f.Info(want.Name)
		if !ok || info.Type != want.Type.String() || info.Bytes != int64(len(want.Data)) || info.Offset%64 != 0 {
			t.Errorf("info %+v", info)
		}
	}
	if got := f.Names(); !slices.Equal(got, names) {
		t.Errorf("names %q, want %q", got, names)
	}
}

// fetch reads kv's key with the accessor for its type, converted to that type.
func fetch(m *Meta, kv KV) (any, error) {
	v := reflect.ValueOf(kv.Value)
	var got any
	var err error
	switch kv.Value.(type) {
	case string:
		return m.String(kv.Key)
	case bool:
		return m.Bool(kv.Key)
	case float32, float64:
		got, err = m.Float(kv.Key)
	case uint8, uint16, uint32, uint64:
		got, err = m.Uint(kv.Key)
	case int8, int16, int32, int64:
		got, err = m.Int(kv.Key)
	case []string:
		return m.Strings(kv.Key)
	case []bool:
		return m.Bools(kv.Key)
	case []int32:
		return m.Int32s(kv.Key)
	case []float32:
		return m.Float32s(kv.Key)
	case []float64:
		all, err := m.Float32s(kv.Key)
		out := make([]float64, len(all))
		for i, f := range all {
			// A float64 comes back rounded to float32; the original is accepted if it rounds to it.
			if want := v.Index(i).Float(); float32(want) == f {
				out[i] = want
			}
		}
		return out, err
	case []uint16, []int64:
		all, err := m.Ints(kv.Key)
		out := reflect.MakeSlice(v.Type(), len(all), len(all))
		for i, n := range all {
			out.Index(i).Set(reflect.ValueOf(n).Convert(v.Type().Elem()))
		}
		return out.Interface(), err
	}
	return reflect.ValueOf(got).Convert(v.Type()).Interface(), err
}

func TestMetaErrors(t *testing.T) {
	data := write(t, []KV{
		{"s", "x"}, {"u", uint32(7)}, {"neg", int32(-7)}, {"big", uint64(math.MaxUint64)}, {"f", float32(1)}, {"b", true},
		{"as", []string{"x"}}, {"ai", []int32{1}}, {"abig", []int64{1 << 40}}, {"alow", []int64{-1 << 40}}, {"af", []float32{1}}, {"ab", []bool{true}},
	}, nil)
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Meta
	accessors := map[string]func(string) error{
		"string":              func(k string) error { _, err := m.String(k); return err },
		"an unsigned integer": func(k string) error { _, err := m.Uint(k); return err },
		"an integer":          func(k string) error { _, err := m.Int(k); return err },
		"a float":             func(k string) error { _, err := m.Float(k); return err },
		"bool":                func(k string) error { _, err := m.Bool(k); return err },
		"an array of strings": func(k string) error { _, err := m.Strings(k); return err },
		"integers":            func(k string) error { _, err := m.Ints(k); return err },
		"an array of int32":   func(k string) error { _, err := m.Int32s(k); return err },
		"an array of floats":  func(k string) error { _, err := m.Float32s(k); return err },
		"an array of bools":   func(k string) error { _, err := m.Bools(k); return err },
	}
	fits := map[string]string{
		"string": "s", "an unsigned integer": "u", "an integer": "u neg", "a float": "f", "bool": "b",
		"an array of strings": "as", "integers": "u neg ai abig alow", "an array of int32": "ai", "an array of floats": "af", "an array of bools": "ab",
	}
	found := map[string]string{
		"s": "string", "u": "uint32", "neg": "", "big": "", "f": "float32", "b": "bool", "as": "an array of 1 strings",
		"ai": "an array of 1 int32s", "abig": "", "alow": "", "af": "an array of 1 float32s", "ab": "an array of 1 bools",
	}
	for want, get := range accessors {
		if err := get("missing"); !errors.Is(err, weights.ErrNotFound) || !strings.Contains(err.Error(), `"missing"`) {
			t.Errorf("%s of a missing key: %v", want, err)
		}
		for _, key := range m.Keys() {
			err := get(key)
			if slices.Contains(strings.Fields(fits[want]), key) {
				if err != nil {
					t.Errorf("%s of %q: %v", want, key, err)
				}
				continue
			}
			if key == "big" && want == "an unsigned integer" {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("key %q", key)) {
				t.Errorf("%s of %q: %v", want, key, err)
			} else if n := found[key]; n != "" && (!strings.Contains(err.Error(), "want "+want) || !strings.HasSuffix(err.Error(), "found "+n)) {
				t.Errorf("%s of %q: the error does not name both types: %v", want, key, err)
			}
		}
	}
	if s, err := m.StringOr("missing", "def"); s != "def" || err != nil {
		t.Errorf("default: %q, %v", s, err)
	}
	if _, err := m.UintOr("s", 1); err == nil {
		t.Error("a default hides a wrong type")
	}
	if n, err := m.IntOr("neg", 1); n != -7 || err != nil {
		t.Errorf("IntOr: %d, %v", n, err)
	}
}

func TestFormat(t *testing.T) {
	f, err := Parse(write(t, []KV{
		{"s", "x y"}, {"n", int16(-3)}, {"f", float32(1e-5)}, {"d", 0.1}, {"b", true}, {"e", []int32{}},
		{"i", []int32{1, -2, 3, 4, 5}}, {"t", []string{"a", "b\n"}}, {"u", uint64(math.MaxUint64)},
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"s": "x y", "n": "-3", "f": "1e-05", "d": "0.1", "b": "true", "e": "[]", "i": "[1, -2, 3, 4, … 5 in all]",
		"t": `["a", "b\n"]`, "u": "18446744073709551615", "missing": "",
	} {
		if got := f.Meta.Format(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestShards(t *testing.T) {
	first := shardPath("testdata/split", 0, 3)
	f, err := Open(first)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Meta.Uint("llama.block_count"); n != 3 || err != nil {
		t.Errorf("block count %d, %v", n, err)
	}
	for i := range 3 {
		name := fmt.Sprintf("blk.%d.weight", i)
		got, err := f.Tensor(name)
		if v := float32(i); err != nil || !bytes.Equal(got.Data, floats(v, v, v, v)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if len(f.Tensors) != 3 || f.Tensors[2].Shard != 2 {
		t.Errorf("tensors %+v", f.Tensors)
	}
}

func TestShardErrors(t *testing.T) {
	copyShards := func(numbers ...int) string {
		dir := t.TempDir()
		for _, n := range numbers {
			data, err := os.ReadFile(shardPath("testdata/split", n, 3))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(shardPath(filepath.Join(dir, "m"), n, 3), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, "m")
	}
	rename := func(prefix string, from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	complete := copyShards(0, 1, 2)
	missing := copyShards(0, 2)
	renamed := copyShards(0, 1, 2)
	rename(renamed, shardPath(renamed, 0, 3), renamed+".gguf")
	swapped := copyShards(0, 1, 2)
	rename(swapped, shardPath(swapped, 1, 3), swapped+".tmp")
	rename(swapped, shardPath(swapped, 2, 3), shardPath(swapped, 1, 3))
	rename(swapped, swapped+".tmp", shardPath(swapped, 2, 3))
	for _, c := range []struct{ path, want string }{
		{shardPath(complete, 1, 3), "open the first, " + shardPath(complete, 0, 3)},
		{shardPath(missing, 0, 3), "shard 2 of 3"},
		{renamed + ".gguf", `should end in "-00001-of-00003.gguf"`},
		{shardPath(swapped, 0, 3), "does not say that it is shard 2 of 3"},
	} {
		f, err := Open(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
		if f != nil {
			t.Errorf("%s: a file and an error", c.path)
		}
	}
	data, err := os.ReadFile(shardPath("testdata/split", 0, 3))
	if err != nil {
		t.Fatal(err)
	}
	// One tensor more claimed than the shards hold.
	more := copyShards(0, 1, 2)
	claim := raw{}.str(keySplitTensors).u32(uint32(Int32))
	at := bytes.Index(data, claim) + len(claim)
	changed := slices.Concat(data[:at], raw{}.u32(4), data[at+4:])
	if err := os.WriteFile(shardPath(more, 0, 3), changed, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(shardPath(more, 0, 3)); err == nil || !strings.Contains(err.Error(), "is 4, the shards hold 3 tensors") {
		t.Errorf("a tensor too few: %v", err)
	}
	if _, err := Parse(data); err == nil || !strings.Contains(err.Error(), "split into 3 files") {
		t.Errorf("one shard in memory: %v", err)
	}
}
