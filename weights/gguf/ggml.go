package gguf

import (
	"fmt"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// ggmlType is a tensor number format as the file numbers it.
type ggmlType struct {
	id             uint32
	name           string
	weights, bytes uint64 // of a block
	typ            quant.Type
	supported      bool // typ is valid
}

// known lists the formats whose size is known, so that extents can be checked even where the values
// can't be read. Numbers and sizes: enum ggml_type in ggml.h, ggml-common.h.
var known = []ggmlType{
	{0, "F32", 1, 4, quant.F32, true},
	{1, "F16", 1, 2, quant.F16, true},
	{2, "Q4_0", 32, 18, quant.Q4_0, true},
	{3, "Q4_1", 32, 20, quant.Q4_1, true},
	{6, "Q5_0", 32, 22, quant.Q5_0, true},
	{7, "Q5_1", 32, 24, quant.Q5_1, true},
	{8, "Q8_0", 32, 34, quant.Q8_0, true},
	{9, "Q8_1", 32, 36, 0, false},
	{10, "Q2_K", 256, 84, 0, false},
	{11, "Q3_K", 256, 110, 0, false},
	{12, "Q4_K", 256, 144, quant.Q4_K, true},
	{13, "Q5_K", 256, 176, quant.Q5_K, true},
	{14, "Q6_K", 256, 210, quant.Q6_K, true},
	{15, "Q8_K", 256, 292, 0, false},
	{16, "IQ2_XXS", 256, 66, 0, false},
	{17, "IQ2_XS", 256, 74, 0, false},
	{18, "IQ3_XXS", 256, 98, 0, false},
	{19, "IQ1_S", 256, 50, 0, false},
	{20, "IQ4_NL", 32, 18, 0, false},
	{21, "IQ3_S", 256, 110, 0, false},
	{22, "IQ2_S", 256, 82, 0, false},
	{23, "IQ4_XS", 256, 136, 0, false},
	{24, "I8", 1, 1, 0, false},
	{25, "I16", 1, 2, 0, false},
	{26, "I32", 1, 4, 0, false},
	{27, "I64", 1, 8, 0, false},
	{28, "F64", 1, 8, 0, false},
	{29, "IQ1_M", 256, 56, 0, false},
	{30, "BF16", 1, 2, quant.BF16, true},
	{34, "TQ1_0", 256, 54, 0, false},
	{35, "TQ2_0", 256, 66, 0, false},
	{39, "MXFP4", 32, 17, 0, false},
	{40, "NVFP4", 64, 36, 0, false},
	{41, "Q1_0", 128, 18, 0, false},
}

// lookup returns the format of that number; one that is not known has no size.
func lookup(id uint32) ggmlType {
	for _, t := range known {
		if t.id == id {
			return t
		}
	}
	return ggmlType{id: id, name: fmt.Sprintf("ggml type %d", id)}
}

// idOf returns the file's number for t.
func idOf(t quant.Type) (uint32, bool) {
	for _, k := range known {
		if k.supported && k.typ == t {
			return k.id, true
		}
	}
	return 0, false
}

// ValueType is the type of a metadata value or of the elements of an array.
type ValueType uint32

// The value types, numbered as in the file.
const (
	Uint8 ValueType = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
	numValueTypes
)

var valueTypes = [numValueTypes]struct {
	name string
	size int // 0: not fixed
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (t ValueType) String() string {
	if t >= numValueTypes {
		return fmt.Sprintf("ValueType(%d)", uint32(t))
	}
	return valueTypes[t].name
}

func (t ValueType) size() int { return valueTypes[t].size }
