package bench

import (
	"fmt"
	"time"

	"github.com/flashdecode/flashdecode/internal/mem"
	"github.com/flashdecode/flashdecode/internal/pool"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/simd/qgemm"
)

// Reader reads memory and does nothing with it: the bandwidth that everything else is measured against.
type Reader struct {
	kernels *qgemm.Kernels
	memory  *mem.Region
	pool    *pool.Pool
	region  *pool.Region
}

// readPiece is what a worker claims at a time: large enough for the hardware's prefetchers, small enough to share.
const readPiece = 1 << 20

// NewReader makes a Reader of that many bytes, all of them written so that they are really there. threads below 1
// counts as 1.
func NewReader(bytes int64, threads int) (*Reader, error) {
	bytes = max((bytes+readPiece-1)/readPiece, 1) * readPiece
	m, err := mem.Reserve(bytes)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	m.Bytes = m.Bytes[:bytes]
	r := &Reader{kernels: qgemm.New(simd.Detect()), memory: m, pool: pool.New(threads)}
	for i := 0; i < len(m.Bytes); i += 4096 { // memory that was never written is one page of zeros
		m.Bytes[i] = 1
	}
	r.region = pool.NewRegion(r)
	return r, nil
}

// Bytes is how much Read reads.
func (r *Reader) Bytes() int64 { return int64(len(r.memory.Bytes)) }

// Chunk implements pool.Task.
func (r *Reader) Chunk(_, i int) { r.kernels.Read(r.memory.Bytes[i*readPiece : (i+1)*readPiece]) }

// Read reads everything once and returns how long it took.
func (r *Reader) Read() (time.Duration, error) {
	r.pool.Begin()
	start := time.Now()
	r.pool.Run(r.region, len(r.memory.Bytes)/readPiece)
	d := time.Since(start)
	if f := r.pool.End(); f != nil {
		return d, f
	}
	return d, nil
}

// Close gives the memory back.
func (r *Reader) Close() error {
	r.pool.Close()
	return r.memory.Free()
}
