package cuda_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

const granule = 2 << 20

func (w *world) physical(n int64) *cuda.Physical {
	w.t.Helper()
	p := must(w.ctx.AllocPhysical(n))(w.t)
	w.t.Cleanup(func() { w.close(p) })
	return p
}

func (w *world) reserve(n, align int64) *cuda.Range {
	w.t.Helper()
	r := must(w.ctx.Reserve(n, align))(w.t)
	w.t.Cleanup(func() { w.close(r) })
	return r
}

// TestSharedMapping: one piece of memory at two addresses is the same memory, and stays while one of them is there.
func TestSharedMapping(t *testing.T) {
	w := open(t, cudatest.Options{})
	if g := must(w.ctx.Granule())(t); g != granule {
		t.Errorf("granule %d", g)
	}
	a, b := w.reserve(4*granule, 0), w.reserve(4*granule, 1<<30)
	if uint64(b.Ptr())%(1<<30) != 0 || b.Bytes() != 4*granule {
		t.Errorf("range %#x, %d bytes", uint64(b.Ptr()), b.Bytes())
	}
	p, q := w.physical(granule), w.physical(2*granule)
	if q.Bytes() != 2*granule {
		t.Error("Bytes")
	}
	w.check(a.Map(granule, p, q))
	w.check(b.Map(0, q))
	w.check(b.Map(2*granule, p, p))
	if a.Mapped() != 3*granule || b.Mapped() != 4*granule {
		t.Errorf("mapped %d, %d", a.Mapped(), b.Mapped())
	}
	// Across the seam of p and q in a.
	seam := a.Ptr() + 2*granule
	w.check(w.s.Upload(seam-2, []byte{1, 2, 3, 4}))
	got := make([]byte, 2)
	for _, c := range []struct {
		at   cuda.Ptr
		want []byte
	}{
		{seam - 2, []byte{1, 2}}, {seam, []byte{3, 4}}, {b.Ptr(), []byte{3, 4}}, {b.Ptr() + 3*granule - 2, []byte{1, 2}},
		{b.Ptr() + 4*granule - 2, []byte{1, 2}},
	} {
		w.check(w.s.Download(got, c.at))
		if !slices.Equal(got, c.want) {
			t.Errorf("at %#x: %v, want %v", uint64(c.at), got, c.want)
		}
	}
	w.check(a.Unmap(granule, 3*granule))
	w.close(q) // b still has it
	free, _, _ := w.ctx.MemInfo()
	w.check(w.s.Download(got, b.Ptr()))
	if !slices.Equal(got, []byte{3, 4}) {
		t.Errorf("after Unmap elsewhere: %v", got)
	}
	w.check(b.Unmap(0, 2*granule))
	if now, _, _ := w.ctx.MemInfo(); now-free != 2*granule {
		t.Errorf("%d bytes came back, want %d", now-free, 2*granule)
	}
	w.check(w.s.Download(got, b.Ptr()+2*granule))
	if a.Mapped() != 0 || b.Mapped() != 2*granule {
		t.Errorf("mapped %d, %d", a.Mapped(), b.Mapped())
	}
}

func TestMapRefused(t *testing.T) {
	w := open(t, cudatest.Options{})
	r, p := w.reserve(4*granule, 0), w.physical(granule)
	w.check(r.Map(granule, p))
	two := w.physical(2 * granule)
	for _, c := range []struct {
		off    int64
		pieces []*cuda.Physical
	}{
		{-granule, []*cuda.Physical{p}}, {4 * granule, []*cuda.Physical{p}}, {granule, []*cuda.Physical{p}}, {0, []*cuda.Physical{two}},
		{0, []*cuda.Physical{p, p}}, {2 * granule, []*cuda.Physical{two, p}}, {math.MaxInt64, []*cuda.Physical{p}}, {1, []*cuda.Physical{p}},
		{5 * granule, nil},
	} {
		wantErr(t, "Map", r.Map(c.off, c.pieces...), cuda.ErrInvalid)
	}
	wantErr(t, "Map", r.Map(0, two), cuda.ErrInvalid, "something is mapped there") // seen before the driver is asked
	w.check(r.Map(0))                                                              // nothing
	w.check(r.Map(2*granule, two))
	for _, c := range [][2]int64{{0, granule}, {granule, 0}, {granule, -granule}, {granule, 2 * granule}, {2 * granule, granule}, {3 * granule, granule},
		{granule + 1, granule}, {granule, 4 * granule}, {0, 4 * granule}, {math.MaxInt64, 1}, {1, math.MaxInt64}} {
		wantErr(t, "Unmap", r.Unmap(c[0], c[1]), cuda.ErrInvalid)
	}
	if r.Mapped() != 3*granule {
		t.Errorf("mapped %d", r.Mapped())
	}
	w.check(r.Unmap(granule, 3*granule))
	for _, c := range [][2]int64{{0, 0}, {-1, 0}, {1, 3}, {1, -2}} {
		_, err := w.ctx.Reserve(c[0], c[1])
		wantErr(t, "Reserve", err, cuda.ErrInvalid)
	}
	_, err := w.ctx.Reserve(granule+1, 0)
	wantErr(t, "Reserve", err, cuda.ErrInvalid)
	for _, n := range []int64{0, -granule, granule + 1} {
		_, err := w.ctx.AllocPhysical(n)
		wantErr(t, "AllocPhysical", err, cuda.ErrInvalid)
	}
}

