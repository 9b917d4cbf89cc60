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
// pages of a sequence are one linear stream per head.
type kv struct {
	layout  ops.KVLayout
	kernels *kvdot.Kernels
	region  *mem.Region

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
	if l.Layers < 1 || l.KVHeads < 1 || l.Pages < 1 || l.PageSize < 1 {
		return nil, fmt.Errorf("cpu: cache of %d layers, %d heads, %d pages of %d tokens", l.Layers, l.KVHeads, l.Pages, l.PageSize)
	}
	tile, err := kvdot.NewLayout(l.Type, l.HeadDim)
	if err != nil {
		return nil, fmt.Errorf("cpu: cache: %w", err)
	}
	c := &kv{layout: l, kernels: kvdot.New(b.level, tile), tileBytes: tile.TileBytes}
	c.pageTiles = (l.PageSize + tileTokens - 1) / tileTokens
	page := l.Layers * l.KVHeads * c.pageTiles * c.tileBytes
	for 1<<c.extShift < min(maxExtentPages, l.Pages) && page<<(c.extShift+1) <= extentBytes {
		c.extShift++
	}
	c.runBytes = c.pageTiles * c.tileBytes << c.extShift
	c.extBytes = page << c.extShift
	extents := (l.Pages-1)>>c.extShift + 1
	if c.region, err = mem.Reserve(int64(extents) * int64(c.extBytes)); err != nil {
		return nil, fmt.Errorf("cpu: cache of %d pages of %d bytes: %w", l.Pages, page, err)
	}
	c.written, c.live = make([]bool, l.Pages), make([]int32, extents)
	b.kvs = append(b.kvs, c)
	return c, nil
}

func (c *kv) Layout() ops.KVLayout { return c.layout }

func (c *kv) PageBytes() int64 { return int64(c.extBytes >> c.extShift) }

// base is the address all offsets are relative to.
func (c *kv) base() unsafe.Pointer { return unsafe.Pointer(&c.region.Bytes[0]) }

// offset is where the first tile of a page's head lies.
func (c *kv) offset(page int32, layer, head int) int64 {
	ext, in := int(page)>>c.extShift, int(page)&(1<<c.extShift-1)
	run := layer*c.layout.KVHeads + head
	return int64(ext)*int64(c.extBytes) + int64(run)*int64(c.runBytes) + int64(in*c.pageTiles*c.tileBytes)
}

// slot is where token pos of a sequence lies: a tile, and the place in it.
func (c *kv) slot(table []int32, pos, layer, head int) (tile unsafe.Pointer, slot int) {
	in := pos % c.layout.PageSize
	off := c.offset(table[pos/c.layout.PageSize], layer, head) + int64(in/tileTokens*c.tileBytes)
	return unsafe.Add(c.base(), off), in % tileTokens
}

// touch notes that a page is about to be written.
func (c *kv) touch(page int32) {
	if !c.written[page] {
		c.written[page] = true
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
	n := c.pageTiles * c.tileBytes
	for l := range c.layout.Layers {
		for h := range c.layout.KVHeads {
			d, s := c.offset(dst, l, h), c.offset(src, l, h)
			copy(c.region.Bytes[d:d+int64(n)], c.region.Bytes[s:s+int64(n)])
		}
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
		ext := int(p) >> c.extShift
		if c.live[ext]--; c.live[ext] == 0 {
			if err := c.region.Discard(ext*c.extBytes, c.extBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *kv) Close() error { return c.region.Free() }
