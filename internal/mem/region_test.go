package mem

import (
	"runtime"
	"testing"
	"unsafe"
)

func TestReserve(t *testing.T) {
	for _, n := range []int64{1, 4096, HugePage - 1, 3*HugePage + 5} {
		r, err := Reserve(n)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(r.Bytes)) != n || cap(r.Bytes) != len(r.Bytes) {
			t.Errorf("n=%d: length %d, capacity %d", n, len(r.Bytes), cap(r.Bytes))
		}
		if a := uintptr(unsafe.Pointer(&r.Bytes[0])); a%HugePage != 0 {
			t.Errorf("n=%d: address %#x is not aligned", n, a)
		}
		r.Bytes[0], r.Bytes[n-1] = 1, 2
		if err := r.Free(); err != nil {
			t.Error(err)
		}
		if err := r.Free(); err != nil {
			t.Error("second Free:", err)
		}
	}
}

func TestReserveRefuses(t *testing.T) {
	for _, n := range []int64{0, -1, 1 << 62} {
		if r, err := Reserve(n); err == nil {
			r.Free()
			t.Errorf("reserved %d bytes", n)
		}
	}
}

func TestDiscard(t *testing.T) {
	r, err := Reserve(2 * HugePage)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Free()
	for i := range r.Bytes {
		r.Bytes[i] = 7
	}
	if err := r.Discard(100, HugePage); err != nil {
		t.Fatal(err)
	}
	if r.Bytes[99] != 7 || r.Bytes[100+HugePage] != 7 {
		t.Error("Discard reached beyond its range")
	}
	if runtime.GOOS == "linux" && r.Bytes[HugePage/2] != 0 {
		t.Error("memory was not given back")
	}
	if r.Discard(-1, 2) == nil || r.Discard(0, 2*HugePage+1) == nil {
		t.Error("Discard outside the region succeeded")
	}
}
