package quant

import (
	"math"
	"math/rand/v2"
	"testing"
)

// halfValue is the definition in IEEE 754-2019 §3.4, in float64 where every half is exact.
func halfValue(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&0x3ff)
	v := math.Ldexp(1+frac/1024, exp-15)
	if exp == 0 {
		v = math.Ldexp(frac/1024, -14)
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return v
}

func isNaN16(h uint16) bool { return h&0x7fff > 0x7c00 }

func TestF16ToF32All(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got := F16ToF32(h)
		switch {
		case isNaN16(h):
			b := math.Float32bits(got)
			if got == got || b>>31 != uint32(h>>15) || b>>13&0x1ff != uint32(h&0x1ff) || b>>22&1 != 1 {
				t.Fatalf("F16ToF32(%#04x) = %#08x, want a quiet NaN of the same sign and payload", h, b)
			}
			if back := F32ToF16(got); back != h|0x200 {
				t.Fatalf("NaN %#04x came back as %#04x", h, back)
			}
			continue
		case h&0x7fff == 0x7c00:
			if want := math.Inf(1 - 2*int(h>>15)); float64(got) != want {
				t.Fatalf("F16ToF32(%#04x) = %v, want %v", h, got, want)
			}
		default:
			want := halfValue(h)
			if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
				t.Fatalf("F16ToF32(%#04x) = %v, want %v", h, got, want)
			}
		}
		if back := F32ToF16(got); back != h {
			t.Fatalf("F32ToF16(F16ToF32(%#04x)) = %#04x", h, back)
		}
	}
}

// TestF32ToF16Rounding checks each boundary between two neighbouring halves: the midpoint goes to the
// even one, and the float32 values just beside it to the nearer one. Rounding is monotonic, so this
// covers every input.
func TestF32ToF16Rounding(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		upper := math.Ldexp(1, 16) // what the half after 65504 would be
		if h+1 < 0x7c00 {
			upper = halfValue(h + 1)
		}
		mid := float32((halfValue(h) + upper) / 2)
		even := h + h&1
		for _, c := range []struct {
			in   float32
			want uint16
		}{
			{math.Nextafter32(mid, 0), h}, {mid, even}, {math.Nextafter32(mid, 1e9), h + 1},
			{math.Nextafter32(float32(halfValue(h)), 1e9), h}, {math.Nextafter32(float32(upper), 0), h + 1},
		} {
			if got := F32ToF16(c.in); got != c.want {
				t.Fatalf("F32ToF16(%g) = %#04x, want %#04x", c.in, got, c.want)
			}
			if got := F32ToF16(-c.in); got != c.want|0x8000 {
				t.Fatalf("F32ToF16(%g) = %#04x, want %#04x", -c.in, got, c.want|0x8000)
			}
		}
	}
	for _, f := range []float32{65536, math.MaxFloat32, float32(math.Inf(1))} {
		if got := F32ToF16(f); got != 0x7c00 {
			t.Errorf("F32ToF16(%g) = %#04x, want infinity", f, got)
		}
	}
	if got := F32ToF16(math.SmallestNonzeroFloat32); got != 0 {
		t.Errorf("F32ToF16(smallest) = %#04x, want 0", got)
	}
}

func TestBF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := BF16ToF32(h)
		want := h
		if f != f {
			want |= 1 << 6
		}
		if got := F32ToBF16(f); got != want {
			t.Fatalf("F32ToBF16(BF16ToF32(%#04x)) = %#04x, want %#04x", h, got, want)
		}
	}
	// The midpoint of two neighbours has exactly the next bit set.
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		h := uint16(rng.Uint32())
		if h&0x7f80 == 0x7f80 {
			continue
		}
		mid := uint32(h)<<16 | 0x8000
		for _, c := range []struct {
			bits uint32
			want uint16
		}{{mid - 1, h}, {mid, h + h&1}, {mid + 1, h + 1}} {
			if got := F32ToBF16(math.Float32frombits(c.bits)); got != c.want {
				t.Fatalf("F32ToBF16(%#08x) = %#04x, want %#04x", c.bits, got, c.want)
			}
		}
	}
}
