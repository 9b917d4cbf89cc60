package fake

import (
	"fmt"
	"math"
	"strings"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Prefill is the prefill kernels: those by warpgroups, or those for any device.
func Prefill(groups bool) (all []Kernel) {
	for _, typ := range []string{"bf16", "f16"} {
		for _, dim := range []int{64, 96, 128, 256} {
			name, threads := fmt.Sprintf("fd_prefill_%s_d%d", typ, dim), abi.PrefillThreads(dim)
			if groups {
				name, threads = fmt.Sprintf("fd_prefill_wg_%s_d%d", typ, dim), abi.PrefillGroupThreads
			}
			all = append(all, Kernel{name, cudatest.Kernel{Params: []int{sizeOf[abi.DecodeParams]()}, MaxThreads: threads, Run: prefill}})
		}
	}
	return all
}

func prefill(c *cudatest.Call) {
	typ := strings.Split(strings.TrimPrefix(c.Name, "fd_prefill_wg_"), "_")
	if !strings.Contains(c.Name, "_wg_") {
		typ = strings.Split(strings.TrimPrefix(c.Name, "fd_prefill_"), "_")
	}
	l := &launch{c: c, p: cudatest.Arg[abi.DecodeParams](c, 0), combine: "any", kv: formats[typ[0]], q: formats[typ[0]], dim: field(c.Name, "d"), seqs: map[int]*seq{}}
	shared := abi.PrefillShared(l.dim)
	if strings.Contains(c.Name, "_wg_") {
		shared = abi.PrefillGroupShared(l.dim)
	}
	g := int(l.p.Group)
	if c.SharedBytes != shared || int(c.Grid.Y) != int(l.p.KVHeads) || int(l.p.HeadDim) > l.dim || l.p.Flags&abi.FlagPartials != 0 {
		refuse("%s: %d bytes of shared memory, grid %v, flags %#x", c.Name, c.SharedBytes, c.Grid, l.p.Flags)
	}
	for b := range int(c.Grid.Z) {
		s := l.sequence(b)
		if s.call.QLen > int(c.Grid.X)*(abi.PrefillRows/g) {
			refuse("%s: %d query tokens in grid %v", c.Name, s.call.QLen, c.Grid)
		}
		for head := range int(l.p.KVHeads) {
			for row := range s.call.QLen * g {
				l.finish(s, head, row, attn.Partial(&s.call, row/g, head*g+row%g, 0, s.call.KVLen))
			}
		}
	}
}

// Append is the kernels that write the cache, and the one that copies pages.
func Append() (all []Kernel) {
	for _, name := range []string{"bf16_bf16", "f16_f16", "bf16_e4m3"} {
		for _, suffix := range []string{"", "_any"} {
			all = append(all, Kernel{"fd_append_" + name + suffix, cudatest.Kernel{Params: []int{sizeOf[abi.AppendParams]()}, MaxThreads: 128, Run: appendRows}})
		}
	}
	return append(all, Kernel{"fd_copy_pages", cudatest.Kernel{Params: []int{sizeOf[abi.CopyPagesParams]()}, MaxThreads: 256, Run: copyPages}})
}

func appendRows(c *cudatest.Call) {
	p := cudatest.Arg[abi.AppendParams](c, 0)
	f := formats[strings.Split(c.Name, "_")[2]]
	if !strings.HasSuffix(c.Name, "_any") && p.RopePairs%8 != 0 {
		refuse("%s: %d pairs", c.Name, p.RopePairs)
	}
	freq := cudatest.Load[float32](c, driver.Ptr(p.InvFreq), int(p.RopePairs))
	dim := int(p.KHeadDim)
	for r := range int(c.Grid.X) {
		pos := int(int32s(c, p.Positions, r, 1)[0])
		if pos < 0 {
			continue
		}
		b := 0
		for ; b < int(p.Batch); b++ {
			if p.QIndptr != 0 && r < int(int32s(c, p.QIndptr, b+1, 1)[0]) || p.QIndptr == 0 && r < (b+1)*int(p.QLen) {
				break
			}
		}
		for h := range int(p.QHeads) {
			at := uint64(r)*uint64(p.QTokenStride) + uint64(h)*uint64(p.QHeadStride)
			if p.Q != 0 {
				x := f.decode(c.Read(driver.Ptr(p.Q+at), dim*f.bytes))
				c.Write(driver.Ptr(p.QOut+uint64(r)*uint64(p.QOutTokenStride)+uint64(h)*uint64(p.QOutHeadStride)), f.encode(rotate(x, pos, freq, &p)))
			}
		}
		for h := range int(p.KVHeads) {
			at := uint64(h * dim * f.bytes)
			k := f.decode(c.Read(driver.Ptr(p.K+uint64(r)*uint64(p.KTokenStride)+at), dim*f.bytes))
			v := c.Read(driver.Ptr(p.V+uint64(r)*uint64(p.VTokenStride)+at), dim*f.bytes)
			to := cacheRow(c, &p.Rows, b, pos, h)
			c.Write(driver.Ptr(p.KCache+to), f.encode(rotate(k, pos, freq, &p)))
			c.Write(driver.Ptr(p.VCache+to), v)
		}
	}
}

// cacheRow is where a token's row is, relative to the tensor.
func cacheRow(c *cudatest.Call, r *abi.KvRows, b, pos, head int) uint64 {
	page := pos / int(r.PageSize)
	var seq uint64
	switch {
	case r.Table != 0:
		first := b * int(r.TableStride)
		if r.TableIndptr != 0 {
			first = int(int32s(c, r.TableIndptr, b, 1)[0])
		}
		page = int(int32s(c, r.Table, first+page, 1)[0])
	case r.SeqBase != 0:
		seq = cudatest.Load[uint64](c, driver.Ptr(r.SeqBase+uint64(b)*8), 1)[0]
	default:
		seq = uint64(b) * r.SeqStride
	}
	return seq + uint64(page)*r.PageStride + uint64(pos%int(r.PageSize))*uint64(r.TokenStride) + uint64(head)*uint64(r.HeadStride)
}

// rotate turns the pairs of one head.
func rotate(x []float32, pos int, freq []float32, p *abi.AppendParams) []float32 {
	for i, w := range freq {
		a, b := i, i+len(freq)
		if p.Flags&1 != 0 {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(float64(pos) * float64(w))
		s := float64(p.RopeScale)
		u, v := float64(x[a]), float64(x[b])
		x[a], x[b] = float32(s*(u*cos-v*sin)), float32(s*(u*sin+v*cos))
	}
	return x
}

func copyPages(c *cudatest.Call) {
	p := cudatest.Arg[abi.CopyPagesParams](c, 0)
	for i := range int(c.Grid.Y) {
		src, dst := int32s(c, p.Src, i, 1)[0], int32s(c, p.Dst, i, 1)[0]
		b := c.Read(driver.Ptr(p.From+uint64(src)*p.PageStride), int(p.PageBytes))
		c.Write(driver.Ptr(p.To+uint64(dst)*p.PageStride), b)
	}
}
