package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// part is the first n lanes of a vector, 0 < n < lanes.
type part struct {
	n reg.GPVirtual
	k reg.OpmaskVirtual // AVX-512
	v reg.VecVirtual    // AVX2
}

// stream is a pointer that a loop moves along; size is in bytes an element of the loop's count.
type stream struct {
	p    reg.GPVirtual
	size int
}

// loop runs body over n elements: whole vectors unroll at a time, then one at a time, then the rest.
// body handles the j-th vector from where the streams stand; rest is nil for a whole vector.
func (s *isa) loop(n reg.GPVirtual, unroll int, streams []stream, body func(j int, rest *part)) {
	many := func(u int, label string) {
		step := u * s.lanes
		SUBQ(I32(step), n)
		JL(LabelRef("no" + label))
		Label(label)
		for j := 0; j < u; j++ {
			body(j, nil)
		}
		for _, st := range streams {
			ADDQ(I32(step*st.size), st.p)
		}
		SUBQ(I32(step), n)
		JGE(LabelRef(label))
		Label("no" + label)
		ADDQ(I32(step), n)
	}
	if unroll > 1 {
		many(unroll, fmt.Sprintf("by%d", unroll))
	}
	many(1, "by1")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	body(0, s.first(n))
	Label("done")
}

// Sizes of streams.
const (
	f32  = 4
	f16  = 2
	pair = 2 // one float32 for two elements
)

// first masks the first n lanes, 0 < n < lanes.
func (s *isa) first(n reg.GPVirtual) *part {
	r := &part{n: n}
	if s.wide() {
		bits := GP64()
		MOVQ(n, reg.RCX)
		MOVQ(U32(1), bits)
		SHLQ(reg.CL, bits)
		DECQ(bits)
		r.k = K()
		KMOVW(bits.As32(), r.k)
		return r
	}
	t, i := GP64(), GP64()
	LEAQ(s.ones.Offset(4*s.lanes), t)
	MOVQ(n, i)
	NEGQ(i)
	r.v = YMM()
	VMOVUPS(Mem{Base: t, Index: i, Scale: 4}, r.v)
	return r
}

// load reads 32-bit lanes, 0 beyond rest. v may be narrower than a whole vector.
func (s *isa) load(m Mem, v reg.VecVirtual, rest *part) reg.VecVirtual {
	switch {
	case rest == nil:
		VMOVUPS(m, v)
	case s.wide():
		VMOVUPS_Z(m, rest.k, v)
	case v.Size() == 16:
		VMASKMOVPS(m, rest.v.AsX(), v)
	default:
		VMASKMOVPS(m, rest.v, v)
	}
	return v
}

func (s *isa) store(v reg.VecVirtual, m Mem, rest *part) {
	switch {
	case rest == nil:
		VMOVUPS(v, m)
	case s.wide():
		VMOVUPS(v, rest.k, m)
	default:
		VMASKMOVPS(v, rest.v, m)
	}
}

// load16 reads 16-bit elements into a half vector, 0 beyond rest. AVX2 has no masked load of words: they
// are shifted in, last one first.
func (s *isa) load16(m Mem, rest *part) reg.VecVirtual {
	v := s.half()
	switch {
	case rest == nil:
		VMOVUPS(m, v)
	case s.wide():
		VMOVDQU16_Z(m, rest.k, v)
	default:
		i := GP64()
		MOVQ(rest.n, i)
		VPXOR(v, v, v)
		Label("word")
		VPSLLDQ(U8(2), v, v)
		m.Index, m.Scale, m.Disp = i, 2, m.Disp-2
		VPINSRW(U8(0), m, v, v)
		DECQ(i)
		JNZ(LabelRef("word"))
	}
	return v
}

// store16 writes a half vector of 16-bit elements; with rest it destroys the stream's pointer p.
func (s *isa) store16(v reg.VecVirtual, p reg.GPVirtual, disp int, rest *part) {
	switch {
	case rest == nil:
		VMOVUPS(v, at(p, disp))
	case s.wide():
		VMOVDQU16(v, rest.k, at(p, disp))
	default:
		i := GP64()
		MOVQ(rest.n, i)
		Label("word")
		VPEXTRW(U8(0), v, at(p, disp))
		VPSRLDQ(U8(2), v, v)
		ADDQ(U8(2), p)
		DECQ(i)
		JNZ(LabelRef("word"))
	}
}
