package gguf

import (
	"bytes"
	"testing"

	"github.com/flashdecode/flashdecode/weights"
)

// FuzzParse: no input panics; whatever is accepted can be read through every accessor, and its
// supported tensors and their views lie within the file.
func FuzzParse(f *testing.F) {
	var b bytes.Buffer
	meta, tensors := everything()
	if err := Write(&b, meta, tensors); err != nil {
		f.Fatal(err)
	}
	valid := b.Bytes()
	file, err := Parse(valid)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	// Cut in the header, the keys, an array, the list of tensors, the data.
	arrays, _ := file.Meta.values["a.str"]
	for _, n := range []int{3, 8, headerSize, 60, arrays.start + 4, file.Tensors[1].at, file.Tensors[1].at + 12, int(file.Tensors[2].Offset), len(valid) - 1} {
		f.Add(valid[:n])
	}
	for _, c := range badFiles {
		f.Add(c.data)
	}
	f.Add([]byte(nested(maxNesting)))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			if file != nil || len(err.Error()) > 1000 {
				t.Fatalf("a file %v and an error of %d bytes", file != nil, len(err.Error()))
			}
			return
		}
		m := file.Meta
		for _, key := range m.Keys() {
			m.Format(key)
			m.String(key)
			m.Uint(key)
			m.Int(key)
			m.Float(key)
			m.Bool(key)
			m.Strings(key)
			m.Ints(key)
			m.Int32s(key)
			m.Float32s(key)
			m.Bools(key)
		}
		var again []weights.Tensor
		for _, info := range file.Tensors {
			got, err := file.Tensor(info.Name)
			if err != nil {
				if _, ok := info.Quant(); ok {
					t.Fatal(err)
				}
				continue
			}
			if int64(len(got.Data)) != info.Bytes {
				t.Fatalf("tensor %q: %d bytes, want %d", info.Name, len(got.Data), info.Bytes)
			}
			again = append(again, got)
		}
		// What is read can be written, and reads the same.
		var b bytes.Buffer
		if err := Write(&b, nil, again); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(b.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}
