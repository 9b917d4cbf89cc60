package cpu

import (
	"fmt"

	"github.com/flashdecode/flashdecode/internal/simd/kvdot"
	"github.com/flashdecode/flashdecode/ops"
)

// RopeAppend implements ops.Backend.
func (b *Backend) RopeAppend(q, k, v ops.Buf, cache ops.KV, layer int, rope *ops.Rope) {
	c := cacheOf(cache)
	t := &b.regions.rope
	t.q, t.k, t.v, t.kv, t.layer, t.rope = q.(*buf), k.(*buf), v.(*buf), c, layer, rope
	if want := c.layout.KVHeads * c.layout.HeadDim; t.k.cols != want || t.v.cols != want || t.q.cols%c.layout.HeadDim != 0 {
		b.fail(fmt.Errorf("cpu: q, k, v of %d, %d, %d columns for a cache of %d heads of %d", t.q.cols, t.k.cols, t.v.cols, c.layout.KVHeads, c.layout.HeadDim))
		return
	}
	if rope != nil {
		t.table = b.table(rope)
	}
	for r, s := range b.seqOf {
		c.touch(b.batch.Table(int(s))[int(b.batch.Positions[r])/c.layout.PageSize])
	}
	for len(t.scratch) < b.pool.Workers() {
		t.scratch = append(t.scratch, new(kvdot.Scratch))
	}
	b.forRows(b.regions.roping, t.q.rows, tileTokens, t.q.rows*t.q.cols)
}

type ropeTask struct {
	b       *Backend
	q, k, v *buf
	kv      *kv
	layer   int
	rope    *ops.Rope
	table   *ropeTable
	scratch []*kvdot.Scratch
}

func (t *ropeTask) Chunk(worker, i int) {
	lo, hi := t.b.rowRange(i)
	d := t.kv.layout.HeadDim
	for r := lo; r < hi; r++ {
		if t.rope != nil {
			t.rotate(t.q.row(r), r)
			t.rotate(t.k.row(r), r)
		}
		pages, pos := t.kv.pages(t.b.batch, int(t.b.seqOf[r])), int(t.b.batch.Positions[r])
		key, value := t.k.row(r), t.v.row(r)
		for h := range t.kv.layout.KVHeads {
			tile, slot := t.kv.slot(pages, pos, t.layer, h)
			t.kv.kernels.Store(tile, slot, key[h*d:(h+1)*d], value[h*d:(h+1)*d], t.scratch[worker])
		}
	}
}

// rotate turns every head of a row.
func (t *ropeTask) rotate(row []float32, r int) {
	n := len(t.rope.InvFreq)
	cos, sin := t.table.cos[r*n:(r+1)*n], t.table.sin[r*n:(r+1)*n]
	d := t.kv.layout.HeadDim
	for h := 0; h < len(row); h += d {
		if t.rope.Interleaved {
			t.b.vec.RopeInterleaved(row[h:h+2*n], cos, sin)
		} else {
			t.b.vec.RopeHalf(row[h:h+2*n], cos, sin)
		}
	}
}
