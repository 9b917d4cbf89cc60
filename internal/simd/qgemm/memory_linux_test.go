package qgemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// BenchmarkMemory multiplies matrices that together exceed the caches by one row of activations, each
// product alternating with a pure read of as many other bytes by as many threads. It reports the rate of
// the products in GB/s of file bytes, of the reads, and the ratio, each from the best fifth of the times.
//
//	go test -run XXX -bench Memory/total=1024/threads=2 -benchtime 1x ./internal/simd/qgemm
func BenchmarkMemory(b *testing.B) {
	shapes := []struct{ mb, rows, cols int }{{98, 1536, 576}, {98, 576, 1536}, {1024, 4096, 4096}}
	types := []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q4_K, quant.Q6_K, quant.F16, quant.BF16, quant.F32}
	for _, s := range shapes {
		for _, threads := range []int{1, 2} {
			for _, level := range simd.Levels()[1:] {
				for _, typ := range types {
					for _, packed := range []bool{true, false} {
						if s.cols%typ.BlockSize() == 0 {
							b.Run(fmt.Sprintf("total=%d/threads=%d/level=%v/type=%v/packed=%v/k=%d", s.mb, threads, level, typ, packed, s.cols),
								func(b *testing.B) { benchMemory(b, New(level), typ, packed, s.mb, s.rows, s.cols, threads) })
						}
					}
				}
			}
		}
	}
}

func benchMemory(b *testing.B, k *Kernels, typ quant.Type, packed bool, mb, rows, cols, threads int) {
	src := randomWeights(rand.New(rand.NewPCG(1, 2)), typ, rows, cols)
	one := &Matrix{Type: typ, Rows: rows, Cols: cols, Data: src}
	if packed {
		one = pack(k, typ, src, rows, cols)
	}
	size := len(one.Data)
	n := mb << 20 / size
	mem, err := syscall.Mmap(-1, 0, n*size+2<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Skip(err)
	}
	defer syscall.Munmap(mem)
	_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE)
	for i := range n {
		copy(mem[i*size:], one.Data)
	}
	var a Acts
	a.Reset(1, cols)
	k.SetActs(&a, typ, randomActs(rand.New(rand.NewPCG(3, 4)), cols), cols, 0, 1)
	y := make([]float32, rows)
	each := func(f func(part int)) time.Duration { // like a parallel region, without its start in the time
		var ready, done sync.WaitGroup
		var start atomic.Bool // spun on: waking a goroutine would be in the time
		ready.Add(threads - 1)
		for p := 1; p < threads; p++ {
			done.Go(func() {
				ready.Done()
				for !start.Load() {
				}
				f(p)
			})
		}
		ready.Wait()
		t := time.Now()
		start.Store(true)
		f(0)
		done.Wait()
		return time.Since(t)
	}
	product := func(i int) time.Duration {
		w := *one
		w.Data = mem[i*size:][:size]
		return each(func(p int) { k.Mul(&w, &a, p*w.Strips()/threads, (p+1)*w.Strips()/threads, y, rows) })
	}
	read := func(i int) time.Duration {
		part := size / threads &^ 511
		return each(func(p int) { k.Read(mem[i*size+p*part:][:part]) })
	}
	var muls, reads []float64
	for b.Loop() {
		for pass := range 3 {
			for i := range n {
				m, r := product(i), read((i+n/2)%n)
				if pass > 0 { // the first one warms up
					muls, reads = append(muls, m.Seconds()), append(reads, r.Seconds())
				}
			}
		}
	}
	mul, pure := fifth(muls), fifth(reads)
	b.ReportMetric(float64(rows*typ.RowBytes(cols))/1e9/mul, "GB/s")
	b.ReportMetric(float64(size)/1e9/pure, "readGB/s")
	b.ReportMetric(100*pure/mul, "%read")
}

// fifth returns what a fifth of x is below: other programs on the machine make times longer, never shorter.
func fifth(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/5]
}
