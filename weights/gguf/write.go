package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/weights"
)

// KV is a metadata value to write. Value is one of uint8, int8, uint16, int16, uint32, int32, float32,
// bool, string, uint64, int64, float64 or a slice of one of these.
type KV struct {
	Key   string
	Value any
}

// Write writes a GGUF file of version 3 with the given metadata and tensors, in their order. The same
// input gives the same bytes. Tensor data is written straight from its slices, which may be views of
// other mapped files.
//
// Tensors are aligned to 32 bytes, or to what meta's "general.alignment", a uint32, says.
func Write(w io.Writer, meta []KV, tensors []weights.Tensor) error {
	align, err := checkMeta(meta)
	if err != nil {
		return err
	}
	if err := checkTensors(tensors); err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint32(nil, magic)
	head = binary.LittleEndian.AppendUint32(head, 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(meta)))
	for _, kv := range meta {
		head = appendString(head, kv.Key)
		if head, err = appendValue(head, kv.Value); err != nil {
			return fmt.Errorf("gguf: write: key %s: %w", quote.Name(kv.Key), err)
		}
	}
	offset := 0
	for _, t := range tensors {
		head = appendInfo(head, t, offset)
		offset += len(t.Data) + padding(len(t.Data), align)
	}
	head = append(head, make([]byte, padding(len(head), align))...)
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("gguf: write: %w", err)
	}
	zeros := make([]byte, align)
	for _, t := range tensors {
		for _, b := range [][]byte{t.Data, zeros[:padding(len(t.Data), align)]} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("gguf: write: tensor %s: %w", quote.Name(t.Name), err)
			}
		}
	}
	return nil
}

// padding returns how many bytes fill up n to a multiple of align.
func padding(n, align int) int { return -n & (align - 1) }

// checkMeta checks the keys and returns the alignment.
func checkMeta(meta []KV) (align int, err error) {
	seen := make(map[string]bool, len(meta))
	align = 32
	for _, kv := range meta {
		if len(kv.Key) == 0 || len(kv.Key) > maxName {
			return 0, fmt.Errorf("gguf: write: key of %d bytes (allowed: 1 to %d)", len(kv.Key), maxName)
		}
		if seen[kv.Key] {
			return 0, fmt.Errorf("gguf: write: key %s: appears twice", quote.Name(kv.Key))
		}
		seen[kv.Key] = true
		if kv.Key == "general.alignment" {
			a, ok := kv.Value.(uint32)
			if !ok || a == 0 || a&(a-1) != 0 || a > maxAlign {
				return 0, fmt.Errorf("gguf: write: key %s: want a uint32 power of two up to %d, not %v", quote.Name(kv.Key), maxAlign, kv.Value)
			}
			align = int(a)
		}
	}
	return align, nil
}

// checkTensors checks that every tensor can be read back.
func checkTensors(tensors []weights.Tensor) error {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if len(t.Name) == 0 || len(t.Name) > maxName {
			return fmt.Errorf("gguf: write: tensor name of %d bytes (allowed: 1 to %d)", len(t.Name), maxName)
		}
		if seen[t.Name] {
			return fmt.Errorf("gguf: write: tensor %s: appears twice", quote.Name(t.Name))
		}
		seen[t.Name] = true
		if _, ok := idOf(t.Type); !ok {
			return fmt.Errorf("gguf: write: tensor %s: unknown type %v", quote.Name(t.Name), t.Type)
		}
		if len(t.Shape) == 0 || len(t.Shape) > maxDims {
			return fmt.Errorf("gguf: write: tensor %s: %d dimensions (allowed: 1 to %d)", quote.Name(t.Name), len(t.Shape), maxDims)
		}
		rows, cols := 1, t.Shape[len(t.Shape)-1]
		for _, d := range t.Shape[:len(t.Shape)-1] {
			if d < 0 || d > 0 && rows > math.MaxInt/d {
				return fmt.Errorf("gguf: write: tensor %s: impossible shape %v", quote.Name(t.Name), t.Shape)
			}
			rows *= d
		}
		if cols < 0 || cols%t.Type.BlockSize() != 0 {
			return fmt.Errorf("gguf: write: tensor %s: rows of %d weights are not whole %v blocks of %d",
				quote.Name(t.Name), cols, t.Type, t.Type.BlockSize())
		}
		row := t.Type.RowBytes(cols)
		if row > 0 && rows > math.MaxInt/row || rows*row != len(t.Data) {
			return fmt.Errorf("gguf: write: tensor %s: %d bytes of data do not make %v weights of %v", quote.Name(t.Name), len(t.Data), t.Shape, t.Type)
		}
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendInfo(b []byte, t weights.Tensor, offset int) []byte {
	b = appendString(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
	for i := len(t.Shape) - 1; i >= 0; i-- {
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[i]))
	}
	id, _ := idOf(t.Type) // checkTensors has seen to it
	b = binary.LittleEndian.AppendUint32(b, id)
	return binary.LittleEndian.AppendUint64(b, uint64(offset))
}

// appendValue appends type and value.
func appendValue(b []byte, v any) ([]byte, error) {
	le := binary.LittleEndian
	if s, ok := v.(string); ok {
		return appendString(le.AppendUint32(b, uint32(String)), s), nil
	}
	typ, isArray, count := typeOf(v)
	switch {
	case typ == numValueTypes:
		return nil, fmt.Errorf("values of type %T can't be written", v)
	case isArray:
		b = le.AppendUint32(b, uint32(Array))
		b = le.AppendUint32(b, uint32(typ))
		b = le.AppendUint64(b, uint64(count))
	default:
		b = le.AppendUint32(b, uint32(typ))
	}
	if all, ok := v.([]string); ok {
		for _, s := range all {
			b = appendString(b, s)
		}
		return b, nil
	}
	return binary.Append(b, le, v)
}

// typeOf returns the type of v or of its elements, and numValueTypes if it is none of the file's.
func typeOf(v any) (typ ValueType, isArray bool, count int) {
	switch v := v.(type) {
	case uint8:
		return Uint8, false, 1
	case int8:
		return Int8, false, 1
	case uint16:
		return Uint16, false, 1
	case int16:
		return Int16, false, 1
	case uint32:
		return Uint32, false, 1
	case int32:
		return Int32, false, 1
	case float32:
		return Float32, false, 1
	case bool:
		return Bool, false, 1
	case uint64:
		return Uint64, false, 1
	case int64:
		return Int64, false, 1
	case float64:
		return Float64, false, 1
	case []uint8:
		return Uint8, true, len(v)
	case []int8:
		return Int8, true, len(v)
	case []uint16:
		return Uint16, true, len(v)
	case []int16:
		return Int16, true, len(v)
	case []uint32:
		return Uint32, true, len(v)
	case []int32:
		return Int32, true, len(v)
	case []float32:
		return Float32, true, len(v)
	case []bool:
		return Bool, true, len(v)
	case []string:
		return String, true, len(v)
	case []uint64:
		return Uint64, true, len(v)
	case []int64:
		return Int64, true, len(v)
	case []float64:
		return Float64, true, len(v)
	}
	return numValueTypes, false, 0
}
