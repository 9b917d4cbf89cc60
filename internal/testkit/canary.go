package testkit

import (
	"math"
	"testing"
	"unsafe"
)

// guardBytes stand on each side of a canary's buffer: more than the widest vector register, twice.
const guardBytes = 128

// guardByte fills them. As float32 or float16 it is NaN, so a result that used a guard is seen too.
const guardByte = 0xff

// Element is what a canary buffer may hold.
type Element interface {
	~uint8 | ~int8 | ~uint16 | ~int32 | ~uint32 | ~float32 | ~float64
}

// Canary is a buffer with guards before and behind it. Size classes and neighbours hide a small overrun
// from the race detector and from the allocator; a guard does not.
type Canary[E Element] struct {
	V   []E // the buffer, its capacity clipped
	all []byte
}

// NewCanary returns a buffer of n elements that are NaN (or all ones) until written. Its address is odd in
// units of 64 bytes, as a slice of something larger is.
func NewCanary[E Element](n int) *Canary[E] {
	var e E
	size := int(unsafe.Sizeof(e))
	words := make([]float64, (2*guardBytes+n*size+7)/8) // aligned for every E
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	for i := range all {
		all[i] = guardByte
	}
	c := &Canary[E]{all: all}
	if n > 0 {
		c.V = unsafe.Slice((*E)(unsafe.Pointer(&all[guardBytes])), n)
	}
	return c
}

// CanaryOf returns a guarded copy of v.
func CanaryOf[E Element](v []E) *Canary[E] {
	c := NewCanary[E](len(v))
	copy(c.V, v)
	return c
}

// Check fails the test if a guard was written.
func (c *Canary[E]) Check(t testing.TB) {
	t.Helper()
	var e E
	behind := guardBytes + len(c.V)*int(unsafe.Sizeof(e))
	for i, b := range c.all {
		if (i < guardBytes || i >= behind) && b != guardByte {
			t.Fatalf("buffer of %d elements: byte %d outside it, from its start, was overwritten", len(c.V), i-guardBytes)
		}
	}
}

// Poison fills v with NaN: whatever reads it by mistake shows.
func Poison[F Float](v []F) {
	for i := range v {
		v[i] = F(math.NaN())
	}
}
