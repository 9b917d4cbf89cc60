package fake

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Decode is the decode kernels: those of kernels/attention/variants.h.
func Decode() (all []Kernel) {
	size := []int{sizeOf[abi.DecodeParams]()}
	add := func(combine, kv string, dim, n, warps int, suffix string) {
		name := fmt.Sprintf("fd_decode_%s_%s_d%d_n%d_w%d%s", combine, kv, dim, n, warps, suffix)
		all = append(all, Kernel{name, cudatest.Kernel{Params: size, Regs: 128, MaxThreads: 32 * warps, Run: decode}})
	}
	for _, kv := range []string{"bf16", "f16", "e4m3"} {
		for _, dim := range []int{64, 128} {
			for _, combine := range []string{"cluster", "mailbox", "chunk"} {
				if combine != "chunk" {
					add(combine, kv, dim, 8, 4, "")
				}
				for _, suffix := range []string{"", "_opt"} {
					add(combine, kv, dim, 8, 8, suffix)
					add(combine, kv, dim, 16, 8, suffix)
				}
			}
			add("any", kv, dim, 8, 8, "_opt")
		}
		w := 4
		if kv == "e4m3" {
			w = 8
		}
		for _, combine := range []string{"cluster", "mailbox", "chunk"} {
			add(combine, kv, 256, 8, w, "")
			add(combine, kv, 256, 8, w, "_opt")
		}
		add("any", kv, 256, 8, w, "_opt")
	}
	return all
}

// launch is one decode launch.
type launch struct {
	c       *cudatest.Call
	p       abi.DecodeParams
	combine string
	kv, q   format
	dim, n  int
	warps   int
	seqs    map[int]*seq
}

// seq is one sequence as a launch finds it.
type seq struct {
	call  attn.Call
	first int // its first query token
}

func decode(c *cudatest.Call) {
	l := &launch{c: c, seqs: map[int]*seq{}, p: cudatest.Arg[abi.DecodeParams](c, 0), dim: field(c.Name, "d"), n: field(c.Name, "n"), warps: field(c.Name, "w")}
	parts := strings.Split(c.Name, "_")
	l.combine, l.kv, l.q = parts[2], formats[parts[3]], formats[parts[3]]
	if parts[3] == "e4m3" {
		l.q = formats["bf16"]
	}
	l.check()
	switch {
	case l.p.Items != 0:
		l.items()
	default:
		for z := range c.Grid.Z {
			for y := range c.Grid.Y {
				l.pair(int(z), int(y))
			}
		}
	}
}

// check refuses what the kernels rely on the host for.
func (l *launch) check() {
	p, c := &l.p, l.c
	rowBytes := l.dim * l.kv.bytes
	want := abi.DecodeShared(rowBytes, l.dim, l.n, l.warps, abi.DecodeStages(rowBytes, l.warps))
	switch {
	case c.SharedBytes != want || int(c.Block.X) != 32*l.warps:
		refuse("%s: %d threads with %d bytes of shared memory, want %d", c.Name, c.Block.X, c.SharedBytes, want)
	case int(p.HeadDim) > l.dim || p.HeadDim%8 != 0 || p.KVHeads < 1 || p.Group < 1 || p.GroupRcp != abi.Reciprocal(int(p.Group)):
		refuse("%s: head dim %d, %d KV heads, group %d", c.Name, p.HeadDim, p.KVHeads, p.Group)
	case (p.K|p.V|p.PageStride|p.SeqStride|p.Q|p.Out|uint64(p.TokenStride|p.HeadStride|p.QTokenStride))%16 != 0:
		refuse("%s: addresses or strides are not multiples of 16: %+v", c.Name, *p)
	case l.combine != "any" && (p.PageShift < 4 || p.PageShift > 30):
		refuse("%s: page shift %d", c.Name, p.PageShift)
	case l.combine == "any" && p.PageSize < 1:
		refuse("%s: page size %d", c.Name, p.PageSize)
	case p.Items == 0 && (int(c.Grid.Y) != int(p.KVHeads) || int(c.Grid.X) != int(p.Splits)):
		refuse("%s: grid %v for %d KV heads and %d splits", c.Name, c.Grid, p.KVHeads, p.Splits)
	case p.Items == 0 && l.combine != "chunk" && l.combine != "any" && p.Flags&abi.FlagPartials != 0:
		refuse("%s: partials of a %s", c.Name, l.combine)
	}
	flags := *p
	flags.SetFlags(p.Flags & (abi.FlagCausal | abi.FlagEarlyKV | abi.FlagPartials))
	if flags.Flags != p.Flags || (p.Table|p.SeqBase) != 0 && p.SeqStride != 0 {
		refuse("%s: flags %#x, want %#x; stride between sequences %d", c.Name, p.Flags, flags.Flags, p.SeqStride)
	}
	if p.Flags&abi.FlagOptions != 0 || p.Softcap > 0 || p.Sinks != 0 {
		if !strings.HasSuffix(c.Name, "_opt") {
			refuse("%s: flags %#x, softcap %v, sinks %#x want a kernel with options", c.Name, p.Flags, p.Softcap, p.Sinks)
		}
	}
	l.checkCombine()
}

