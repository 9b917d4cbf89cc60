package kvmem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

const granule = 2 << 20

// rig is a Memory on a device in Go, whose driver reports what is left open.
type rig struct {
	t      testing.TB
	drv    *cudatest.Driver
	ctx    *cuda.Context
	stream *cuda.Stream
	*Memory
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	d, drv := cudatest.Open(t, cudatest.Options{})
	dev, err := d.Device(0)
	must(t, err)
	r := &rig{t: t, drv: drv}
	r.ctx, err = dev.Open()
	must(t, err)
	r.stream, err = r.ctx.NewStream(cuda.NormalPriority)
	must(t, err)
	if cfg.PageBytes == 0 {
		cfg.PageBytes = granule
	}
	r.Memory, err = New(r.ctx, cfg)
	must(t, err)
	t.Cleanup(func() {
		must(t, r.Close())
		must(t, r.Close()) // twice is harmless
		must(t, r.stream.Close())
		must(t, r.ctx.Close())
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write marks a slot, through its address.
func (r *rig) write(rng int32, i int, v byte) {
	r.t.Helper()
	must(r.t, r.stream.Fill(r.slot(rng, i), v, r.PageBytes()))
	must(r.t, r.stream.Synchronize())
}

// read returns the first and the last byte of a slot.
func (r *rig) read(rng int32, i int) [2]byte {
	r.t.Helper()
	return r.ends(r.slot(rng, i))
}

func (r *rig) slot(rng int32, i int) cuda.Ptr {
	return r.Base(rng) + cuda.Ptr(int64(i)*r.PageBytes())
}

func (r *rig) ends(p cuda.Ptr) (b [2]byte) {
	r.t.Helper()
	must(r.t, r.stream.Download(b[:1], p))
	must(r.t, r.stream.Download(b[1:], p+cuda.Ptr(r.PageBytes()-1)))
	return b
}

func (r *rig) want(rng int32, i int, v byte) {
	r.t.Helper()
	if got := r.read(rng, i); got != [2]byte{v, v} {
		r.t.Fatalf("range %d, slot %d holds %v, want %d", rng, i, got, v)
	}
}

// TestSharing maps a prefix into two ranges, as many sequences as there are of one prompt.
func TestSharing(t *testing.T) {
	r := newRig(t, Config{Pages: 8, Ranges: 2, RangePages: 4})
	must(t, r.Bind(0, 0, []int32{3, 5}))
	r.write(0, 0, 33)
	r.write(0, 1, 55)
	must(t, r.Bind(1, 0, []int32{3, 7}))
	r.write(1, 1, 77)
	r.want(1, 0, 33)
	r.want(0, 1, 55)
	if s := r.Stats(); s.Memory != 3 {
		t.Errorf("%+v: 4 slots of 3 pages", s)
	}
	must(t, r.Unbind(0))
	r.want(1, 0, 33) // the other range keeps it
	if err := r.Release([]int32{5, 3}); !errors.Is(err, ErrBound) || !strings.Contains(err.Error(), "page 3") {
		t.Error(err)
	}
	if s := r.Stats(); s.Memory != 3 {
		t.Errorf("%+v: a Release that failed released", s)
	}
	must(t, r.Unbind(1))
	must(t, r.Bind(0, 0, []int32{7, 3})) // content stays until Release
	r.want(0, 0, 77)
	r.want(0, 1, 33)
}

// TestReplace binds over what is bound: a copy takes the place of a shared page.
func TestReplace(t *testing.T) {
	r := newRig(t, Config{Pages: 8, Ranges: 1, RangePages: 4})
	must(t, r.Bind(0, 0, []int32{0, 1, 2}))
	for i := range 3 {
		r.write(0, i, byte(i))
	}
	a, err := r.Address(1)
	must(t, err)
	b, err := r.Address(6)
	must(t, err)
	must(t, r.stream.Copy(b, a, r.PageBytes()))
	must(t, r.stream.Fill(a, 9, 1))
	must(t, r.stream.Synchronize())
	must(t, r.Bind(0, 1, []int32{6}))
	r.want(0, 0, 0)
	r.want(0, 1, 1)
	r.want(0, 2, 2)
	if got := r.ends(a); got != [2]byte{9, 1} {
		t.Errorf("the window shows %v", got)
	}
}

// TestAhead lets a sequence grow page by page and finds the next page mapped each time.
func TestAhead(t *testing.T) {
	r := newRig(t, Config{Pages: 20, Ranges: 2, RangePages: 10, Ahead: 2})
	for i := range 10 {
		must(t, r.Bind(0, i, []int32{int32(i)}))
		r.write(0, i, byte(i))
		r.Settle()
		if s := r.Stats(); s.Mapped != 1 || s.Taken != i || s.Spares != min(2, 9-i) {
			t.Fatalf("after page %d: %+v", i, s)
		}
	}
	for i := range 10 {
		r.want(0, i, byte(i))
	}
	must(t, r.Unbind(0))
	must(t, r.Release([]int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
	if s := r.Stats(); s.Memory != 0 || s.Spares != 0 {
		t.Errorf("%+v after everything was released", s)
	}
}

// TestSparesServeOthers uses every page, though some lie ahead of another range.
func TestSparesServeOthers(t *testing.T) {
	r := newRig(t, Config{Pages: 4, Ranges: 2, RangePages: 4, Ahead: 3})
	must(t, r.Bind(0, 0, []int32{0}))
	r.Settle()
	if s := r.Stats(); s.Spares != 3 {
		t.Fatalf("%+v", s)
	}
	must(t, r.Bind(1, 0, []int32{1, 2, 3}))
	for i := range 3 {
		r.write(1, i, byte(i))
	}
	if s := r.Stats(); s.Memory != 4 || s.Spares != 0 {
		t.Errorf("%+v", s)
	}
}

// TestExhaustion runs out of memory and goes on when some comes back.
func TestExhaustion(t *testing.T) {
	r := newRig(t, Config{Pages: 8, Ranges: 1, RangePages: 8})
	must(t, r.Bind(0, 0, []int32{0, 1}))
	r.drv.FailAlloc(2)
	err := r.Bind(0, 2, []int32{2, 3, 4})
	if !errors.Is(err, ErrFull) || !errors.Is(err, cuda.ErrOutOfMemory) || !strings.Contains(err.Error(), "page 3") {
		t.Fatal(err)
	}
	r.write(0, 1, 1) // what was bound before still is
	if err := r.stream.Fill(r.slot(0, 3), 0, 1); err == nil {
		err = r.stream.Synchronize()
		if !errors.Is(err, cuda.ErrContextLost) { // and nothing else
			t.Error(err)
		}
	}
}

// TestBounds hands over numbers that don't exist.
func TestBounds(t *testing.T) {
	r := newRig(t, Config{Pages: 3, Ranges: 1, RangePages: 2})
	for _, err := range []error{
		r.Bind(1, 0, nil), r.Bind(-1, 0, nil), r.Bind(0, 1, []int32{0}), r.Bind(0, 0, []int32{3}), r.Bind(0, 0, []int32{-1}),
		r.Bind(0, 0, []int32{0, 1, 2}), r.Unbind(1), r.Release([]int32{3}), second(r.Address(3)), second(r.Address(-1)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "kvmem: ") {
			t.Error(err)
		}
	}
	for _, c := range []Config{{}, {PageBytes: 1, Pages: 1 << 40, Ranges: 1, RangePages: 1}, {PageBytes: 1 << 30, Pages: 1, Ranges: 1 << 10, RangePages: 1 << 10}} {
		if _, err := New(r.ctx, c); err == nil {
			t.Errorf("%+v", c)
		}
	}
}

func second(_ cuda.Ptr, err error) error { return err }

// TestFailures injects a failure into each call of the driver in turn and demands an error, nothing leaked and everything
// as it was afterwards.
func TestFailures(t *testing.T) {
	for _, call := range []string{"cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemCreate"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				r := newRig(t, Config{Pages: 8, Ranges: 2, RangePages: 4})
				must(t, r.Bind(0, 0, []int32{0, 1}))
				r.drv.Fail(call, n, driver.OperatingSystem)
				failed := false
				for _, err := range []error{
					r.Bind(0, 2, []int32{2, 3}), r.Bind(1, 0, []int32{1, 4}), r.Bind(0, 1, []int32{5}), r.Unbind(1), r.Unbind(0), r.Release([]int32{0, 2, 3}),
				} {
					failed = failed || err != nil
				}
				if !failed && n < 3 {
					t.Error("the failure was not reported")
				}
				must(t, r.Unbind(0))
				must(t, r.Unbind(1))
				must(t, r.Bind(0, 0, []int32{6, 7, 0}))
				r.write(0, 2, 4)
			})
		}
	}
}

// TestRandom compares with a model: what each slot holds.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	r := newRig(t, Config{PageBytes: 3000, Pages: 12, Ranges: 3, RangePages: 6, Ahead: 1})
	if r.PageBytes() != granule {
		t.Fatal(r.PageBytes())
	}
	tables := make([][]int32, 3)
	content := map[int32]byte{}
	for op := range 400 {
		k := int32(rng.IntN(3))
		switch rng.IntN(5) {
		case 0:
			must(t, r.Unbind(k))
			tables[k] = nil
		case 1:
			p := int32(rng.IntN(12))
			bound := false
			for _, tb := range tables {
				for _, q := range tb {
					bound = bound || q == p
				}
			}
			if err := r.Release([]int32{p}); (err != nil) != bound {
				t.Fatalf("release of page %d, bound %v: %v", p, bound, err)
			}
			if !bound {
				delete(content, p)
			}
		default:
			from := rng.IntN(len(tables[k]) + 1)
			pages := make([]int32, rng.IntN(7-from))
			for i := range pages {
				pages[i] = int32(rng.IntN(12))
			}
			must(t, r.Bind(k, from, pages))
			tables[k] = append(tables[k][:from:from], append(pages, tables[k][min(len(tables[k]), from+len(pages)):]...)...)
			for i, p := range pages {
				if _, known := content[p]; !known {
					content[p] = byte(op)
					r.write(k, from+i, byte(op))
				}
			}
		}
		for k, tb := range tables {
			for i, p := range tb {
				r.want(int32(k), i, content[p])
			}
		}
	}
}
