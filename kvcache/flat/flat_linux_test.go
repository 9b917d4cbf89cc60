package flat

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newArena(t testing.TB, pages, pageBytes int) *Arena {
	t.Helper()
	a, err := New(pages, pageBytes)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func newRange(t testing.TB, a *Arena, maxPages int) *Range {
	t.Helper()
	r, err := a.Reserve(maxPages)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// touch reads one byte and reports whether it can be read.
func touch(b []byte, i int) (v byte, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if e := recover(); e != nil {
			if _, fault := e.(interface{ Addr() uintptr }); !fault {
				panic(e)
			}
			ok = false
		}
	}()
	return b[i], true
}

// sign writes a page's number to both its ends.
func sign(a *Arena) {
	b, size := a.Bytes(), a.PageBytes()
	for page := range a.Pages() {
		binary.NativeEndian.PutUint32(b[page*size:], uint32(page))
		binary.NativeEndian.PutUint32(b[(page+1)*size-4:], uint32(page))
	}
}

// checkRange compares what can be read through the range, and the kernel's own list of mappings, with table.
func checkRange(t *testing.T, r *Range, table []int32) {
	t.Helper()
	b, size := r.Bytes(), r.a.PageBytes()
	for i, page := range table {
		_, ok := touch(b, i*size)
		if ok != (page != none) {
			t.Fatalf("place %d: readable %v, page %d", i, ok, page)
		}
		if !ok {
			continue
		}
		first, last := binary.NativeEndian.Uint32(b[i*size:]), binary.NativeEndian.Uint32(b[(i+1)*size-4:])
		if int32(first) != page || int32(last) != page {
			t.Fatalf("place %d shows pages %d and %d, want %d", i, first, last, page)
		}
	}
	want := 0
	for i, page := range table {
		if i == 0 || !joined(table[i-1], page) {
			want++
		}
	}
	if got := kernelMappings(t, b); got != want {
		t.Fatalf("the kernel has %d mappings, want %d for %v", got, want, table)
	}
}

// kernelMappings counts the lines of /proc/self/maps that overlap b.
func kernelMappings(t *testing.T, b []byte) int {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	hi := lo + uintptr(len(b))
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var from, to uintptr
		if _, err := fmt.Sscanf(sc.Text(), "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if from < hi && to > lo {
			n++
		}
	}
	return n
}

