package qgemm

import (
	"fmt"

	"github.com/flashdecode/flashdecode/weights/quant"
)

const (
	lanes    = 16 // rows of a strip
	maxTile  = 8  // rows of activations a kernel takes
	blockLen = 32 // columns that share an activation scale
)

// Matrix is a weight matrix [Rows, Cols]: packed in strips by Pack, or in the order of the file.
type Matrix struct {
	Type       quant.Type
	Rows, Cols int
	Packed     bool
	Data       []byte // PackedBytes bytes, or Rows·Type.RowBytes(Cols)
}

// Strips returns the number of strips, the last of which may be partial.
func (m *Matrix) Strips() int { return Strips(m.Rows) }

// Strips returns the number of strips of a matrix of that many rows.
func Strips(rows int) int { return (rows + lanes - 1) / lanes }

// layout describes the units of one format.
type layout struct {
	cols  int // columns in a unit
	bytes int // bytes of a unit: 16 rows
	float bool
}

// layouts is indexed by quant.Type. See the pack functions for what lies where.
var layouts = [...]layout{
	quant.F32:  {16, 16 * 64, true},
	quant.F16:  {16, 16 * 32, true},
	quant.BF16: {16, 8 * 64, true},
	quant.Q8_0: {64, 64 + 16*64, false},
	quant.Q4_0: {64, 64 + 8*64, false},
	quant.Q4_1: {64, 128 + 8*64, false},
	quant.Q5_0: {64, 64 + 128 + 8*64, false},
	quant.Q5_1: {64, 128 + 128 + 8*64, false},
	quant.Q4_K: {256, 64 + 4*(64+8*64), false},
	quant.Q5_K: {256, 64 + 4*(64+128+8*64), false},
	quant.Q6_K: {256, 64 + 256 + 2*24*64, false},
}

func layoutOf(t quant.Type) layout {
	if int(t) >= len(layouts) {
		panic(fmt.Sprintf("qgemm: no layout for %v", t))
	}
	return layouts[t]
}

// units returns the number of units in a row of cols columns; the last may be padded with zeros.
func (l layout) units(cols int) int { return (cols + l.cols - 1) / l.cols }

// blocks returns the number of activation blocks that face one unit.
func (l layout) blocks() int {
	if l.float {
		return 1
	}
	return l.cols / blockLen
}

// PackedBytes returns the size of a packed matrix. Rows are padded to whole strips and columns to whole
// units, with zeros.
func PackedBytes(t quant.Type, rows, cols int) int {
	l := layoutOf(t)
	return Strips(rows) * l.units(cols) * l.bytes
}
