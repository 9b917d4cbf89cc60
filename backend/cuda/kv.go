package cuda

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/backend/cuda/kvmem"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/ops"
)

// kv is a cache: one block of pages, or pages mapped into ranges.
type kv struct {
	b         *Backend
	layout    ops.KVLayout
	pageBytes int64
	tensor    int64         // bytes of K, or V, of one layer in a page
	pool      *cuda.Buffer  // nil in flat mode
	flat      *kvmem.Memory // nil otherwise
	appender  *attention.Appender
	bases     attention.Ptr // flat: of the step's ranges
	heads     int           // query heads that appender is for
}

// flatKV is a cache in flat mode.
type flatKV struct{ *kv }

// NewKV makes room for a cache. In flat mode memory is taken as pages are bound, else at once.
func (b *Backend) NewKV(l ops.KVLayout) (ops.KV, error) {
	if l.Layers < 1 || l.KVHeads < 1 || l.HeadDim < 1 || l.Pages < 1 || l.PageSize < 1 || l.Ranges < 0 || l.Ranges > 0 && l.RangePages < 1 {
		return nil, fmt.Errorf("cuda: cache of %+v", l)
	}
	if l.Type != b.opts.Type || l.HeadDim%8 != 0 || l.HeadDim > attention.MaxHeadDim {
		return nil, fmt.Errorf("cuda: cache of %v with heads of %d dimensions: want %v, as activations are, and a multiple of 8 up to %d",
			l.Type, l.HeadDim, b.opts.Type, attention.MaxHeadDim)
	}
	c := &kv{b: b, layout: l, tensor: int64(l.KVHeads) * int64(l.PageSize) * int64(l.HeadDim) * 2}
	c.pageBytes = 2 * c.tensor * int64(l.Layers)
	var err error
	if l.Ranges == 0 {
		if c.pool, err = b.ctx.Alloc(c.pageBytes * int64(l.Pages)); err != nil {
			return nil, fmt.Errorf("cuda: cache of %d pages of %d bytes: %w", l.Pages, c.pageBytes, err)
		}
		b.kvs = append(b.kvs, c)
		return c, nil
	}
	if c.flat, err = kvmem.New(b.ctx, kvmem.Config{PageBytes: c.pageBytes, Pages: l.Pages, Ranges: l.Ranges, RangePages: l.RangePages, Ahead: 1}); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	c.pageBytes = c.flat.PageBytes()
	b.kvs = append(b.kvs, c)
	return &flatKV{c}, nil
}

// cacheOf returns the cache behind either form of it.
func cacheOf(c ops.KV) *kv {
	if f, ok := c.(*flatKV); ok {
		return f.kv
	}
	return c.(*kv)
}

func (c *kv) Layout() ops.KVLayout { return c.layout }
func (c *kv) PageBytes() int64     { return c.pageBytes }

// layer is where a layer of the cache is.
func (c *kv) layer(i int) attention.Layer {
	row := c.layout.HeadDim * 2
	y := attention.Layer{K: attention.Ptr(int64(i) * 2 * c.tensor), PageStride: c.pageBytes, TokenStride: row, HeadStride: row * c.layout.PageSize}
	if c.pool != nil {
		y.K += c.pool.Ptr()
	}
	y.V = y.K + attention.Ptr(c.tensor)
	return y
}

// CopyPage implements ops.KV.
func (c *kv) CopyPage(dst, src int32) error {
	if n := int32(c.layout.Pages); dst < 0 || dst >= n || src < 0 || src >= n {
		return fmt.Errorf("cuda: copy of page %d to %d in a cache of %d", src, dst, n)
	}
	if c.flat == nil {
		at := func(p int32) cuda.Ptr { return c.pool.Ptr() + cuda.Ptr(int64(p)*c.pageBytes) }
		return c.b.stream.Copy(at(dst), at(src), c.pageBytes)
	}
	from, err := c.flat.Address(src)
	if err != nil {
		return err
	}
	to, err := c.flat.Address(dst)
	if err != nil {
		return err
	}
	return c.b.stream.Copy(to, from, c.pageBytes)
}

// Release implements ops.KV. A block of pages stays as it is.
func (c *kv) Release(pages []int32) error {
	for _, p := range pages {
		if p < 0 || int(p) >= c.layout.Pages {
			return fmt.Errorf("cuda: release of page %d in a cache of %d", p, c.layout.Pages)
		}
	}
	if c.flat == nil || len(pages) == 0 {
		return nil
	}
	if err := c.b.stream.Synchronize(); err != nil { // a copy may still be reading them
		return err
	}
	return c.flat.Release(pages)
}

// Bind implements ops.Binder.
func (c *flatKV) Bind(r int32, from int, pages []int32) error {
	if err := c.b.stream.Synchronize(); err != nil {
		return err
	}
	return c.flat.Bind(r, from, pages)
}

// Unbind implements ops.Binder.
func (c *flatKV) Unbind(r int32) error {
	if err := c.b.stream.Synchronize(); err != nil {
		return err
	}
	return c.flat.Unbind(r)
}

// Close gives the memory back.
func (c *kv) Close() error {
	if c.flat != nil {
		return c.flat.Close()
	}
	return c.pool.Close()
}