// TestMapAllOrNothing: a failure in the middle leaves what was there before.
func TestMapAllOrNothing(t *testing.T) {
	w := open(t, cudatest.Options{})
	r, p := w.reserve(8*granule, 0), w.physical(granule)
	w.check(r.Map(0, p))
	for _, c := range []struct {
		call string
		n    int
	}{{"cuMemMap", 1}, {"cuMemMap", 3}, {"cuMemSetAccess", 1}} {
		w.fake.Fail(c.call, c.n, driver.OutOfMemory)
		wantErr(t, c.call, r.Map(granule, p, p, p), cuda.ErrOutOfMemory, c.call)
		if r.Mapped() != granule {
			t.Errorf("%s: mapped %d", c.call, r.Mapped())
		}
		w.check(r.Map(granule, p, p, p))
		w.check(r.Unmap(granule, 3*granule))
	}
	w.check(r.Map(granule, p, p))
	w.fake.Fail("cuMemUnmap", 2, driver.OutOfMemory)
	if err := r.Unmap(0, 3*granule); err == nil || r.Mapped() != 2*granule {
		t.Errorf("Unmap that fails: %v, mapped %d", err, r.Mapped())
	}
	w.check(r.Unmap(granule, 2*granule))
}

// TestMapRandom compares a range with a list of which piece lies where, over random calls.
func TestMapRandom(t *testing.T) {
	w := open(t, cudatest.Options{})
	const n = 12
	rng := rand.New(rand.NewPCG(1, 2))
	r := w.reserve(n*granule, 0)
	var pieces []*cuda.Physical
	scratch := w.reserve(granule, 0)
	for i := range 4 { // each says its number in its first byte
		p := w.physical(granule)
		w.check(scratch.Map(0, p))
		w.check(w.s.Fill(scratch.Ptr(), byte(i), 1))
		w.check(w.s.Synchronize())
		w.check(scratch.Unmap(0, granule))
		pieces = append(pieces, p)
	}
	var want [n]int // piece + 1
	for range 2000 {
		off, count := rng.IntN(n+2)-1, 1+rng.IntN(3)
		fits := off >= 0 && off+count <= n
		if rng.IntN(2) == 0 {
			var list []*cuda.Physical
			var numbers []int
			for range count {
				k := rng.IntN(len(pieces))
				list, numbers = append(list, pieces[k]), append(numbers, k+1)
			}
			free := fits && !slices.ContainsFunc(want[max(off, 0):min(off+count, n)], func(k int) bool { return k != 0 })
			if err := r.Map(int64(off)*granule, list...); (err == nil) != free {
				t.Fatalf("Map at %d of %d into %v: %v", off, count, want, err)
			}
			if free {
				copy(want[off:], numbers)
			}
			continue
		}
		full := fits && !slices.Contains(want[max(off, 0):min(off+count, n)], 0)
		if err := r.Unmap(int64(off)*granule, int64(count)*granule); (err == nil) != full {
			t.Fatalf("Unmap at %d of %d from %v: %v", off, count, want, err)
		}
		if full {
			clear(want[off : off+count])
		}
		mapped := int64(0)
		for i, k := range want {
			if k == 0 {
				continue
			}
			mapped += granule
			got := make([]byte, 1)
			w.check(w.s.Download(got, r.Ptr()+cuda.Ptr(i*granule)))
			if int(got[0]) != k-1 {
				t.Fatalf("granule %d is piece %d, want %d", i, got[0], k-1)
			}
		}
		if r.Mapped() != mapped {
			t.Fatalf("mapped %d, want %d", r.Mapped(), mapped)
		}
	}
}

// TestMapAhead: one goroutine maps while another uses what is mapped already.
func TestMapAhead(t *testing.T) {
	w := open(t, cudatest.Options{})
	const n = 16
	r := w.reserve(n*granule, 0)
	first := w.physical(granule)
	w.check(r.Map(0, first))
	done := make(chan error, 1)
	go func() {
		for i := int64(1); i < n; i++ {
			p, err := w.ctx.AllocPhysical(granule)
			if err == nil {
				err = r.Map(i*granule, p)
			}
			if err == nil {
				err = p.Close() // the mapping keeps it
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for r.Mapped() < n*granule {
		w.check(w.s.Fill(r.Ptr()+cuda.Ptr(r.Mapped())-1, 7, 1))
		w.check(w.s.Synchronize())
		if len(done) > 0 {
			break
		}
	}
	w.check(<-done)
	if r.Mapped() != n*granule {
		t.Errorf("mapped %d", r.Mapped())
	}
}
