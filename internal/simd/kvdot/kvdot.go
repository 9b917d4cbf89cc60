package kvdot

import (
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/simd/vec"
)

// Kernels is the leaves of one layout at one instruction level. It holds no state: any number of
// goroutines may use it, each with its own Scratch.
type Kernels struct {
	layout Layout
	level  simd.Level
	vec    *vec.Kernels
	body   body
	ahead  int // prefetch distance in tiles
}

// New returns the leaves for tiles of layout l. It panics if this machine or build cannot run level: ask
// simd.Detect.
func New(level simd.Level, l Layout) *Kernels {
	if level > simd.Detect() {
		panic(fmt.Sprintf("kvdot: this machine or build has no %v instructions", level))
	}
	return &Kernels{layout: l, level: level, vec: vec.New(level), body: bodyOf(level, l), ahead: aheadOf(l)}
}

// aheadOf returns the prefetch distance in tiles: as many whole stripes as hold 16 KiB, which is some 300 ns of
// reading, between one and four.
func aheadOf(l Layout) int {
	const distance = 16 << 10
	stripe := stripeTiles * l.TileBytes
	return stripeTiles * min(max((distance+stripe-1)/stripe, 1), 4)
}

// Layout is the layout New was given.
func (k *Kernels) Layout() Layout { return k.layout }

// Level is the instruction level New was asked for.
func (k *Kernels) Level() simd.Level { return k.level }

// Item is query rows of one KV head and the tiles to fold into their states.
type Item struct {
	Rows int
	Q    []float32 // [Rows][HeadDim], multiplied by Scale: ⟨q, k⟩ is the natural logit

	Base unsafe.Pointer // tile i starts Off[i] bytes after Base
	Off  []int64        // in token order; the item's tokens are numbered 0..16·len(Off)
	Next []int64        // tiles the worker will fold next, if known: only prefetched

	// Lo and Hi are the tokens [Lo, Hi) each row may see, [Rows]; an empty range leaves the state as it is.
	// What lies in slots that no row sees is never used: it may be NaN. A token that only some rows see is
	// used by those alone, but a NaN or an infinity in its value may reach the others.
	Lo, Hi []int32

	Softcap float32 // logits become Softcap·tanh(logit/Softcap); 0 is none

	// The states, in and out: [Rows], [Rows] and [Rows][HeadDim]. The empty state is -Inf, 0, 0.
	M, L, O []float32
}

func (it *Item) check(l Layout) {
	n, d := it.Rows, l.HeadDim
	if n < 0 || len(it.Q) < n*d || len(it.O) < n*d || len(it.M) < n || len(it.L) < n || len(it.Lo) < n || len(it.Hi) < n {
		panic(fmt.Sprintf("kvdot: item of %d rows of dimension %d with Q %d, M %d, L %d, O %d, Lo %d, Hi %d",
			n, d, len(it.Q), len(it.M), len(it.L), len(it.O), len(it.Lo), len(it.Hi)))
	}
	for r := range n {
		if it.Lo[r] < it.Hi[r] && (it.Lo[r] < 0 || int(it.Hi[r]) > TileTokens*len(it.Off)) {
			panic(fmt.Sprintf("kvdot: row %d sees tokens %d to %d of %d tiles", r, it.Lo[r], it.Hi[r], len(it.Off)))
		}
	}
}
