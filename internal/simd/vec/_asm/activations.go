package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expo emits e^x (x is overwritten) by the usual reduction x = n·ln2 + r. lo and hi are registers because
// the operand that survives a NaN, x, has to be the first, which is also the only one memory can be.
type expo struct {
	s      *isa
	lo, hi reg.VecVirtual
}

func (s *isa) expo() expo { return expo{s, s.loadConst(cExpLo), s.loadConst(cExpHi)} }

func (e expo) of(x reg.VecVirtual) reg.VecVirtual {
	s := e.s
	n, p := s.vec(), s.vec()
	VMINPS(x, e.hi, x)
	VMAXPS(x, e.lo, x)
	VMULPS(s.c(cLog2E), x, n)
	if s.wide() {
		VRNDSCALEPS(U8(8), n, n)
	} else {
		VROUNDPS(U8(8), n, n)
	}
	VFNMADD231PS(s.c(cLn2Hi), n, x)
	VFNMADD231PS(s.c(cLn2Lo), n, x)
	VMOVUPS(s.c(cExp6), p)
	for _, c := range []int{cExp5, cExp4, cExp3, cExp2, cOne, cOne} {
		VFMADD213PS(s.c(c), x, p)
	}
	if s.wide() {
		VSCALEFPS(n, p, p)
		return p
	}
	// 2^n in two factors: n reaches 128 and -150, where one would not be a normal number. Only the second
	// product can round.
	a, b := s.vec(), s.vec()
	VCVTPS2DQ(n, b)
	VPSRAD(U8(1), b, a)
	VPSUBD(a, b, b)
	for _, f := range []reg.VecVirtual{a, b} {
		VPADDD(s.c(cBias127), f, f)
		VPSLLD(U8(23), f, f)
		VMULPS(f, p, p)
	}
	return p
}

func (s *isa) activations() {
	s.begin("exp", "func(dst, x []float32)", "computes dst = e^x.")
	dst, x, n := base("dst"), base("x"), length("dst")
	e := s.expo()
	s.loop(n, 1, []stream{{dst, f32}, {x, f32}}, func(_ int, rest *part) {
		s.store(e.of(s.load(at(x, 0), s.vec(), rest)), at(dst, 0), rest)
	})
	end()

	s.gated("siluMul", "computes dst = up·g/(1+e^-g).", func(g, arg reg.VecVirtual) {
		VXORPS(s.c(cSign), g, arg)
	})
	s.gated("geluTanhMul", "computes dst = up·g/(1+e^-2u), u = √(2/π)·(g + 0.044715·g³).", func(g, arg reg.VecVirtual) {
		c := s.loadConst(cGeluCubic)
		VMULPS(g, g, arg)
		VFMADD213PS(s.c(cGeluLinear), c, arg)
		VMULPS(g, arg, arg)
	})
	s.softcap()
}

// gated emits dst = up·g/(1+e^arg(g)).
func (s *isa) gated(name, doc string, arg func(g, arg reg.VecVirtual)) {
	s.begin(name, "func(dst, gate, up []float32)", doc)
	dst, gate, up, n := base("dst"), base("gate"), base("up"), length("dst")
	e := s.expo()
	s.loop(n, 1, []stream{{dst, f32}, {gate, f32}, {up, f32}}, func(_ int, rest *part) {
		g, x := s.load(at(gate, 0), s.vec(), rest), s.vec()
		arg(g, x)
		d := e.of(x)
		VADDPS(s.c(cOne), d, d)
		VDIVPS(d, g, g)
		VMULPS(s.load(at(up, 0), s.vec(), rest), g, g)
		s.store(g, at(dst, 0), rest)
	})
	end()
}

