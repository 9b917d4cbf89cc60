package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func TestWidenAll(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		src, dst := make([]byte, 2<<16), make([]float32, 1<<16)
		for h := range 1 << 16 {
			binary.LittleEndian.PutUint16(src[2*h:], uint16(h))
		}
		k.F16ToF32(dst, src)
		for h, v := range dst {
			same(t, "f16", h, v, quant.F16ToF32(uint16(h)))
		}
		k.BF16ToF32(dst, src)
		for h, v := range dst {
			same(t, "bf16", h, v, math.Float32frombits(uint32(h)<<16))
		}
	})
}

func same(t *testing.T, what string, h int, got, want float32) {
	t.Helper()
	if got != got && want != want {
		return
	}
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("%s %#04x = %v, want %v", what, h, got, want)
	}
}

func TestNarrow(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		x := arguments()
		for h := range 1 << 16 { // every half, and the ties and their neighbours between it and the next
			v := math.Float32bits(quant.F16ToF32(uint16(h)))
			b := uint32(h) << 16
			for _, d := range []uint32{0, 0xfff, 0x1000, 0x1001} {
				x = append(x, math.Float32frombits(v+d), math.Float32frombits(b|d<<3))
			}
		}
		f16, bf16 := make([]byte, 2*len(x)), make([]byte, 2*len(x))
		k.F32ToF16(f16, x)
		k.F32ToBF16(bf16, x)
		for i, v := range x {
			h, b := binary.LittleEndian.Uint16(f16[2*i:]), binary.LittleEndian.Uint16(bf16[2*i:])
			wantH, wantB := quant.F32ToF16(v), quant.F32ToBF16(v)
			if v != v {
				if h&0x7fff <= 0x7c00 || b&0x7fff <= 0x7f80 {
					t.Fatalf("NaN %#x became f16 %#x, bf16 %#x", math.Float32bits(v), h, b)
				}
				continue
			}
			if h != wantH || b != wantB {
				t.Fatalf("%v (%#x): f16 %#x, want %#x; bf16 %#x, want %#x", v, math.Float32bits(v), h, wantH, b, wantB)
			}
		}
	})
}

func TestConvertTails(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(9, 1))
		for _, n := range lengths() {
			x := newGuarded(n, normal(r, 1))
			for name, c := range map[string]struct {
				narrow func([]byte, []float32)
				widen  func([]float32, []byte)
				ulp    float64
			}{"f16": {k.F32ToF16, k.F16ToF32, 0x1p-11}, "bf16": {k.F32ToBF16, k.BF16ToF32, 0x1p-8}} {
				b := testkit.NewCanary[uint8](2 * n)
				back := newGuarded(n, func(int) float32 { return nan })
				c.narrow(b.V, x.V)
				b.Check(t)
				c.widen(back.V, b.V)
				back.Check(t)
				for i, v := range x.V { // one rounding, subnormal halves included
					near(t, name, n, i, back.V[i], float64(v), c.ulp*math.Abs(float64(v))+0x1p-25)
				}
			}
		}
	})
}
