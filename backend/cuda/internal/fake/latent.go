package fake

import (
	"strings"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Latent is the kernels of latent attention, and Pairs those that merge normalised outputs.
func Latent() []Kernel {
	k := cudatest.Kernel{Params: []int{sizeOf[abi.DecodeParams]()}, MaxThreads: abi.LatentThreads, Run: latent}
	return []Kernel{{"fd_mla_bf16", k}, {"fd_mla_f16", k}}
}

const latentValueDim = 512

func latent(c *cudatest.Call) {
	typ := c.Name[strings.LastIndex(c.Name, "_")+1:]
	l := &launch{c: c, p: cudatest.Arg[abi.DecodeParams](c, 0), combine: "any", kv: formats[typ], q: formats[typ], seqs: map[int]*seq{}}
	p, ctas := &l.p, int(c.Grid.X*c.Grid.Y*c.Grid.Z)
	resident := p.Flags&abi.FlagResident != 0
	if c.SharedBytes != abi.LatentShared || p.KVHeads != 1 || p.HeadDim != 576 || c.Grid.X > abi.LatentSplits || resident && !c.Cooperative {
		refuse("%s: %d bytes of shared memory, %d heads of %d, grid %v, flags %#x", c.Name, c.SharedBytes, p.KVHeads, p.HeadDim, c.Grid, p.Flags)
	}
	if c.Grid.X > 1 {
		c.Write(driver.Ptr(p.StateO), make([]byte, ctas*abi.LatentStateO))
		c.Write(driver.Ptr(p.StateML), make([]byte, ctas*abi.LatentStateML))
		for _, n := range cudatest.Load[uint32](c, driver.Ptr(p.Counters), int(c.Grid.Y*c.Grid.Z)) {
			if n != 0 {
				refuse("%s: a counter is %d", c.Name, n)
			}
		}
	}
	heads := int(p.Group)
	for b := range int(c.Grid.Z) {
		s := l.sequence(b)
		s.call.ValueDim, s.call.KV = latentValueDim, latentMemory{s.call.KV.(memory)}
		if s.call.QLen*heads > int(c.Grid.Y)*abi.LatentRows {
			refuse("%s: %d rows in grid %v", c.Name, s.call.QLen*heads, c.Grid)
		}
		for row := range s.call.QLen * heads {
			st := attn.Partial(&s.call, row/heads, row%heads, 0, s.call.KVLen)
			if s.call.Sinks != nil {
				st.Add(s.call.Sinks[row%heads], nil)
			}
			out, token := make([]float32, latentValueDim), s.first+row/heads
			lse := attn.Finish(st, out)
			c.Write(driver.Ptr(p.Out+uint64(token)*uint64(p.OutTokenStride)+uint64(row%heads*latentValueDim*2)), l.q.encode(out))
			if p.LSE != 0 {
				cudatest.Store(c, driver.Ptr(p.LSE+uint64(token*heads+row%heads)*4), []float32{lse})
			}
		}
	}
}

// latentMemory is a cache whose values are the first part of its keys.
type latentMemory struct{ memory }

// Value implements attn.KV.
func (m latentMemory) Value(j, head int) []float32 { return m.Key(j, head)[:latentValueDim] }

// Pairs is the kernels that merge normalised outputs.
func Pairs() (all []Kernel) {
	for _, typ := range []string{"bf16", "f16"} {
		all = append(all, Kernel{"fd_merge_pairs_" + typ, cudatest.Kernel{Params: []int{sizeOf[abi.MergePairsParams]()}, MaxThreads: 128, Run: mergePairs}})
	}
	return all
}

func mergePairs(c *cudatest.Call) {
	p := cudatest.Arg[abi.MergePairsParams](c, 0)
	f := formats[c.Name[strings.LastIndex(c.Name, "_")+1:]]
	if int64(c.Grid.X) != (p.Rows+3)/4 || c.Block.X != 128 {
		refuse("%s: grid %v for %d rows", c.Name, c.Grid, p.Rows)
	}
	for r := range uint64(p.Rows) {
		all := attn.NewState(int(p.HeadDim))
		for i := range uint64(p.Count) {
			lse := cudatest.Load[float32](c, driver.Ptr(p.LSE+i*p.LSEPairStride+4*r), 1)[0]
			o := f.decode(c.Read(driver.Ptr(p.O+i*p.OPairStride+r*p.ORowStride), int(p.HeadDim)*f.bytes))
			part := attn.NewState(int(p.HeadDim))
			part.Add(lse, o)
			attn.Merge(&all, part)
		}
		out := make([]float32, p.HeadDim)
		lse := attn.Finish(all, out)
		c.Write(driver.Ptr(p.Out+r*p.OutRowStride), f.encode(out))
		if p.OutLSE != 0 {
			cudatest.Store(c, driver.Ptr(p.OutLSE+4*r), []float32{lse})
		}
	}
}
