package qgemm

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// args is what a kernel reads: the products of some strips with one tile of activations. The offsets are
// known to the generator (_asm/args.go); a test compares them.
type args struct {
	w          unsafe.Pointer
	x          unsafe.Pointer          // the tile's first block
	strips     int64                   // y advances by 16 floats a strip
	units      int64                   // of each strip
	stripBytes int64                   // from one strip to the next
	step       int64                   // bytes from one block of a row to its next: 64·height
	keep       int64                   // 0: start from zero, 0xffff: from what y holds
	y          [maxTile]unsafe.Pointer // one per row of the tile
}

// kernel is a body for one type and tile height. It takes an *args: avo knows no types of ours.
type kernel func(a *byte)

// Kernels is the set of bodies for one level. Safe for concurrent use.
type Kernels struct {
	level simd.Level
	tiles [len(layouts)][maxTile]kernel // by height - 1; see product.run for nil
	packs [len(layouts)]kernel          // takes *packArgs; nil: packUnits
	// quantize stores whole blocks of x in every step-th block of dst.
	quantize func(dst []actBlock, step int, x []float32)
	// read loads whole lines and returns something that depends on all of them.
	read func(b []byte) uint64

	mu   sync.Mutex
	free []*scratch
}

// New returns the kernels of a level. The caller answers for the machine having it (simd.Detect).
func New(level simd.Level) *Kernels {
	k := &Kernels{level: level, quantize: quantizeGeneric, read: readGeneric}
	k.install()
	return k
}

// Read loads b, but for a rest of less than 512 bytes, as fast as the level allows: the bandwidth that
// products are measured against.
func (k *Kernels) Read(b []byte) uint64 {
	if b = b[:len(b)&^511]; len(b) == 0 {
		return 0
	}
	return k.read(b)
}

func readGeneric(b []byte) (or uint64) {
	for len(b) >= 8 {
		or |= *(*uint64)(unsafe.Pointer(&b[0]))
		b = b[8:]
	}
	return or
}

// scratch is what a product needs besides its operands. Kept by the Kernels, not by a sync.Pool, which a
// garbage collection would empty: steps must not allocate.
type scratch struct {
	args
	packArgs
	tail [maxTile][lanes]float32 // y of a partial strip
	pack [packBytes]byte         // units of a matrix in file order
}

func (k *Kernels) take() *scratch {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.free); n > 0 {
		s := k.free[n-1]
		k.free = k.free[:n-1]
		return s
	}
	return new(scratch)
}

func (k *Kernels) give(s *scratch) {
	s.args, s.packArgs = args{}, packArgs{} // it would keep the operands alive
	k.mu.Lock()
	k.free = append(k.free, s)
	k.mu.Unlock()
}

const (
	// chunkCols bounds the columns of one pass over many tiles, so that a tile's activations (64 KB) and a
	// strip's weights (68 KB of Q8_0) lie in the second level cache together.
	chunkCols = 4096
	// groupBytes is how much of it the tiles that share a strip may take.
	groupBytes = 512 << 10
	// callBytes bounds the weights one call reads: assembly is not preemptible, and 1 MB takes some 70 µs
	// from memory.
	callBytes = 1 << 20
	// packBytes is the room for units of a matrix in file order.
	packBytes = 96 << 10
	// packHot is the part of it used for a single tile: packed units are then read back once, from the first
	// level cache. Short turns keep memory busy, as only packing prefetches: one core reached 81 % of a pure
	// read with Q8_0 and 78 % with Q4_K; 73 and 59 at 12 KB, 62 and 45 at 28 KB, 46 and 40 at 1.5 KB.
	packHot = 6 << 10
)

// Mul sets y[m·ldy + n] for all M rows of a and the rows n of strips [strip0, strip1) of w. SetActs must
// have been called for w's type or another of its class. Callers may split the strips over workers.
func (k *Kernels) Mul(w *Matrix, a *Acts, strip0, strip1 int, y []float32, ldy int) {
	if a.M == 0 || strip0 >= strip1 {
		return
	}
	p := k.product(w, a, strip0, strip1, y, ldy)
	s := k.take()
	p.s = s
	if w.Packed {
		p.packed(strip0, strip1)
	} else {
		p.file(strip0, strip1)
	}
	k.give(s)
	runtime.KeepAlive(w)
	runtime.KeepAlive(a)
}

// product is one Mul under way.
type product struct {
	k      *Kernels
	s      *scratch
	w      *Matrix
	a      *Acts
	l      layout
	units  int // of a row
	blocks int // of a row of activations
	x      unsafe.Pointer
	y      []float32
	ldy    int
}

// product checks the operands: behind it only pointers are used.
func (k *Kernels) product(w *Matrix, a *Acts, strip0, strip1 int, y []float32, ldy int) product {
	l := layoutOf(w.Type)
	if w.Cols != a.K || w.Cols <= 0 {
		panic(fmt.Sprintf("qgemm: %d columns of weights, %d of activations", w.Cols, a.K))
	}
	need := PackedBytes(w.Type, w.Rows, w.Cols)
	if !w.Packed {
		need = w.Rows * w.Type.RowBytes(w.Cols)
	}
	if len(w.Data) < need {
		panic(fmt.Sprintf("qgemm: %d x %d %v matrix holds %d bytes, not %d", w.Rows, w.Cols, w.Type, len(w.Data), need))
	}
	if strip0 < 0 || strip1 > w.Strips() {
		panic(fmt.Sprintf("qgemm: strips %d to %d of %d", strip0, strip1, w.Strips()))
	}
	if ldy < w.Rows || len(y) < (a.M-1)*ldy+min(strip1*lanes, w.Rows) {
		panic(fmt.Sprintf("qgemm: y of %d, %d a row, for %d x %d", len(y), ldy, a.M, w.Rows))
	}
	p := product{k: k, w: w, a: a, l: l, units: l.units(w.Cols), y: y, ldy: ldy}
	if l.float {
		p.blocks, p.x = floatBlocks(a.K), unsafe.Pointer(unsafe.SliceData(a.floats))
	} else {
		p.blocks, p.x = quantBlocks(a.K), unsafe.Pointer(unsafe.SliceData(a.quants))
	}
	return p
}

