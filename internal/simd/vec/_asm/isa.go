package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa hides what differs between AVX2 and AVX-512 where the shape of a loop is the same: vector width and
// how part of a vector is loaded and stored.
type isa struct {
	suffix string
	lanes  int // float32 of a vector
	konst  Mem // constants, each repeated over a whole vector: any instruction takes it as an operand
	ones   Mem // AVX2: eight -1, eight 0: a window into it masks the first n lanes
}

func (s *isa) wide() bool { return s.lanes == 16 }

func (s *isa) vec() reg.VecVirtual {
	if s.wide() {
		return ZMM()
	}
	return YMM()
}

// half is a register of as many 16-bit or half as many 32-bit elements as vec.
func (s *isa) half() reg.VecVirtual {
	if s.wide() {
		return YMM()
	}
	return XMM()
}

func (s *isa) zero() reg.VecVirtual {
	v := s.vec()
	VXORPS(v, v, v)
	return v
}

// Constants; the order is that of the table.
const (
	cOne = iota
	cTwo
	cNegInf
	cSign
	cExpLo
	cExpHi
	cLog2E
	cLn2Hi
	cLn2Lo
	cExp6
	cExp5
	cExp4
	cExp3
	cExp2
	cTanhCut
	cTanh5
	cTanh4
	cTanh3
	cTanh2
	cTanh1
	cTanh0
	cGeluLinear
	cGeluCubic
	cBias127
	cRound16
	cInt1
	cQuiet
	cMagnitude
)

var constants = []uint32{
	cOne:    0x3f800000,
	cTwo:    0x40000000,
	cNegInf: 0xff800000,
	cSign:   0x80000000,
	cExpLo:  0xc2d00000, // -104: e^-104 rounds to 0
	cExpHi:  0x42b20000, // 89: e^89 is above the largest float32
	cLog2E:  0x3fb8aa3b,
	cLn2Hi:  0x3f317000, // 12 trailing zero bits: n times it is exact
	cLn2Lo:  0x3805fdf4,
	// e^r ≈ 1 + r + r²·(c2 + c3·r + … + c6·r⁴), |r| ≤ ln2/2: minimax, relative error 0.05·2⁻²⁴.
	cExp2: 0x3efffffe,
	cExp3: 0x3e2aaa48,
	cExp4: 0x3d2aac7c,
	cExp5: 0x3c091d82,
	cExp6: 0x3ab5112a,
	// tanh u ≈ u + u³·(c0 + c1·u² + … + c5·u¹⁰), |u| ≤ 0.625: minimax, relative error 0.003·2⁻²⁴.
	cTanhCut:    0x3f200000,
	cTanh0:      0xbeaaaaaa,
	cTanh1:      0x3e088833,
	cTanh2:      0xbd5cf735,
	cTanh3:      0x3cb1c4eb,
	cTanh4:      0xbc05f705,
	cTanh5:      0x3b0c6503,
	cGeluLinear: 0xbfcc422a, // -2·√(2/π)
	cGeluCubic:  0xbd922279, // that times 0.044715
	cBias127:    127,
	cRound16:    0x7fff,
	cInt1:       1,
	cQuiet:      0x40,
	cMagnitude:  0x7fffffff,
}

func (s *isa) tables() {
	s.konst = GLOBL("konst"+s.suffix, RODATA|NOPTR)
	for i, c := range constants {
		for j := 0; j < s.lanes; j++ {
			DATA(4*(i*s.lanes+j), U32(c))
		}
	}
	if s.wide() {
		return
	}
	s.ones = GLOBL("ones"+s.suffix, RODATA|NOPTR)
	for i := 0; i < 16; i++ {
		w := U32(0)
		if i < 8 {
			w = 0xffffffff
		}
		DATA(4*i, w)
	}
}

func (s *isa) c(i int) Mem { return s.konst.Offset(4 * s.lanes * i) }

func (s *isa) loadConst(i int) reg.VecVirtual {
	v := s.vec()
	VMOVUPS(s.c(i), v)
	return v
}

// begin opens a leaf; end closes it.
func (s *isa) begin(name, signature, doc string) {
	name += s.suffix
	TEXT(name, NOSPLIT, signature)
	Doc(name + " " + doc)
	Pragma("noescape")
}

func end() {
	VZEROUPPER()
	RET()
}

func base(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name).Base(), r)
	return r
}

func length(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name).Len(), r)
	return r
}

// scalar broadcasts a float32 parameter.
func (s *isa) scalar(name string) reg.VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := s.vec()
	VBROADCASTSS(p.Addr, v)
	return v
}

func (s *isa) returnFloat(x reg.VecVirtual) {
	p, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(x.AsX(), p.Addr)
	end()
}

func at(b reg.Register, disp int) Mem { return Mem{Base: b, Disp: disp} }
