package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func (s *isa) elementwise() {
	off := func(j int) int { return 4 * s.lanes * j }

	s.begin("add", "func(dst, x []float32)", "computes dst += x.")
	dst, x, n := base("dst"), base("x"), length("dst")
	s.loop(n, 4, []stream{{dst, f32}, {x, f32}}, func(j int, rest *part) {
		a, b := s.load(at(dst, off(j)), s.vec(), rest), s.load(at(x, off(j)), s.vec(), rest)
		VADDPS(b, a, a)
		s.store(a, at(dst, off(j)), rest)
	})
	end()

	s.begin("addScaled", "func(dst, x []float32, s float32)", "computes dst += s·x.")
	dst, x, n = base("dst"), base("x"), length("dst")
	sc := s.scalar("s")
	s.loop(n, 4, []stream{{dst, f32}, {x, f32}}, func(j int, rest *part) {
		a, b := s.load(at(dst, off(j)), s.vec(), rest), s.load(at(x, off(j)), s.vec(), rest)
		VFMADD231PS(b, sc, a)
		s.store(a, at(dst, off(j)), rest)
	})
	end()

	s.begin("scale", "func(dst []float32, s float32)", "computes dst *= s.")
	dst, n = base("dst"), length("dst")
	sc2 := s.scalar("s")
	s.loop(n, 4, []stream{{dst, f32}}, func(j int, rest *part) {
		a := s.load(at(dst, off(j)), s.vec(), rest)
		VMULPS(sc2, a, a)
		s.store(a, at(dst, off(j)), rest)
	})
	end()

	s.begin("mulScaled", "func(dst, x, w []float32, s float32)", "computes dst = x·s·w.")
	dst, x, n = base("dst"), base("x"), length("dst")
	w, sc3 := base("w"), s.scalar("s")
	s.loop(n, 4, []stream{{dst, f32}, {x, f32}, {w, f32}}, func(j int, rest *part) {
		a, b := s.load(at(x, off(j)), s.vec(), rest), s.load(at(w, off(j)), s.vec(), rest)
		VMULPS(sc3, a, a)
		VMULPS(b, a, a)
		s.store(a, at(dst, off(j)), rest)
	})
	end()
}

func (s *isa) reductions() {
	off := func(j int) int { return 4 * s.lanes * j }
	var acc [4]reg.VecVirtual
	clear := func() {
		for i := range acc {
			acc[i] = s.zero()
		}
	}

	s.begin("sumSquares", "func(x []float32) float32", "returns Σ x².")
	x, n := base("x"), length("x")
	clear()
	s.loop(n, 4, []stream{{x, f32}}, func(j int, rest *part) {
		a := s.load(at(x, off(j)), s.vec(), rest)
		VFMADD231PS(a, a, acc[j])
	})
	s.returnFloat(s.fold(acc[:], func(a, b, d Op) { VADDPS(a, b, d) }))

	s.begin("dot", "func(x, y []float32) float32", "returns Σ x·y.")
	x, n = base("x"), length("x")
	y := base("y")
	clear()
	s.loop(n, 4, []stream{{x, f32}, {y, f32}}, func(j int, rest *part) {
		a, b := s.load(at(x, off(j)), s.vec(), rest), s.load(at(y, off(j)), s.vec(), rest)
		VFMADD231PS(b, a, acc[j])
	})
	s.returnFloat(s.fold(acc[:], func(a, b, d Op) { VADDPS(a, b, d) }))

	s.begin("max", "func(x []float32) float32", "returns the largest element that is not NaN.")
	x, n = base("x"), length("x")
	for i := range acc {
		acc[i] = s.loadConst(cNegInf)
	}
	s.loop(n, 4, []stream{{x, f32}}, func(j int, rest *part) {
		a := s.vec()
		switch {
		case rest == nil:
			VMOVUPS(at(x, off(j)), a)
		case s.wide():
			VMOVUPS(s.c(cNegInf), a)
			VMOVUPS(at(x, off(j)), rest.k, a)
		default:
			s.load(at(x, off(j)), a, rest)
			VBLENDVPS(rest.v, a, s.loadConst(cNegInf), a)
		}
		VMAXPS(acc[j], a, acc[j]) // a NaN in either picks the first operand, the maximum so far
	})
	s.returnFloat(s.fold(acc[:], func(a, b, d Op) { VMAXPS(a, b, d) }))

	s.index()
}

