package filemap

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident returns how many of the mapping's pages this process has in memory: /proc/self/pagemap has
// 8 bytes a page, the top bit of which says so.
func resident(t *testing.T, m *Map) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	pages := (len(m.Data) + page - 1) / page
	b := make([]byte, 8*pages)
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))) / int64(page)
	if _, err := f.ReadAt(b, 8*first); err != nil {
		t.Skip(err)
	}
	for i := range pages {
		n += int(b[8*i+7] >> 7)
	}
	return n
}

func TestEvict(t *testing.T) {
	page := os.Getpagesize()
	want := bytes.Repeat([]byte("0123456789abcdef"), 8*page/16)
	want = want[:8*page-100] // the last page is not full
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	end := len(m.Data)
	for _, c := range []struct{ from, to, evicted int }{
		{0, 0, 0}, {0, page, 1}, {1, page, 0}, {1, 2*page - 1, 0}, {1, 2 * page, 1}, {page - 1, 3*page + 1, 2},
		{7 * page, end, 1}, {7*page + 1, end, 0}, {7 * page, end - 1, 0}, {0, end, 8},
	} {
		// Without reading ahead or around, which would bring back what the next touch is not for.
		if err := unix.Madvise(m.Data, unix.MADV_POPULATE_READ); err != nil {
			t.Skip("this kernel can't populate a mapping: ", err)
		}
		if got := resident(t, m); got != 8 {
			t.Skipf("/proc/self/pagemap shows %d of 8 pages that are there: an emulator?", got)
		}
		m.Evict(m.Data[c.from:c.to])
		if got := 8 - resident(t, m); got != c.evicted {
			t.Errorf("%d to %d: %d pages evicted, want %d", c.from, c.to, got, c.evicted)
		}
		if !bytes.Equal(m.Data, want) {
			t.Fatalf("%d to %d: other bytes after evicting", c.from, c.to)
		}
	}
	m.Evict(want) // not in the mapping
	m.Evict(nil)  // nowhere
	Bytes("b", want).Evict(want)
	if !bytes.Equal(m.Data, want) {
		t.Error("evicting foreign memory changed the file's bytes")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.Evict(want)
}