// softcap emits x = limit·tanh(x·inverse): a polynomial near 0, where the other form cancels, else
// 1 - 2/(e^2|u|+1) with u's sign.
func (s *isa) softcap() {
	s.begin("softcap", "func(x []float32, limit, inverse float32)", "computes x = limit·tanh(x·inverse).")
	x, n, limit, inverse := base("x"), length("x"), s.scalar("limit"), s.scalar("inverse")
	e := s.expo()
	s.loop(n, 1, []stream{{x, f32}}, func(_ int, rest *part) {
		u, a, sign := s.load(at(x, 0), s.vec(), rest), s.vec(), s.vec()
		VMULPS(inverse, u, u)
		VANDPS(s.c(cMagnitude), u, a)
		VANDPS(s.c(cSign), u, sign)
		twice := s.vec()
		VADDPS(a, a, twice)
		d, big := e.of(twice), s.vec()
		VADDPS(s.c(cOne), d, d)
		VMOVUPS(s.c(cTwo), big)
		VDIVPS(d, big, big)
		one := s.loadConst(cOne)
		VSUBPS(big, one, big)
		VORPS(sign, big, big)

		z, p := s.vec(), s.vec()
		VMULPS(u, u, z)
		VMOVUPS(s.c(cTanh5), p)
		for _, c := range []int{cTanh4, cTanh3, cTanh2, cTanh1, cTanh0} {
			VFMADD213PS(s.c(c), z, p)
		}
		VMULPS(u, z, z)
		VFMADD213PS(u, z, p)
		if s.wide() {
			k := K()
			VCMPPS(U8(17), s.c(cTanhCut), a, k) // less, quiet
			VMOVUPS(p, k, big)
		} else {
			VCMPPS(U8(17), s.c(cTanhCut), a, a)
			VBLENDVPS(a, p, big, big)
		}
		VMULPS(limit, big, big)
		s.store(big, at(x, 0), rest)
	})
	end()
}

func (s *isa) conversions() {
	off := func(j, size int) int { return size * s.lanes * j }
	unroll := 4

	for _, bf := range []bool{false, true} {
		name, doc := "f16ToF32", "widens halves."
		if bf {
			name, doc = "bf16ToF32", "widens bfloat16 numbers."
		}
		s.begin(name, "func(dst []float32, src []byte)", doc)
		dst, src, n := base("dst"), base("src"), length("dst")
		s.loop(n, unroll, []stream{{dst, f32}, {src, f16}}, func(j int, rest *part) {
			h, v := s.load16(at(src, off(j, 2)), rest), s.vec()
			if bf {
				VPMOVZXWD(h, v)
				VPSLLD(U8(16), v, v)
			} else {
				VCVTPH2PS(h, v)
			}
			s.store(v, at(dst, off(j, 4)), rest)
		})
		end()
	}

	s.begin("f32ToF16", "func(dst []byte, src []float32)", "narrows to halves, to nearest even.")
	dst, src, n := base("dst"), base("src"), length("src")
	s.loop(n, unroll, []stream{{dst, f16}, {src, f32}}, func(j int, rest *part) {
		h := s.half()
		VCVTPS2PH(U8(0), s.load(at(src, off(j, 4)), s.vec(), rest), h)
		s.store16(h, dst, off(j, 2), rest)
	})
	end()

	s.begin("f32ToBF16", "func(dst []byte, src []float32)", "narrows to bfloat16, to nearest even.")
	dst, src, n = base("dst"), base("src"), length("src")
	s.loop(n, unroll, []stream{{dst, f16}, {src, f32}}, func(j int, rest *part) {
		s.store16(s.narrowBF16(s.load(at(src, off(j, 4)), s.vec(), rest)), dst, off(j, 2), rest)
	})
	end()
}

// narrowBF16 adds just under half a unit, and the last bit kept, and drops 16 bits; NaNs keep their top
// half and become quiet, since the addition could carry them into a number.
func (s *isa) narrowBF16(v reg.VecVirtual) reg.VecVirtual {
	top, nan := s.vec(), s.vec()
	VPSRLD(U8(16), v, top)
	h := s.half()
	if s.wide() {
		VPORD(s.c(cQuiet), top, nan)
		VPANDD(s.c(cInt1), top, top)
		VPADDD(s.c(cRound16), top, top)
		k := K()
		VCMPPS(U8(3), v, v, k) // unordered
		VPADDD(v, top, top)
		VPSRLD(U8(16), top, top)
		VMOVUPS(nan, k, top)
		VPMOVDW(top, h)
		return h
	}
	VPOR(s.c(cQuiet), top, nan)
	VPAND(s.c(cInt1), top, top)
	VPADDD(s.c(cRound16), top, top)
	VPADDD(v, top, top)
	VPSRLD(U8(16), top, top)
	VCMPPS(U8(3), v, v, v)
	VBLENDVPS(v, nan, top, top)
	VPACKUSDW(top, top, top)
	VPERMQ(U8(8), top, top)
	return top.AsX().(reg.VecVirtual)
}