func TestMapAgainstShadow(t *testing.T) {
	const pages, maxPages = 24, 17
	a := newArena(t, pages, os.Getpagesize())
	sign(a)
	var ranges [2]*Range
	var tables [2][]int32
	for i := range ranges {
		ranges[i] = newRange(t, a, maxPages)
		tables[i] = make([]int32, maxPages)
		for j := range tables[i] {
			tables[i][j] = none
		}
		checkRange(t, ranges[i], tables[i])
	}
	rng := rand.New(rand.NewPCG(3, 9))
	for range 400 {
		k := rng.IntN(2)
		index := rng.IntN(maxPages)
		n := rng.IntN(maxPages - index + 1)
		if rng.IntN(3) == 0 {
			if err := ranges[k].Unmap(index, n); err != nil {
				t.Fatal(err)
			}
			for j := range n {
				tables[k][index+j] = none
			}
		} else {
			run := make([]int32, n)
			for j := range run {
				run[j] = int32(rng.IntN(pages))
				if j > 0 && rng.IntN(3) > 0 && int(run[j-1])+1 < pages {
					run[j] = run[j-1] + 1
				}
			}
			if err := ranges[k].Map(index, run); err != nil {
				t.Fatal(err)
			}
			copy(tables[k][index:], run)
		}
		total := 1
		for i, r := range ranges {
			checkRange(t, r, tables[i])
			total += r.pieces(0, tables[i])
		}
		if got := a.Mappings(); got != total {
			t.Fatalf("%d mappings counted, want %d", got, total)
		}
	}
	for _, r := range ranges {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.Mappings(); got != 1 {
		t.Fatalf("%d mappings after all ranges are closed, want the arena's own", got)
	}
}

func TestSharedPrefix(t *testing.T) {
	a := newArena(t, 8, os.Getpagesize())
	sign(a)
	r, s := newRange(t, a, 4), newRange(t, a, 4)
	if err := errors.Join(r.Map(0, []int32{2, 3, 4}), s.Map(0, []int32{2, 3, 7})); err != nil {
		t.Fatal(err)
	}
	r.Bytes()[a.PageBytes()+100] = 42
	if got := s.Bytes()[a.PageBytes()+100]; got != 42 {
		t.Errorf("the other sequence reads %d from the shared page", got)
	}
	if got := a.Bytes()[3*a.PageBytes()+100]; got != 42 {
		t.Errorf("the arena reads %d from the shared page", got)
	}
	r.Bytes()[2*a.PageBytes()+100] = 43
	if got := s.Bytes()[2*a.PageBytes()+100]; got != 0 {
		t.Errorf("the other sequence reads %d from its own page", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got, ok := touch(s.Bytes(), a.PageBytes()+100); !ok || got != 42 {
		t.Errorf("after the first sequence ended the second reads %d, %v", got, ok)
	}
}

// smapsKB reads a field of /proc/self/smaps_rollup: an account of memory that is not the arena's own.
func smapsKB(t *testing.T, field string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb int
		if _, err := fmt.Sscanf(line, field+": %d kB", &kb); err == nil {
			return kb
		}
	}
	t.Skipf("smaps_rollup has no %s", field)
	return 0
}

func TestMemoryIsReturned(t *testing.T) {
	const mb = 1 << 20
	before := smapsKB(t, "Pss_Shmem")
	a := newArena(t, 64, mb)
	resident := func(what string, wantMB int) {
		t.Helper()
		got, err := a.Resident()
		if err != nil {
			t.Fatal(err)
		}
		if got != int64(wantMB)*mb {
			t.Errorf("%s: %d bytes resident, want %d MiB", what, got, wantMB)
		}
		if got := smapsKB(t, "Pss_Shmem") - before; got != wantMB<<10 {
			t.Errorf("%s: the process holds %d kB more than before, want %d MiB", what, got, wantMB)
		}
	}
	resident("untouched", 0)
	r := newRange(t, a, 64)
	if err := r.Map(0, []int32{10, 11, 12, 40}); err != nil {
		t.Fatal(err)
	}
	resident("mapped", 0)
	b := r.Bytes()[:4*mb]
	for i := range b {
		b[i] = 1
	}
	resident("written", 4)
	if err := a.Discard(11, 2); err != nil {
		t.Fatal(err)
	}
	resident("two pages discarded", 2)
	if b[0] != 1 || b[3*mb] != 1 {
		t.Error("Discard took a neighbour's content")
	}
	if b[mb] != 0 || b[3*mb-1] != 0 { // touches two system pages anew
		t.Error("discarded pages keep their content")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := smapsKB(t, "Pss_Shmem") - before; got != 0 {
		t.Errorf("after Close the process holds %d kB more than before", got)
	}
	if _, ok := touch(b, 0); ok {
		t.Error("memory can be read after Close")
	}
}

func TestMappingLimit(t *testing.T) {
	a := newArena(t, 16, os.Getpagesize())
	sign(a)
	a.maxMappings = 5
	r := newRange(t, a, 8) // 2 in use
	if err := r.Map(0, []int32{0, 1, 2, 3, 4, 5}); err != nil {
		t.Fatal(err) // 3: a run costs one
	}
	err := r.Map(0, []int32{0, 2, 4, 6})
	if !errors.Is(err, ErrMaps) || !strings.Contains(err.Error(), "vm.max_map_count") {
		t.Fatalf("error %v", err)
	}
	checkRange(t, r, []int32{0, 1, 2, 3, 4, 5, none, none})
	if err := r.Map(1, []int32{9, 10}); err != nil {
		t.Fatal(err) // 5: split in three
	}
	if _, err := a.Reserve(1); !errors.Is(err, ErrMaps) {
		t.Fatalf("Reserve: %v", err)
	}
	if err := r.Map(1, []int32{1, 2}); err != nil {
		t.Fatal(err) // whole again
	}
	if got := a.Mappings(); got != 3 {
		t.Errorf("%d mappings, want 3", got)
	}
}

func TestRejects(t *testing.T) {
	size := os.Getpagesize()
	for _, c := range [][2]int{{0, size}, {-4, size}, {8, 0}, {8, size + 1}, {8, size / 2}, {8, -size}, {1 << 30, math.MaxInt &^ (size - 1)}} {
		if a, err := New(c[0], c[1]); err == nil {
			a.Close()
			t.Errorf("New(%d, %d) accepted", c[0], c[1])
		}
	}
	a := newArena(t, 8, size)
	r := newRange(t, a, 4)
	for name, err := range map[string]error{
		"page 8":          r.Map(0, []int32{0, 8}),
		"page -1":         r.Map(0, []int32{-1}),
		"place 4":         r.Map(4, []int32{0}),
		"place -1":        r.Map(-1, []int32{0}),
		"unmap 5":         r.Unmap(0, 5),
		"unmap -1":        r.Unmap(2, -1),
		"discard 9":       a.Discard(0, 9),
		"discard max":     a.Discard(3, math.MaxInt),
		"discard page -1": a.Discard(-1, 1),
	} {
		if err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	for _, n := range []int{0, -1, math.MaxInt} {
		if _, err := a.Reserve(n); err == nil {
			t.Errorf("Reserve(%d) accepted", n)
		}
	}
	checkRange(t, r, []int32{none, none, none, none})
	if err := errors.Join(r.Map(4, nil), r.Unmap(0, 0), a.Discard(8, 0)); err != nil {
		t.Errorf("nothing asked for: %v", err)
	}
}

func TestClosed(t *testing.T) {
	a := newArena(t, 8, os.Getpagesize())
	r, s := newRange(t, a, 4), newRange(t, a, 4)
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.Map(0, []int32{1}); !errors.Is(err, ErrClosed) {
		t.Errorf("Map into a closed range: %v", err)
	}
	if err := errors.Join(a.Close(), a.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmap(0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Unmap after the arena closed: %v", err)
	}
	if _, err := a.Reserve(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Reserve in a closed arena: %v", err)
	}
	if err := a.Discard(0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Discard in a closed arena: %v", err)
	}
	if _, err := a.Resident(); !errors.Is(err, ErrClosed) {
		t.Errorf("Resident of a closed arena: %v", err)
	}
}

// TestSizeIsSealed: nobody who gets hold of the file can cut memory off under its mappings.
func TestSizeIsSealed(t *testing.T) {
	a := newArena(t, 4, os.Getpagesize())
	if err := unix.Ftruncate(a.fd, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("ftruncate: %v", err)
	}
}

func BenchmarkMapUnmap(b *testing.B) {
	a := newArena(b, 1024, 64<<10)
	r := newRange(b, a, 1024)
	for name, stride := range map[string]int32{"run=16": 1, "run=1": 3} {
		b.Run(name, func(b *testing.B) {
			pages := make([]int32, 16)
			for i := range pages {
				pages[i] = int32(i) * stride
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := errors.Join(r.Map(5, pages), r.Unmap(5, len(pages))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
