package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// maxHeader is the reference's limit on a header, in bytes.
const maxHeader = 100_000_000

// dtypes are those of known size, in bits, so that extents can be checked even where the values can't
// be read.
var dtypes = map[string]struct {
	bits      uint64
	typ       quant.Type
	supported bool
}{
	"F32": {32, quant.F32, true}, "F16": {16, quant.F16, true}, "BF16": {16, quant.BF16, true},
	"F64": {bits: 64}, "C64": {bits: 64}, "I64": {bits: 64}, "U64": {bits: 64}, "I32": {bits: 32}, "U32": {bits: 32},
	"I16": {bits: 16}, "U16": {bits: 16}, "I8": {bits: 8}, "U8": {bits: 8}, "BOOL": {bits: 8},
	"F8_E4M3": {bits: 8}, "F8_E5M2": {bits: 8}, "F8_E8M0": {bits: 8}, "F4": {bits: 4},
}

// Info describes a tensor without reading it.
type Info struct {
	Name  string
	DType string // the format's name for the number format
	Shape []int  // row-major
	Bytes int64
	// Offset is where the tensor begins in its file.
	Offset int64
	// Shard is the number of that file, from 0.
	Shard int
}

// Quant returns the number format, and whether it is supported: whether File.Tensor returns the tensor.
func (i Info) Quant() (quant.Type, bool) {
	d := dtypes[i.DType]
	return d.typ, d.supported
}

// parseHeader reads the header of a file's bytes and returns its tensors, of shard n, in the order of
// their data. Errors name the tensor.
func parseHeader(data []byte, n int) ([]Info, map[string]string, error) {
	if len(data) < 8 {
		return nil, nil, fmt.Errorf("file of %d bytes is too short for a safetensors header", len(data))
	}
	size := binary.LittleEndian.Uint64(data)
	if size > maxHeader || size > uint64(len(data)-8) {
		return nil, nil, fmt.Errorf("offset 0: header of %d bytes claimed, the file has %d left (limit %d): not a safetensors file, or truncated",
			size, len(data)-8, maxHeader)
	}
	head, body := data[8:8+size], data[8+size:]
	if len(head) == 0 || head[0] != '{' {
		return nil, nil, errors.New("offset 8: the header does not begin with '{': not a safetensors file")
	}
	infos, meta, err := decodeHeader(head)
	if err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	for i := range infos {
		infos[i].Shard = n
	}
	if err := place(infos, int64(8+size), int64(len(body))); err != nil {
		return nil, nil, err
	}
	return infos, meta, nil
}

// decodeHeader walks over the header's members. Their Offset is still relative to the data.
func decodeHeader(head []byte) ([]Info, map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(head))
	dec.DisallowUnknownFields()
	if _, err := dec.Token(); err != nil { // the brace
		return nil, nil, err
	}
	var infos []Info
	var meta map[string]string
	seen := make(map[string]bool)
	for dec.More() {
		at := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, nil, fmt.Errorf("offset %d: a name is missing", 8+at)
		}
		if seen[name] {
			return nil, nil, fmt.Errorf("offset %d: tensor %s appears twice", 8+at, quote.Name(name))
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := dec.Decode(&meta); err != nil {
				return nil, nil, fmt.Errorf("__metadata__: %w", quote.Error(err))
			}
			continue
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("offset %d: tensor %s: %w", 8+at, quote.Name(name), quote.Error(err))
		}
		info, err := e.info(name)
		if err != nil {
			return nil, nil, fmt.Errorf("offset %d: tensor %s: %w", 8+at, quote.Name(name), err)
		}
		infos = append(infos, info)
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("offset %d: something follows the header's object", 8+dec.InputOffset())
	}
	return infos, meta, nil
}

// entry is the header's member for a tensor. What is missing stays nil.
type entry struct {
	DType   *string  `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// Bounds on what a header may claim, far above real files: errors show both.
const (
	maxDType = 16
	maxDims  = 32
)

func (e entry) info(name string) (Info, error) {
	if e.DType == nil || e.Shape == nil || len(e.Offsets) != 2 {
		return Info{}, errors.New(`want "dtype", "shape" and two "data_offsets"`)
	}
	if len(*e.DType) > maxDType || len(e.Shape) > maxDims {
		return Info{}, fmt.Errorf("dtype %s with %d dimensions: want at most %d bytes and %d dimensions", quote.Name(*e.DType), len(e.Shape), maxDType, maxDims)
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if begin > end || end > math.MaxInt {
		return Info{}, fmt.Errorf("impossible data_offsets %d", e.Offsets)
	}
	info := Info{Name: name, DType: *e.DType, Shape: make([]int, len(e.Shape)), Offset: int64(begin), Bytes: int64(end - begin)}
	elems := uint64(1)
	for i, d := range e.Shape {
		over, product := bits.Mul64(elems, d)
		if d > math.MaxInt || over != 0 || product > math.MaxInt {
			return Info{}, fmt.Errorf("shape %d is too large", e.Shape)
		}
		info.Shape[i], elems = int(d), product
	}
	if d, known := dtypes[info.DType]; known {
		over, size := bits.Mul64(elems, d.bits)
		if over != 0 || size%8 != 0 || size/8 != end-begin {
			return Info{}, fmt.Errorf("%d bytes of data do not make %d weights of %s", info.Bytes, e.Shape, info.DType)
		}
	}
	return info, nil
}

// place sorts infos by their data, checks that they fill its size bytes exactly and makes their offsets
// relative to the file, where the data begins at start.
func place(infos []Info, start, size int64) error {
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i := range infos {
		t := &infos[i]
		if t.Offset != end {
			what := "overlap the tensor before"
			if t.Offset > end {
				what = "leave a gap before them"
			}
			return fmt.Errorf("tensor %s: its bytes at %d %s, which ends at %d", quote.Name(t.Name), start+t.Offset, what, start+end)
		}
		if t.Bytes > size-end {
			return fmt.Errorf("tensor %s: its %d bytes at %d reach beyond the end of the file at %d: the file is truncated or damaged",
				quote.Name(t.Name), t.Bytes, start+t.Offset, start+size)
		}
		end += t.Bytes
		t.Offset += start
	}
	if end != size {
		return fmt.Errorf("offset %d: %d bytes belong to no tensor", start+end, size-end)
	}
	return nil
}
