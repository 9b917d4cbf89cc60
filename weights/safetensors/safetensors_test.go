package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// pattern is what scripts/golden_safetensors.py fills tensors with.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestReadPython(t *testing.T) {
	f, err := Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, want := range []weights.Tensor{
		{Name: "a.weight", Type: quant.F32, Shape: []int{2, 3}, Data: pattern(24)},
		{Name: "b.weight", Type: quant.F16, Shape: []int{4, 5}, Data: pattern(40)},
		{Name: "c.weight", Type: quant.BF16, Shape: []int{3, 1, 2}, Data: pattern(12)},
		{Name: "e.scalar", Type: quant.F32, Shape: []int{}, Data: pattern(4)},
		{Name: "f.empty", Type: quant.F32, Shape: []int{0, 4}, Data: []byte{}},
	} {
		got, err := f.Tensor(want.Name)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v, error %v", got, want, err)
		}
		if cap(got.Data) != len(got.Data) {
			t.Errorf("tensor %q: bytes behind its view are within reach", want.Name)
		}
	}
	names := f.Names()
	slices.Sort(names)
	if want := []string{"a.weight", "b.weight", "c.weight", "d.ids", "e.scalar", "f.empty"}; !slices.Equal(names, want) {
		t.Errorf("names %q", names)
	}
	if f.Meta["format"] != "pt" || f.Meta["note"] != "héllo" {
		t.Errorf("metadata %q", f.Meta)
	}
	_, err = f.Tensor("d.ids")
	if !errors.Is(err, quant.ErrType) || !strings.Contains(err.Error(), `"d.ids"`) || !strings.Contains(err.Error(), "I64") {
		t.Errorf("unsupported dtype: %v", err)
	}
	if _, err = f.Tensor("none"); !errors.Is(err, weights.ErrNotFound) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("missing tensor: %v", err)
	}
	if err := errors.Join(f.Check(), f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := f.Tensor("a.weight"); err == nil {
		t.Error("a tensor of a closed file")
	}
}

func TestSharded(t *testing.T) {
	f, err := OpenDir("testdata/sharded")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := f.Names()
	slices.Sort(names)
	if want := []string{"layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want those of the index, %q", names, want)
	}
	for i := range 2 {
		w, err := f.Tensor(fmt.Sprintf("layers.%d.weight", i))
		if err != nil || !slices.Equal(w.Data, pattern(8*(i+1))) {
			t.Errorf("%+v, %v", w, err)
		}
	}
	if got := string(f.Config); got != "{\"model_type\": \"llama\"}\n" {
		t.Errorf("config %q", got)
	}
	if f.Tokenizer != nil || f.TokenizerConfig != nil || f.GenerationConfig != nil || f.ChatTemplate != nil {
		t.Error("contents of files that are not there")
	}
}

