package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets in the argument struct, qgemm.args. A test there compares them.
const (
	argW          = 0
	argX          = 8
	argStrips     = 16
	argUnits      = 24
	argStripBytes = 32
	argStep       = 40
	argKeep       = 48
	argY          = 56
)

// Offsets in a block of activations, qgemm.actBlock.
const (
	blkD      = 32
	blkSum    = 36
	blkOff128 = 40
	blkOff16  = 44
	blkOff8   = 48
	blkOff32  = 52
	blkBytes  = 64
)

// format is what the generators know of a number format: see the pack functions for the layouts.
type format struct {
	name   string
	unit   int  // bytes of a unit
	fifth  bool // fifth bits apart from the nibbles
	min    bool // a minimum
	super  bool // scales and minima are bytes relative to those of a super-block
	offset int  // the block's correction of unsigned codes; 0: none
	body   func(k *kernel512)
}

var formats = []format{
	{name: "F32", unit: 16 * 64, body: (*kernel512).floats},
	{name: "F16", unit: 16 * 32, body: (*kernel512).floats},
	{name: "BF16", unit: 8 * 64, body: (*kernel512).floats},
	{name: "Q8_0", unit: 64 + 16*64, offset: blkOff128, body: (*kernel512).bytes},
	{name: "Q4_0", unit: 64 + 8*64, offset: blkOff8, body: (*kernel512).pairs},
	{name: "Q4_1", unit: 128 + 8*64, min: true, body: (*kernel512).pairs},
	{name: "Q5_0", unit: 192 + 8*64, fifth: true, offset: blkOff16, body: (*kernel512).pairs},
	{name: "Q5_1", unit: 256 + 8*64, fifth: true, min: true, body: (*kernel512).pairs},
	{name: "Q4_K", unit: 64 + 4*(64+8*64), min: true, super: true, body: (*kernel512).pairs},
	{name: "Q5_K", unit: 64 + 4*(192+8*64), fifth: true, min: true, super: true, body: (*kernel512).pairs},
	{name: "Q6_K", unit: 320 + 2*24*64, body: (*kernel512).sixes},
}

// begin opens a function that takes one pointer to an argument struct and returns that pointer.
func begin(name, doc string) reg.GPVirtual {
	TEXT(name, NOSPLIT, "func(a *byte)")
	Doc(doc)
	Pragma("noescape")
	a := GP64()
	Load(Param("a"), a)
	return a
}

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

func load64(m Mem) reg.GPVirtual {
	r := GP64()
	MOVQ(m, r)
	return r
}

// vpdpbusd emits acc += Σ4 unsigned(w)·signed(x) per 32-bit lane. avo v0.5.0 does not know AVX512_VNNI, the
// Go assembler does: build the instruction by hand and tell the allocator what it reads and writes.
func vpdpbusd(x Mem, w, acc reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode:   "VPDPBUSD",
		Suffixes: []string{"BCST"},
		Operands: []Op{x, w, acc},
		Inputs:   []Op{x, w, acc},
		Outputs:  []Op{acc},
		ISA:      []string{"AVX512_VNNI"},
	})
}

var tables = map[string]Mem{}

// table returns read-only 32-bit constants.
func table(name string, words ...uint32) Mem {
	m, ok := tables[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, w := range words {
			DATA(4*i, U32(w))
		}
		tables[name] = m
	}
	return m
}

func word(v uint32) Mem { return table(fmt.Sprintf("word%08x%s", v, *part), v) }
