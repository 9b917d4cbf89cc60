package quant

import (
	"errors"
	"fmt"
	"strings"
)

// ErrType is wrapped by every error about a number format that this package does not know.
var ErrType = errors.New("unsupported type")

// Type is a number format. The zero value is F32. Its numeric value is ours: file formats have their
// own numbers, which their readers translate.
type Type uint8

// The formats. A size is that of a block: weights, then bytes.
const (
	F32  Type = iota // 1, 4
	F16              // 1, 2: IEEE 754 half
	BF16             // 1, 2: the upper half of a float32
	Q8_0             // 32, 34: d·code, 8 bits
	Q4_0             // 32, 18: d·(code-8)
	Q4_1             // 32, 20: d·code + m
	Q5_0             // 32, 22: d·(code-16)
	Q5_1             // 32, 24: d·code + m
	Q4_K             // 256, 144: eight sub-blocks, d·scale·code - dmin·min
	Q5_K             // 256, 176: as Q4_K with 5-bit codes
	Q6_K             // 256, 210: sixteen sub-blocks, d·scale·(code-32)
	numTypes
)

// layout is indexed by Type.
var layout = [numTypes]struct {
	name           string
	weights, bytes int
}{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34},
	Q4_0: {"Q4_0", 32, 18},
	Q4_1: {"Q4_1", 32, 20},
	Q5_0: {"Q5_0", 32, 22},
	Q5_1: {"Q5_1", 32, 24},
	Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210},
}

// Types returns every format, in the order of the constants.
func Types() []Type {
	all := make([]Type, numTypes)
	for i := range all {
		all[i] = Type(i)
	}
	return all
}

// Parse returns the format of that name, in any letter case.
func Parse(name string) (Type, error) {
	for t := range layout {
		if strings.EqualFold(layout[t].name, name) {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("quant: %w %q (supported: %s)", ErrType, name, Supported())
}

// Supported lists the names of all formats, for error messages.
func Supported() string {
	names := make([]string, numTypes)
	for i := range names {
		names[i] = layout[i].name
	}
	return strings.Join(names, ", ")
}

// Valid reports whether t is one of the constants.
func (t Type) Valid() bool { return t < numTypes }

// String returns the name that GGUF files use, such as "Q4_K".
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return layout[t].name
}

// BlockSize returns the number of weights in a block. It panics if t is not valid.
func (t Type) BlockSize() int { return layout[t].weights }

// BlockBytes returns the number of bytes in a block. It panics if t is not valid.
func (t Type) BlockBytes() int { return layout[t].bytes }

// RowBytes returns the number of bytes in a row of cols weights. It panics if cols is negative or not
// a whole number of blocks: the readers in this module's weights packages never hand out such a tensor.
func (t Type) RowBytes(cols int) int {
	l := layout[t]
	if cols < 0 || cols%l.weights != 0 {
		panic(fmt.Sprintf("quant: a row of %d weights is not a whole number of %s blocks of %d", cols, l.name, l.weights))
	}
	return cols / l.weights * l.bytes
}