func (l *launch) checkCombine() {
	p, c, n := &l.p, l.c, int(l.c.Grid.X)
	switch l.combine {
	case "cluster":
		if int(c.Cluster.X) != n || bits.OnesCount(uint(n)) != 1 || n < 2 || n > 16 {
			refuse("%s: clusters %v in grid %v", c.Name, c.Cluster, c.Grid)
		}
	case "mailbox":
		if !c.Cooperative || n < 2 || p.Mailbox == 0 {
			refuse("%s: cooperative %v, grid %v, mailbox %#x", c.Name, c.Cooperative, c.Grid, p.Mailbox)
		}
	default:
		if p.ChunkTiles < 1 && p.Items == 0 {
			refuse("%s: chunks of %d tiles", c.Name, p.ChunkTiles)
		}
		return
	}
	rows, slice := int(p.StateRows), int(p.SliceLog2)
	if slice != abi.SliceLog2(rows, l.dim, n) || 1<<slice > 32*l.warps || int64(p.BoxStride) != abi.BoxBytes(rows, l.dim, n, slice) {
		refuse("%s: slices of 1<<%d, boxes of %d bytes for %d rows and %d CTAs", c.Name, slice, p.BoxStride, rows, n)
	}
}

// int32s reads n numbers of a device array.
func int32s(c *cudatest.Call, base uint64, first, n int) []int32 {
	return cudatest.Load[int32](c, driver.Ptr(base+uint64(first)*4), n)
}

// sequence finds sequence b.
func (l *launch) sequence(b int) *seq {
	if s := l.seqs[b]; s != nil {
		return s
	}
	s := l.readSequence(b)
	l.seqs[b] = s
	return s
}

func (l *launch) readSequence(b int) *seq {
	p := &l.p
	kvLen := int(int32s(l.c, p.KVLen, b, 1)[0])
	first, qLen := b*int(p.QLen), int(p.QLen)
	if p.QIndptr != 0 {
		at := int32s(l.c, p.QIndptr, b, 2)
		first, qLen = int(at[0]), int(at[1]-at[0])
	}
	heads, dim := int(p.KVHeads*p.Group), int(p.HeadDim)
	s := &seq{first: first, call: attn.Call{
		Shape:   attn.Shape{QHeads: heads, KVHeads: int(p.KVHeads), HeadDim: dim},
		Options: attn.Options{Scale: p.ScaleLog2 * math.Ln2, Softcap: p.Softcap}, QLen: qLen, KVLen: kvLen,
	}}
	for i := range qLen {
		row := l.c.Read(driver.Ptr(p.Q+uint64(first+i)*uint64(p.QTokenStride)), heads*dim*l.q.bytes)
		s.call.Q = append(s.call.Q, l.q.decode(row)...)
	}
	if p.Flags&abi.FlagMasked != 0 {
		s.call.Causal = p.Flags&abi.FlagCausal != 0
		s.call.Window = &attn.Window{Left: int(p.WindowLeft), Right: int(p.WindowRight)}
	}
	if p.Sinks != 0 {
		s.call.Sinks = cudatest.Load[float32](l.c, driver.Ptr(p.Sinks), heads)
	}
	s.call.KV = l.memory(b, kvLen)
	return s
}

// memory is the keys and values of a sequence, read from the device when asked for.
type memory struct {
	l      *launch
	origin uint64
	table  uint64 // address of the first entry; 0: none
	count  int    // entries
	tokens int
	rows   map[rowKey][]float32 // that were read
}

type rowKey struct {
	j, head int
	v       bool
}

func (l *launch) memory(b, tokens int) memory {
	p := &l.p
	m := memory{l: l, tokens: tokens, rows: map[rowKey][]float32{}}
	switch {
	case p.SeqBase != 0:
		m.origin = cudatest.Load[uint64](l.c, driver.Ptr(p.SeqBase+uint64(b)*8), 1)[0]
	case p.Table == 0:
		m.origin = uint64(b) * p.SeqStride
	}
	if p.Table != 0 {
		first, count := b*int(p.TableStride), int(p.TableStride)
		if p.TableIndptr != 0 {
			at := int32s(l.c, p.TableIndptr, b, 2)
			first, count = int(at[0]), int(at[1]-at[0])
		}
		m.table, m.count = p.Table+uint64(first)*4, count
	}
	return m
}

// row reads one row of K (v false) or V, times its head's scale.
func (m memory) row(j, head int, v bool) []float32 {
	key := rowKey{j, head, v}
	if x := m.rows[key]; x != nil {
		return x
	}
	p := &m.l.p
	if j < 0 || j >= m.tokens {
		refuse("%s reads token %d of %d", m.l.c.Name, j, m.tokens)
	}
	size := int(p.PageSize)
	if m.l.combine != "any" {
		size = 1 << p.PageShift
	}
	page := j / size
	if m.table != 0 {
		if page >= m.count {
			refuse("%s reads entry %d of a table of %d", m.l.c.Name, page, m.count)
		}
		page = int(int32s(m.l.c, m.table, page, 1)[0])
	}
	base, scales := p.K, p.KScale
	if v {
		base, scales = p.V, p.VScale
	}
	at := base + m.origin + uint64(page)*p.PageStride + uint64(j%size)*uint64(p.TokenStride) + uint64(head)*uint64(p.HeadStride)
	x := m.l.kv.decode(m.l.c.Read(driver.Ptr(at), int(p.HeadDim)*m.l.kv.bytes))
	if scales != 0 {
		s := cudatest.Load[float32](m.l.c, driver.Ptr(scales+uint64(head)*4), 1)[0]
		for i := range x {
			x[i] *= s
		}
	}
	m.rows[key] = x
	return x
}

// Key implements attn.KV.
func (m memory) Key(j, head int) []float32 { return m.row(j, head, false) }

// Value implements attn.KV.
func (m memory) Value(j, head int) []float32 { return m.row(j, head, true) }

func sizeOf[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}
