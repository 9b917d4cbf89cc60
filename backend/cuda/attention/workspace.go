package attention

import "github.com/flashdecode/flashdecode/backend/cuda/internal/abi"

// region is a piece of the workspace.
type region struct{ off, bytes int64 }

// at is the address of the region in a workspace at base, 0 if it is empty.
func (r region) at(base Ptr) uint64 {
	if r.bytes == 0 {
		return 0
	}
	return uint64(base) + uint64(r.off)
}

// layout is where things lie in the workspace. One function makes it, so that the number of bytes and the offsets
// can't disagree.
type layout struct {
	mailbox  region // all bits one between launches
	counters region // zero between launches
	stateO   region // float32 [slot][HeadDim]
	stateML  region // float32 [slot][2]
	items    region // plan.Item
	merges   region // plan.Merge
	header   region // abi.PlanHeader
	scratch  region // of the planner
	scores   region // of the naive kernels

	kvLen, qIndptr, tableIndptr region // checked copies

	bytes int64
}

const regionAlign = 256

func (l *layout) add(bytes int64) region {
	bytes = max(bytes, 0)
	r := region{l.bytes, bytes}
	l.bytes += (bytes + regionAlign - 1) &^ (regionAlign - 1)
	return r
}

// addChecked adds the copies that checked mode makes.
func (l *layout) addChecked(c *Config) {
	if !c.Checked {
		return
	}
	l.kvLen = l.add(4 * int64(c.Seqs))
	l.qIndptr = l.add(4 * int64(c.Seqs+1))
	l.tableIndptr = l.add(4 * int64(c.Seqs+1))
}

// bounds of what a Plan may have to hold at a time, over all launches that its capacities allow.
type bounds struct {
	pairs    int64 // units × KV heads
	rowTiles int64 // of a sequence, a power of two
	slots    int64 // States
	items    int64
	merges   int64
	chunkCTA int64 // CTAs of a grid of chunks that States have room for
}

// wavesOfChunks bounds a grid of chunks: more of them would each have little to do, and their States would take much
// memory. What is longer is cut into longer chunks, or into items.
const wavesOfChunks = 24

// size computes the bounds and the layout. A mailbox box is sized for the most CTAs that pairs may have, for each number
// of pairs: they trade off, since all CTAs are resident at once.
func (p *Plan) size() {
	c := &p.cfg
	if p.fill != nil { // no States: only what checked mode copies
		p.layout.addChecked(c)
		return
	}
	if p.latent != nil {
		p.sizeLatent()
		return
	}
	tiles := int64((c.rows() + p.rowTile - 1) / p.rowTile)
	b := bounds{rowTiles: 1 << abi.CeilLog2(int(tiles))}
	b.pairs = int64(c.Seqs) * b.rowTiles * int64(c.KVHeads)
	workers := int64(p.ks.ctx.Device().SMs)
	stateRows := int64(min(c.rows(), p.rowTile))
	switch {
	case p.fixedTiles() > 0:
		b.chunkCTA = b.pairs * int64((c.tiles()+p.fixedTiles()-1)/p.fixedTiles())
	default:
		b.chunkCTA = max(wavesOfChunks*workers, 2*b.pairs)
	}
	b.slots = b.chunkCTA * stateRows
	if p.items != nil {
		b.items, b.merges = p.itemBounds(workers)
		b.slots = max(b.slots, b.items*int64(c.rows()))
	}
	p.bounds = b

	var l layout
	l.mailbox = l.add(p.mailboxBytes(b.pairs))
	l.counters = l.add(4 * max(b.pairs, b.merges*tiles))
	if c.Variant != Naive {
		l.stateO = l.add(b.slots * int64(c.HeadDim) * 4)
		l.stateML = l.add(b.slots * 8)
	}
	l.items, l.merges = l.add(b.items*32), l.add(b.merges*24)
	if b.items > 0 {
		l.header = l.add(32)
		l.scratch = l.add(p.plannerBytes())
	}
	l.scores = l.add(p.naiveBytes())
	l.addChecked(c)
	p.layout = l
	if p.items != nil {
		p.sizeItems()
	}
}

// mailboxBytes is the most that the boxes of any resident launch take.
func (p *Plan) mailboxBytes(pairs int64) (most int64) {
	rows := min(p.cfg.rows(), p.rowTile)
	for i := range p.families {
		f := &p.families[i]
		for _, d := range f.kernels[kindMailbox] {
			if d == nil {
				continue
			}
			resident := f.limits.Launch.Residency(d.warps).Mailbox
			for n := 2; n <= resident; n++ {
				slice := abi.SliceLog2(rows, p.cfg.dim(), n)
				most = max(most, min(pairs, int64(resident/n))*abi.BoxBytes(rows, p.cfg.dim(), n, slice))
			}
		}
	}
	return most
}

// itemBounds is the most items and merges that the planner makes (package plan). Auto cuts at a budget that is at
// least total/(MaxWaves·workers), and each unit adds at most one piece more than its share; with fewer than two pieces
// a unit there is nothing to cut.
func (p *Plan) itemBounds(workers int64) (items, merges int64) {
	c := &p.cfg
	heads, seqs := int64(c.KVHeads), int64(c.Seqs)
	merges = seqs * heads
	switch n := int64(c.Policy.N); {
	case p.fixedTiles() > 0:
		chunk := int64(p.fixedTiles() * abi.TileTokens)
		items = heads * (c.tokens()/chunk + 2*seqs) // a window may begin and end in the middle of chunks
	case n > 0:
		items = heads * seqs * n
	default:
		items = max(heads*(seqs+1)+int64(p.ks.limits.MaxWaves)*workers+heads, 2*heads*seqs)
	}
	return items, merges
}