// index returns where x first equals v.
func (s *isa) index() {
	s.begin("index", "func(x []float32, v float32) int", "returns the lowest index of an element equal to v, or -1.")
	x, n, v := base("x"), length("x"), s.scalar("v")
	start, bits := GP64(), GP64()
	MOVQ(x, start)
	s.loop(n, 1, []stream{{x, f32}}, func(_ int, rest *part) {
		a := s.load(at(x, 0), s.vec(), rest)
		if s.wide() {
			k := K()
			if rest == nil {
				VCMPPS(U8(0), v, a, k)
			} else {
				VCMPPS(U8(0), v, a, rest.k, k)
			}
			KMOVW(k, bits.As32())
		} else {
			VCMPPS(U8(0), v, a, a)
			if rest != nil {
				VANDPS(rest.v, a, a)
			}
			VMOVMSKPS(a, bits.As32())
		}
		TESTL(bits.As32(), bits.As32())
		JNZ(LabelRef("found"))
	})
	MOVQ(I32(-1), bits)
	Store(bits, ReturnIndex(0))
	end()
	Label("found")
	BSFL(bits.As32(), bits.As32())
	SUBQ(start, x)
	SHRQ(U8(2), x)
	ADDQ(x, bits)
	Store(bits, ReturnIndex(0))
	end()
}

// fold reduces accumulators to one lane: pairs first, then halves of the vector.
func (s *isa) fold(acc []reg.VecVirtual, op func(a, b, d Op)) reg.VecVirtual {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for i := 0; i < n; i++ {
			op(acc[i+n], acc[i], acc[i])
		}
	}
	v, t := acc[0], XMM()
	if s.wide() {
		h := YMM()
		VEXTRACTF64X4(U8(1), v, h)
		op(h, v.AsY(), v.AsY())
	}
	VEXTRACTF128(U8(1), v.AsY(), t)
	op(t, v.AsX(), v.AsX())
	VPERMILPS(U8(0x4e), v.AsX(), t)
	op(t, v.AsX(), v.AsX())
	VPERMILPS(U8(0xb1), v.AsX(), t)
	op(t, v.AsX(), v.AsX())
	return v
}

func (s *isa) ropes() {
	off := func(j int) int { return 4 * s.lanes * j }

	s.begin("ropePairs", "func(x, cos, sin []float32)", "turns neighbouring pairs.")
	x, n := base("x"), length("x")
	cos, sin := base("cos"), base("sin")
	s.loop(n, 1, []stream{{x, f32}, {cos, pair}, {sin, pair}}, func(_ int, rest *part) {
		var few *part
		if rest != nil {
			h := GP64()
			MOVQ(rest.n, h)
			SHRQ(U8(1), h)
			few = s.first(h)
		}
		twice := func(m Mem) reg.VecVirtual { // c0 c0 c1 c1 …
			v := s.vec()
			if few == nil {
				VPMOVZXDQ(m, v)
			} else {
				VPMOVZXDQ(s.load(m, s.half(), few), v)
			}
			VMOVSLDUP(v, v)
			return v
		}
		a, swapped := s.load(at(x, 0), s.vec(), rest), s.vec()
		VPERMILPS(U8(0xb1), a, swapped)
		VMULPS(twice(at(sin, 0)), swapped, swapped)
		VFMADDSUB213PS(swapped, twice(at(cos, 0)), a) // even lanes a·c - b·s, odd b·c + a·s
		s.store(a, at(x, 0), rest)
	})
	end()

	s.begin("ropeHalf", "func(lo, hi, cos, sin []float32)", "turns the pairs (lo[i], hi[i]).")
	lo, hi, n := base("lo"), base("hi"), length("lo")
	cos, sin = base("cos"), base("sin")
	s.loop(n, 1, []stream{{lo, f32}, {hi, f32}, {cos, f32}, {sin, f32}}, func(j int, rest *part) {
		a, b := s.load(at(lo, off(j)), s.vec(), rest), s.load(at(hi, off(j)), s.vec(), rest)
		c, d := s.load(at(cos, off(j)), s.vec(), rest), s.load(at(sin, off(j)), s.vec(), rest)
		as, bs := s.vec(), s.vec()
		VMULPS(d, a, as)
		VMULPS(d, b, bs)
		VFMSUB213PS(bs, c, a)
		VFMADD213PS(as, c, b)
		s.store(a, at(lo, off(j)), rest)
		s.store(b, at(hi, off(j)), rest)
	})
	end()
}
