package cpu

import (
	"fmt"
	"unsafe"

	"github.com/flashdecode/flashdecode/internal/mem"
	"github.com/flashdecode/flashdecode/internal/simd/kvdot"
	"github.com/flashdecode/flashdecode/ops"
)

// tileTokens is the number of tokens of a kvdot tile.
const tileTokens = kvdot.TileTokens

// extentBytes bounds an extent: small enough that a short sequence, which touches all of its first extent once huge
// pages back it, takes little memory; large enough that one head's tiles form runs of 64 KiB and more.
const extentBytes = 24 << 20

// maxExtentPages bounds an extent of a small model.
const maxExtentPages = 128

// kv keeps pages in extents of consecutive page numbers, [extent][layer][KVHead][page][tile], so that consecutive
// pages of a sequence are one linear stream per head. In flat mode a page is a mapping of its own, [layer][KVHead][tile],
// and a sequence finds its pages one after the other in its address range.
type kv struct {
	layout  ops.KVLayout
	kernels *kvdot.Kernels
	region  *mem.Region // nil in flat mode
	flat    *flatMemory // nil otherwise

	tileBytes int // K and V of tileTokens tokens of one head
	pageTiles int // tiles of one head in a page
	runBytes  int // one head's part of an extent
	extShift  int // an extent is 1<<extShift pages
	extBytes  int
	written   []bool  // [Pages] pages written since they were last released
	live      []int32 // [extents] how many of them
}

// NewKV implements ops.Backend.
func (b *Backend) NewKV(l ops.KVLayout) (ops.KV, error) {
	if l.Layers < 1 || l.KVHeads < 1 || l.Pages < 1 || l.PageSize < 1 || l.Ranges < 0 || l.Ranges > 0 && l.RangePages < 1 {
		return nil, fmt.Errorf("cpu: cache of %d layers, %d heads, %d pages of %d tokens, %d ranges of %d pages",
			l.Layers, l.KVHeads, l.Pages, l.PageSize, l.Ranges, l.RangePages)
	}
	tile, err := kvdot.NewLayout(l.Type, l.HeadDim)
	if err != nil {
		return nil, fmt.Errorf("cpu: cache: %w", err)
	}
	c := &kv{layout: l, kernels: kvdot.New(b.level, tile), tileBytes: tile.TileBytes, written: make([]bool, l.Pages)}
	c.pageTiles = (l.PageSize + tileTokens - 1) / tileTokens
	page := l.Layers * l.KVHeads * c.pageTiles * c.tileBytes
	if l.Ranges > 0 {
		if c.flat, err = newFlatMemory(l, page); err != nil {
			return nil, fmt.Errorf("cpu: flat cache of %d pages of %d bytes: %w", l.Pages, page, err)
		}
		b.kvs = append(b.kvs, c)
		return &flatKV{c}, nil
	}
	for 1<<c.extShift < min(maxExtentPages, l.Pages) && page<<(c.extShift+1) <= extentBytes {
		c.extShift++
	}
	c.runBytes = c.pageTiles * c.tileBytes << c.extShift
	c.extBytes = page << c.extShift
	extents := (l.Pages-1)>>c.extShift + 1
	if c.region, err = mem.Reserve(int64(extents) * int64(c.extBytes)); err != nil {
		return nil, fmt.Errorf("cpu: cache of %d pages of %d bytes: %w", l.Pages, page, err)
	}
	c.live = make([]int32, extents)
	b.kvs = append(b.kvs, c)
	return c, nil
}

// cacheOf returns the cache behind either form of it.
func cacheOf(c ops.KV) *kv {
	if f, ok := c.(*flatKV); ok {
		return f.kv
	}
	return c.(*kv)
}

func (c *kv) Layout() ops.KVLayout { return c.layout }

func (c *kv) PageBytes() int64 {
	if c.flat != nil {
		return int64(c.flat.arena.PageBytes())
	}
	return int64(c.extBytes >> c.extShift)
}

// base is the address all offsets are relative to.
func (c *kv) base() unsafe.Pointer {
	if c.flat != nil {
		return unsafe.Pointer(&c.flat.arena.Bytes()[0])
	}
	return unsafe.Pointer(&c.region.Bytes[0])
}

// seqPages is where one sequence's pages are.
type seqPages struct {
	table []int32
	start int64 // flat mode: of the sequence's range, relative to base
}

// pages returns where sequence s of a batch has its pages.
func (c *kv) pages(b *ops.Batch, s int) seqPages {
	p := seqPages{table: b.Table(s)}
	if c.flat != nil {
		p.start = c.flat.starts[b.Ranges[s]]
	}
	return p
}

// offset is where the first tile of a head lies in the i-th page of a sequence.
func (c *kv) offset(p seqPages, i, layer, head int) int64 {
	run := layer*c.layout.KVHeads + head
	if c.flat != nil {
		return p.start + int64(i)*int64(c.flat.arena.PageBytes()) + int64(run*c.pageTiles*c.tileBytes)
	}
	return c.pageOffset(p.table[i], run)
}

func (c *kv) pageOffset(page int32, run int) int64 {
	ext, in := int(page)>>c.extShift, int(page)&(1<<c.extShift-1)
	return int64(ext)*int64(c.extBytes) + int64(run)*int64(c.runBytes) + int64(in*c.pageTiles*c.tileBytes)
}

// slot is where token pos of a sequence lies: a tile, and the place in it.
func (c *kv) slot(p seqPages, pos, layer, head int) (tile unsafe.Pointer, slot int) {
	in := pos % c.layout.PageSize
	off := c.offset(p, pos/c.layout.PageSize, layer, head) + int64(in/tileTokens*c.tileBytes)
	return unsafe.Add(c.base(), off), in % tileTokens
}

// touch notes that a page is about to be written.
func (c *kv) touch(page int32) {
	if c.written[page] {
		return
	}
	c.written[page] = true
	if c.flat == nil {
		c.live[int(page)>>c.extShift]++
	}
}

// CopyPage implements ops.KV.
func (c *kv) CopyPage(dst, src int32) error {
	for _, p := range []int32{dst, src} {
		if p < 0 || int(p) >= c.layout.Pages {
			return fmt.Errorf("cpu: copy of page %d to %d in a cache of %d", src, dst, c.layout.Pages)
		}
	}
	c.touch(dst)
	if c.flat != nil {
		c.flat.copyPage(dst, src)
		return nil
	}
	n := int64(c.pageTiles * c.tileBytes)
	for run := range c.layout.Layers * c.layout.KVHeads {
		d, s := c.pageOffset(dst, run), c.pageOffset(src, run)
		copy(c.region.Bytes[d:d+n], c.region.Bytes[s:s+n])
	}
	return nil
}

// Release implements ops.KV. Memory goes back when the last written page of an extent is released.
func (c *kv) Release(pages []int32) error {
	for _, p := range pages {
		if p < 0 || int(p) >= c.layout.Pages {
			return fmt.Errorf("cpu: release of page %d in a cache of %d", p, c.layout.Pages)
		}
		if !c.written[p] {
			continue
		}
		c.written[p] = false
		if c.flat != nil {
			if err := c.flat.arena.Discard(p, 1); err != nil {
				return err
			}
			continue
		}
		ext := int(p) >> c.extShift
		if c.live[ext]--; c.live[ext] == 0 {
			if err := c.region.Discard(ext*c.extBytes, c.extBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *kv) Close() error {
	if c.flat != nil {
		return c.flat.arena.Close()
	}
	return c.region.Free()
}
