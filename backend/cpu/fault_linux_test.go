package cpu

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// TestFaultWhileRepacking: weights that can't be read end the step with the owner's error. Once they can be, the next
// step repacks them anew; what the first left behind is half a matrix.
func TestFaultWhileRepacking(t *testing.T) {
	testkit.SkipEmulated(t, "a fault ends the process")
	const k, n = 512, 640
	gone := errors.New("weights are gone")
	for _, workers := range []int{1, 2} {
		p := newProducts(t, Options{Workers: workers}, quant.Q8_0, k, n, 2)
		p.must(p.be.Begin(stepOf(2)))
		want := p.product(0, 2)
		p.must(p.be.End())

		faults := 0
		be, err := New(Options{Workers: workers, Fault: func(any) error { faults++; return gone }})
		p.must(err)
		defer be.Close()
		file := p.w.(*weight).file
		data, err := unix.Mmap(-1, 0, len(file), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		p.must(err)
		defer func() { _ = unix.Munmap(data) }()
		copy(data, file)
		page := unix.Getpagesize()
		lost := data[len(data)/2/page*page:]
		w, err := be.Upload("w", quant.Q8_0, n, k, data)
		p.must(err)
		q := &products{t: t, be: be, w: w, x: p.x, n: n}
		q.in, err = be.Alloc(2, k)
		p.must(err)
		q.y, err = be.Alloc(2, n)
		p.must(err)

		p.must(unix.Mprotect(lost, unix.PROT_NONE))
		for range 2 {
			p.must(be.Begin(stepOf(2)))
			q.product(0, 2)
			if err := be.End(); !errors.Is(err, gone) {
				t.Errorf("%d workers: %v, want the owner's error", workers, err)
			}
		}
		if faults != 2 {
			t.Errorf("%d workers: %d faults explained in 2 steps", workers, faults)
		}
		p.must(unix.Mprotect(lost, unix.PROT_READ))
		p.must(be.Begin(stepOf(2)))
		got := q.product(0, 2)
		p.must(be.End())
		if i := differs(got, want); i >= 0 {
			t.Errorf("%d workers: output %d is %g after the fault, want %g", workers, i, got[i], want[i])
		}
	}
}