func TestSingleDir(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		singleFile: string(build(`{`+aEntry+`}`, 8)), "config.json": "c", "tokenizer.json": "t", "tokenizer_config.json": "tc",
		"generation_config.json": "", "chat_template.jinja": "ct",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := fmt.Sprintf("%s %s %s %s %s", f.Config, f.Tokenizer, f.TokenizerConfig, f.GenerationConfig, f.ChatTemplate)
	if got != "c t tc  ct" || f.GenerationConfig == nil {
		t.Errorf("files beside the weights: %q", got)
	}
	if _, err := f.Tensor("a"); err != nil {
		t.Error(err)
	}

	// What can't be read is an error, not a missing file.
	if err := errors.Join(os.Remove(filepath.Join(dir, "config.json")), os.Mkdir(filepath.Join(dir, "config.json"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("config.json is a directory: %v", err)
	}
}

// build makes a file of a header and n bytes of data.
func build(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

const (
	aEntry = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	bEntry = `"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}`
)

// badFiles are files that must be refused, with what the error must say.
var badFiles = []struct {
	name string
	data []byte
	want []string
}{
	{"empty", nil, []string{"too short"}},
	{"short", make([]byte, 7), []string{"7 bytes is too short"}},
	{"header beyond file", build("{}", 0)[:9], []string{"offset 0", "header of 2 bytes", "1 left"}},
	{"header huge", binary.LittleEndian.AppendUint64(nil, 1<<63), []string{"header of 9223372036854775808"}},
	{"no header", build("", 8), []string{"does not begin with '{'"}},
	{"array", build("[]", 0), []string{"does not begin with '{'"}},
	{"cut json", build(`{"a":`, 0), []string{"header", `"a"`}},
	{"open json", build(`{`+aEntry, 8), []string{"header"}},
	{"rest", build(`{`+aEntry+`} {}`, 8), []string{"something follows"}},
	{"twice", build(`{`+aEntry+`,`+aEntry+`}`, 8), []string{`"a"`, "twice", "offset 61"}},
	{"null", build(`{"a":null}`, 8), []string{`"a"`, "data_offsets"}},
	{"number", build(`{"a":5}`, 8), []string{`"a"`}},
	{"no dtype", build(`{"a":{"shape":[2],"data_offsets":[0,8]}}`, 8), []string{`"a"`, "dtype"}},
	{"no shape", build(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8), []string{`"a"`, "shape"}},
	{"one offset", build(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8), []string{`"a"`, "data_offsets"}},
	{"unknown field", build(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}`, 8), []string{`"a"`, `"x"`}},
	{"negative dim", build(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), []string{`"a"`}},
	{"fraction", build(`{"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}}`, 8), []string{`"a"`}},
	{"huge dim", build(`{"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}}`, 8), []string{`"a"`, "too large"}},
	{"huge shape", build(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8), []string{`"a"`, "too large"}},
	{"huge bytes", build(`{"a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}}`, 8), []string{`"a"`, "do not make"}},
	{"size", build(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}}`, 8), []string{`"a"`, "8 bytes", "F16"}},
	{"backwards", build(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), []string{`"a"`, "impossible"}},
	{"offset huge", build(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551607,18446744073709551615]}}`, 8), []string{`"a"`, "impossible"}},
	{"truncated", build(`{`+aEntry+`,`+bEntry+`}`, 11), []string{`"b"`, "beyond the end"}},
	{"left over", build(`{`+aEntry+`}`, 9), []string{"1 bytes belong to no tensor", "offset 70"}},
	{"gap", build(`{`+bEntry+`}`, 12), []string{`"b"`, "gap"}},
	{"overlap", build(`{`+aEntry+`,"c":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), []string{`"c"`, "overlap"}},
	{"metadata", build(`{"__metadata__":{"a":5},`+aEntry+`}`, 8), []string{"__metadata__"}},
	{"deep", build(`{"a":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`, 0), []string{`"a"`}},
}

func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.data)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "safetensors: memory: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestLongNames: no error repeats all of a name, a type or a shape that a damaged file claims.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("ü", 30000)
	for _, c := range badFiles {
		size := 0
		if len(c.data) > 8 {
			size = min(int(binary.LittleEndian.Uint64(c.data)), len(c.data)-8)
		}
		for from, to := range map[string]string{
			`"a"`: `"` + long + `"`, `"b"`: `"` + long + `"`, `"c"`: `"` + long + `"`, `"x"`: `"` + long + `"`, `"F32"`: `"` + long + `"`,
			`[2]`: "[" + strings.Repeat("1,", 30000) + "1]", `:5}`: ":" + strings.Repeat("5", 30000) + "}",
		} {
			if size == 0 || !strings.Contains(string(c.data[8:8+size]), from) {
				continue
			}
			header := strings.ReplaceAll(string(c.data[8:8+size]), from, to)
			if _, err := Parse(build(header, len(c.data)-8-size)); err == nil || len(err.Error()) > 700 {
				t.Errorf("%s, %s: %.900v", c.name, from, err)
			}
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	data := make([]byte, 8+maxHeader+1)
	binary.LittleEndian.PutUint64(data, maxHeader+1)
	data[8] = '{'
	if _, err := Parse(data); err == nil || !strings.Contains(err.Error(), "limit 100000000") {
		t.Errorf("a header beyond the limit: %v", err)
	}
}

func TestGoodFiles(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":       build(`{}`, 0),
		"padded":        build(`{`+aEntry+`}    `, 8),
		"any order":     build(`{`+bEntry+`,`+aEntry+`}`, 12),
		"unknown dtype": build(`{"a":{"dtype":"X9","shape":[2],"data_offsets":[0,3]}}`, 3),
	} {
		if _, err := Parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadDirs(t *testing.T) {
	shard, err := os.ReadFile("testdata/sharded/model-00001-of-00002.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		index string
		want  string
	}{
		"no index":   {"", "neither model.safetensors nor model.safetensors.index.json"},
		"json":       {"{", "index.json"},
		"empty":      {"{}", "weight_map is missing or empty"},
		"leaves":     {`{"weight_map":{"w":"../x"}}`, `"../x" is not the name of a file beside it`},
		"absolute":   {`{"weight_map":{"w":"/etc/passwd"}}`, `"/etc/passwd" is not the name`},
		"sub":        {`{"weight_map":{"w":"a/b"}}`, `"a/b" is not the name`},
		"no name":    {`{"weight_map":{"w":""}}`, `"" is not the name`},
		"no shard":   {`{"weight_map":{"w":"gone.safetensors"}}`, "gone.safetensors"},
		"not there":  {`{"weight_map":{"w":"s.safetensors","layers.0.bias":"s.safetensors"}}`, `tensor "w": not found`},
		"wrong type": {`{"weight_map":{"w":5}}`, "index.json"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "s.safetensors"), shard, 0o644); err != nil {
			t.Fatal(err)
		}
		if c.index != "" {
			if err := os.WriteFile(filepath.Join(dir, indexFile), []byte(c.index), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, err := OpenDir(dir)
		if err == nil || f != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzParse: no input panics, and whatever is accepted has its tensors within the file.
func FuzzParse(f *testing.F) {
	valid, err := os.ReadFile("testdata/python.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{7, 8, 30, len(valid) - 1, len(valid)} {
		f.Add(valid[:n])
	}
	for _, c := range badFiles {
		if len(c.data) < 1<<12 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			if file != nil || len(err.Error()) > 2000 {
				t.Fatalf("a file %v and an error of %d bytes", file != nil, len(err.Error()))
			}
			return
		}
		total := 0
		for _, info := range file.Tensors {
			got, err := file.Tensor(info.Name)
			if _, ok := info.Quant(); ok != (err == nil) {
				t.Fatalf("tensor %+v: %v", info, err)
			}
			if err != nil {
				total += int(info.Bytes)
				continue
			}
			elems := 1
			for _, d := range got.Shape {
				elems *= d
			}
			if len(got.Data) != got.Type.RowBytes(elems) {
				t.Fatalf("tensor %+v: %d bytes", info, len(got.Data))
			}
			total += len(got.Data)
		}
		if head := int(binary.LittleEndian.Uint64(data)); 8+head+total != len(data) {
			t.Fatalf("a header of %d bytes and %d bytes of tensors make %d", head, total, len(data))
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		f, err := OpenDir("testdata/sharded")
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
