package qgemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestQuantize checks every body against the definition: d = max/127, q within half a step, sums exact.
func TestQuantize(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(1, 1))
		for _, cols := range []int{1, 31, 32, 33, 64, 100, 576} {
			x := randomActs(rng, 5*cols)
			var a Acts
			a.Reset(5, cols)
			for i := range a.quants {
				a.quants[i].q[3], a.quants[i].off128 = 99, 99
			}
			k.SetActs(&a, quant.Q8_0, x, cols, 0, 5)
			for m := range 5 {
				first, step := a.at(m, quantBlocks(cols))
				for b := range quantBlocks(cols) {
					lo, hi := min(32*b, cols), min(32*b+32, cols)
					checkBlock(t, &a.quants[first+b*step], x[m*cols+lo:m*cols+hi])
				}
			}
		}
	})
}

func checkBlock(t *testing.T, b *actBlock, x []float32) {
	t.Helper()
	var top float32
	for _, f := range x {
		top = max(top, f, -f)
	}
	if b.d != top/127 {
		t.Fatalf("scale %g, want %g", b.d, top/127)
	}
	var sum [2]int32
	for i, q := range b.q {
		sum[i/16] += int32(q)
		if i >= len(x) {
			if q != 0 {
				t.Fatalf("padding is %d", q)
			}
			continue
		}
		// Half a step, and 2 roundings of a number up to 127.
		if err := math.Abs(float64(x[i]) - float64(b.d)*float64(q)); err > float64(b.d)*(0.5+2*127*0x1p-24) {
			t.Fatalf("%g became %d·%g", x[i], q, b.d)
		}
	}
	all := sum[0] + sum[1]
	if b.sum != b.d*float32(all) || b.off128 != -128*all || b.off16 != -16*all || b.off8 != -8*all ||
		b.off32 != [2]int32{-32 * sum[0], -32 * sum[1]} {
		t.Fatalf("sums of %v are wrong: %+v", sum, b)
	}
}

// TestQuantizeSpecial: all bodies agree with the generic one on blocks with zeros, denormals, the smallest
// usable maximum, ties; and what is not finite stays visible in the scale.
func TestQuantizeSpecial(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tiny := math.Float32frombits(tinyBits)
	for _, c := range []struct {
		x      float32
		others float32
		d      float32
	}{
		{0, 0, 0}, {1e-45, 0, 0}, {math.Nextafter32(tiny, 0), 0, 0}, {tiny, -tiny, tiny / 127},
		{-127, 0.5, 1}, {127, 1.5, 1}, {127, -2.5, 1}, {math.MaxFloat32, 1, math.MaxFloat32 / 127},
		{inf, 1, inf}, {-inf, 0, inf}, {nan, 1, nan}, {-nan, inf, nan},
	} {
		for _, at := range []int{0, 7, 15, 16, 31} {
			var x [blockLen]float32
			for i := range x {
				x[i] = c.others
			}
			x[at] = c.x
			eachLevel(t, func(t *testing.T, k *Kernels) {
				var got, want [1]actBlock
				k.quantize(got[:], 1, x[:])
				quantizeGeneric(want[:], 1, x[:])
				if d := got[0].d; d != c.d && !(d != d && c.d != c.d) {
					t.Errorf("%g among %g: scale %g, want %g", c.x, c.others, d, c.d)
				}
				if c.d-c.d == 0 && got != want {
					t.Errorf("%g among %g: %+v, want %+v", c.x, c.others, got, want)
				}
			})
		}
	}
}

func TestTiles(t *testing.T) {
	for m := range 40 {
		var a Acts
		a.Reset(m, 96)
		seen := map[int]bool{}
		for r := range m {
			first, step := a.at(r, quantBlocks(96))
			for b := range quantBlocks(96) {
				i := first + b*step
				if i >= len(a.quants) || seen[i] {
					t.Fatalf("%d rows: block %d of row %d is number %d", m, b, r, i)
				}
				seen[i] = true
			}
		}
	}
}
