package kvdot

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// BenchmarkFoldDRAM folds a cache far larger than the processor's, on one and on two workers, each item of
// 1024 tokens, alternating with a pure read of as many bytes in the same order in another part. It reports
// the fastest tenth of both, which other load on the machine disturbs least.
func BenchmarkFoldDRAM(b *testing.B) {
	mem := hugeMemory(b, 512<<20)
	for _, s := range []struct{ rows, dim int }{{3, 64}, {4, 128}, {1, 64}} {
		for _, typ := range []quant.Type{quant.F16, quant.Q8_0} {
			for _, shuffled := range []bool{false, true} {
				for workers := 1; workers <= 2; workers++ {
					b.Run(fmt.Sprintf("rows=%d/dim=%d/%v/shuffled=%v/workers=%d", s.rows, s.dim, typ, shuffled, workers), func(b *testing.B) {
						benchDRAM(b, mem, typ, s.rows, s.dim, shuffled, workers)
					})
				}
			}
		}
	}
}

func hugeMemory(b *testing.B, n int) []byte {
	mem, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Skip("no memory: ", err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(mem) })
	_ = syscall.Madvise(mem, 14) // MADV_HUGEPAGE, a request
	for i := range mem {
		mem[i] = byte(i*7) & 0x37 // small numbers in every type
	}
	return mem
}

func benchDRAM(b *testing.B, mem []byte, typ quant.Type, rows, dim int, shuffled bool, workers int) {
	l, err := NewLayout(typ, dim)
	if err != nil {
		b.Fatal(err)
	}
	const itemTiles = 64
	off := make([]int64, len(mem)/l.TileBytes/itemTiles*itemTiles)
	for i := range off {
		off[i] = int64(i * l.TileBytes)
	}
	if shuffled {
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(off), func(i, j int) { off[i], off[j] = off[j], off[i] })
	}
	k := New(simd.Detect(), l)
	c := &cache{l: l, base: unsafe.Pointer(&mem[0]), tokens: itemTiles * TileTokens}
	items, scratch := make([]*Item, workers), make([]*Scratch, workers)
	for w := range workers {
		items[w], scratch[w] = c.item(rows, 0.1, 1), new(Scratch)
	}
	// region runs f on the items [from, from+n) and returns the time.
	region := func(from, n int, f func(w int, off []int64)) time.Duration {
		var next atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for w := range workers {
			wg.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					at := (from + i) * itemTiles
					f(w, off[at:min(at+itemTiles+8, len(off))])
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	const regions = 64
	n := len(off) / itemTiles / regions
	var folds, reads []float64
	for i := 0; b.Loop(); i++ {
		fold := region(i%regions*n, n, func(w int, off []int64) {
			items[w].Off, items[w].Next = off[:itemTiles], off[itemTiles:]
			k.Fold(items[w], scratch[w])
		})
		read := region((i+regions/2)%regions*n, n, func(_ int, off []int64) { k.Read(c.base, off[:itemTiles]) })
		folds, reads = append(folds, fold.Seconds()), append(reads, read.Seconds())
	}
	// The fast tenth: what the machine does when nothing else runs on it.
	slices.Sort(folds)
	slices.Sort(reads)
	fold, read := folds[len(folds)/10], reads[len(reads)/10]
	gb := float64(n*itemTiles*l.TileBytes) / 1e9
	b.ReportMetric(100*read/fold, "%read")
	b.ReportMetric(gb/fold, "GB/s")
	b.ReportMetric(gb/read, "read-GB/s")
	b.ReportMetric(float64(n*itemTiles*TileTokens)/fold/1e6, "Mtokens/s")
}