// packed multiplies strips that lie in w as the kernels want them. One tile: all strips in few calls. More:
// a group of tiles stays in the second level cache while strips pass by.
func (p *product) packed(strip0, strip1 int) {
	stripBytes := p.units * p.l.bytes
	if p.a.M <= maxTile {
		step := max(1, callBytes/max(1, stripBytes))
		for s := strip0; s < strip1; s += step {
			p.tile(p.w.Data[s*stripBytes:], stripBytes, s, min(s+step, strip1), 0, 0, p.units)
		}
		return
	}
	p.grouped(func(group, end, u0, u1 int) {
		for s := strip0; s < strip1; s++ {
			for t := group; t < end; t += maxTile {
				p.tile(p.w.Data[s*stripBytes+u0*p.l.bytes:], stripBytes, s, s+1, t, u0, u1)
			}
		}
	})
}

// file multiplies strips of a matrix in file order: it packs units into scratch memory, which stays in
// the cache, and goes on as if the matrix were packed.
func (p *product) file(strip0, strip1 int) {
	pass := func(s, group, end, u0, u1 int) {
		p.k.packStrip(p.s, p.s.pack[:], p.w.Data, p.w.Type, p.w.Rows, p.w.Cols, s, u0, u1)
		for t := group; t < end; t += maxTile {
			p.tile(p.s.pack[:], 0, s, s+1, t, u0, u1)
		}
	}
	if p.a.M <= maxTile {
		step := max(1, packHot/p.l.bytes)
		for s := strip0; s < strip1; s++ {
			for u := 0; u < p.units; u += step {
				pass(s, 0, p.a.M, u, min(u+step, p.units))
			}
		}
		return
	}
	p.grouped(func(group, end, u0, u1 int) {
		for s := strip0; s < strip1; s++ {
			for u := u0; u < u1; u += packBytes / p.l.bytes {
				pass(s, group, end, u, min(u+packBytes/p.l.bytes, u1))
			}
		}
	})
}

// grouped calls f for every chunk of units [u0, u1) and group of tiles, activation rows [group, end).
func (p *product) grouped(f func(group, end, u0, u1 int)) {
	units := chunkCols / p.l.cols
	tileBytes := min(units, p.units) * p.l.blocks() * maxTile * 64
	rows := max(1, groupBytes/max(1, tileBytes)) * maxTile
	for u := 0; u < p.units; u += units {
		for m := 0; m < p.a.M; m += rows {
			f(m, min(m+rows, p.a.M), u, min(u+units, p.units))
		}
	}
}

// tile multiplies strips [strip0, strip1), whose units [u0, u1) start at data, by the tile at row m.
func (p *product) tile(data []byte, stripBytes, strip0, strip1, m, u0, u1 int) {
	height := min(p.a.M-m, maxTile)
	g := &p.s.args
	g.x = unsafe.Add(p.x, (m*p.blocks+u0*p.l.blocks()*height)*64)
	g.units, g.stripBytes, g.step = int64(u1-u0), int64(stripBytes), int64(height*64)
	g.keep = 0
	if u0 > 0 {
		g.keep = 0xffff
	}
	whole := min(strip1, p.w.Rows/lanes) - strip0
	if whole > 0 {
		g.w = unsafe.Pointer(unsafe.SliceData(data))
		for r := range height {
			g.y[r] = unsafe.Pointer(&p.y[(m+r)*p.ldy+strip0*lanes])
		}
		p.run(height, whole)
	}
	if strip0+whole < strip1 {
		g.w = unsafe.Pointer(&data[whole*stripBytes])
		p.runTail(m, height, strip1-1)
	}
}

func (p *product) run(height, strips int) {
	g, bodies := &p.s.args, &p.k.tiles[p.w.Type]
	g.strips = int64(strips)
	body := bodies[height-1]
	switch {
	case body != nil:
		body((*byte)(unsafe.Pointer(g)))
	case bodies[1] == nil:
		tileGeneric(p.w.Type, g)
	default: // two rows at a time
		y, x := g.y, g.x
		for r := 0; r < height; r += 2 {
			n := min(2, height-r)
			copy(g.y[:n], y[r:])
			g.x = unsafe.Add(x, r*64)
			bodies[n-1]((*byte)(unsafe.Pointer(g)))
		}
		g.y, g.x = y, x
	}
}

// runTail is run for a strip of less than 16 rows: kernels write 16, so y is scratch memory.
func (p *product) runTail(m, height, strip int) {
	n := p.w.Rows - strip*lanes
	for r := range height {
		p.s.args.y[r] = unsafe.Pointer(&p.s.tail[r])
		if p.s.args.keep != 0 {
			copy(p.s.tail[r][:n], p.y[(m+r)*p.ldy+strip*lanes:])
		}
	}
	p.run(height, 1)
	for r := range height {
		copy(p.y[(m+r)*p.ldy+strip*lanes:][:n], p.s.tail[r][:])
	}
}

func half(b []byte) float32     { return quant.F16ToF32(get16(b)) }
func fromBits(b uint32) float32 { return math.Float32frombits(b) }
