// Command asm generates the attention bodies of the parent package.
//
//	go run . -level avx512 -out ../zfold_avx512_amd64.s -stubs ../zfold_avx512_amd64.go -pkg kvdot
//	go run . -level avx2 -out ../zfold_avx2_amd64.s -stubs ../zfold_avx2_amd64.go -pkg kvdot
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var level = flag.String("level", "avx512", "instruction set: avx512 or avx2")

func main() {
	flag.Parse()
	ConstraintExpr("amd64")
	ConstraintExpr("!noasm")
	switch *level {
	case "avx512":
		for _, e := range elems {
			for rows := 1; rows <= maxRows512; rows++ {
				fold512(e, rows)
			}
		}
		read512()
	case "avx2":
		for _, e := range elems {
			for rows := 1; rows <= maxRows2; rows++ {
				fold2(e, rows)
			}
		}
		read2()
	default:
		panic("unknown level " + *level)
	}
	Generate()
}

// Offsets of the parent's foldArgs; a test there compares them.
const (
	argBase    = 0
	argOff     = 8
	argAhead   = 16
	argStripes = 24
	argQ       = 32
	argM       = 40
	argL       = 48
	argO       = 56
	argP       = 64
	argMask    = 72
	argLo      = 80
	argHi      = 88
	argDim     = 96
	argVOff    = 104
	argSoftcap = 112
	argInvCap  = 116
)

// Sizes of the walk.
const (
	tiles      = 4   // of a stripe
	rowBytes   = 256 // of a row's 64 scores
	tileScores = 64  // bytes of a tile's 16 scores
)

// elem is an element type of the tiles.
type elem struct {
	name  string
	bytes int
}

var elems = []elem{{"F16", 2}, {"BF16", 2}, {"F32", 4}, {"Q8", 1}}

// begin opens a function that takes one pointer to an argument struct and returns that pointer in a register.
func begin(name, doc string) reg.GPVirtual {
	TEXT(name, NOSPLIT, "func(args *byte)")
	Doc(doc)
	Pragma("noescape")
	a := GP64()
	Load(Param("args"), a)
	return a
}

func beginFold(e elem, rows int, set string) reg.GPVirtual {
	name := fmt.Sprintf("fold%sR%d%s", e.name, rows, set)
	return begin(name, fmt.Sprintf("%s folds stripes of %s tiles into the states of %d rows.", name, e.name, rows))
}

func arg(a reg.GPVirtual, off int) reg.GPVirtual {
	r := GP64()
	MOVQ(Mem{Base: a, Disp: off}, r)
	return r
}

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// at2 is base+index+disp.
func at2(base, index reg.Register, disp int) Mem {
	return Mem{Base: base, Index: index, Scale: 1, Disp: disp}
}

// tileAddrs returns the addresses of n tiles whose offsets start at list.
func tileAddrs(a, list reg.GPVirtual, first, n int) []reg.GPVirtual {
	base := arg(a, argBase)
	p := make([]reg.GPVirtual, n)
	for i := range p {
		p[i] = GP64()
		MOVQ(at(list, 8*(first+i)), p[i])
		ADDQ(base, p[i])
	}
	return p
}

// Labels must be unique within a function.
var labels int

func label(name string) string {
	labels++
	return fmt.Sprintf("%s%d", name, labels)
}

// Constants: indices into a table of 32-bit words.
const (
	cNegInf = iota
	cSlack  // a score may exceed its reference by this much before the reference follows
	cLog2e
	cPoly                         // c5 .. c0 of 2^x on [0, 1)
	cMinExp  = iota + polyLen - 1 // AVX2 only: 2^-127 is built as 0
	cBias                         // AVX2 only
	cLaneBit                      // AVX2 only: bit i in lane i
	cEvenBytes
	cTinyWeight // Q8_0: no weight, no scale counts as less, so that their inverses are finite
	cTinyScale
	cMaxWeight  // the largest integer weight
	cPerWeight  // its inverse
	cRound      // 2^23 leaves no bits for a fraction
	cSplitBytes // even, then odd words of a lane: lower, then upper bytes
	_
	_
	_
	cOne
	cTwo
	cSign
	cMagnitude
	cTanhCut // below, the polynomial; at or above, the exponential
	cTanhMax // tanh is 1 from here on
	cTanh    // c4 .. c0 of tanh(u) = u + u³·p(u²) on [0, 5/8]
)

const polyLen = 6

// The polynomials are minimax in relative error, by Remez exchange: 2^x with p(0) = 1, error 8.3e-8, tanh
// 4.4e-9.
var constantWords = []uint32{
	0xff800000, // -Inf
	0x41000000, // 8
	0x3fb8aa3b, // log2 e
	0x3af4ba7e, 0x3c13bc2a, 0x3d648e73, 0x3e75edab, 0x3f31725d, 0x3f800000,
	0xc2fe0000, // -127
	127,
	1,
	0x00ff00ff,
	0x0d800000,             // 2^-100
	0x33800000,             // 2^-24, the smallest F16
	0x477fff00, 0x37800080, // 65535 and its inverse; AVX2: 32767
	0x4b000000,
	0x0c080400, 0x0e0a0602, 0x0d090501, 0x0f0b0703,
	0x3f800000, 0x40000000,
	0x80000000, 0x7fffffff,
	0x3f200000, // 5/8
	0x41a00000, // 20
	0xbbbaf0e9, 0x3ca9134e, 0xbd5c1e2d, 0x3e088393, 0xbeaaaa99,
}

var table *Mem

// constants returns an accessor of the table. AVX2 has no broadcast operands: its constants fill a vector.
func constants() func(int) Mem {
	copies := 1
	if *level == "avx2" {
		copies = 8
	}
	if table == nil {
		t := GLOBL("foldConst_"+*level, RODATA|NOPTR)
		table = &t
		for i, w := range constantWords {
			for c := range copies {
				switch {
				case i == cLaneBit:
					w = 1 << c
				case copies > 1 && i == cMaxWeight:
					w = 0x46fffe00
				case copies > 1 && i == cPerWeight:
					w = 0x38000100
				}
				DATA(4*(i*copies+c), U32(w))
			}
		}
	}
	return func(i int) Mem { return table.Offset(4 * copies * i) }
}

// prefetch fetches a line of the next stripe into the L2 cache. T0 would wait for one of the L1 cache's few
// miss buffers: on Zen 4 it halves the rate from memory.
func prefetch(m Mem) { PREFETCHT1(m) }
