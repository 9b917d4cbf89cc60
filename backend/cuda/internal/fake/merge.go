package fake

import (
	"fmt"
	"strings"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Merge is the second launch of Flash-Decoding.
func Merge() (all []Kernel) {
	for _, typ := range []string{"bf16", "f16"} {
		for _, dim := range []int{64, 128, 256} {
			all = append(all, Kernel{fmt.Sprintf("fd_merge_states_%s_d%d", typ, dim),
				cudatest.Kernel{Params: []int{sizeOf[abi.DecodeParams]()}, MaxThreads: 128, Run: merge}})
		}
	}
	return all
}

func merge(c *cudatest.Call) {
	typ := strings.Split(c.Name, "_")[3]
	l := &launch{c: c, p: cudatest.Arg[abi.DecodeParams](c, 0), combine: "any", kv: formats[typ], q: formats[typ], dim: field(c.Name, "d"), seqs: map[int]*seq{}}
	p := &l.p
	if p.Flags&abi.FlagPartials == 0 || p.Items != 0 || c.Block.X != 128 {
		refuse("%s: flags %#x, items %#x, %d threads", c.Name, p.Flags, p.Items, c.Block.X)
	}
	rows := int(p.StateRows)
	if want := (rows*abi.RowF4(l.dim) + abi.MergeF4 - 1) / abi.MergeF4; int(c.Grid.X) != want || int(c.Grid.Y) != int(p.KVHeads) {
		refuse("%s: grid %v for %d rows", c.Name, c.Grid, rows)
	}
	for z := range int(c.Grid.Z) {
		for head := range int(c.Grid.Y) {
			s := l.sequence(z >> p.RowTilesLog2)
			row0 := (z & (1<<p.RowTilesLog2 - 1)) * rows
			n := min(rows, s.call.QLen*int(p.Group)-row0)
			if n <= 0 {
				continue
			}
			lo, hi := l.attended(s, row0, n)
			chunk := int(p.ChunkTiles) * abi.TileTokens
			from, to := lo/chunk, max((hi+chunk-1)/chunk, lo/chunk+1)
			if to-from > 1 {
				l.mergeSlots(s, head, row0, n, (z*int(p.KVHeads)+head)*int(p.Splits)*rows, rows, to-from)
			}
		}
	}
}

// Naive is attention in three launches.
func Naive() (all []Kernel) {
	size := []int{sizeOf[abi.NaiveParams]()}
	for _, typ := range []string{"bf16", "f16", "e4m3"} {
		all = append(all, Kernel{"fd_naive_scores_" + typ, cudatest.Kernel{Params: size, MaxThreads: 128, Run: naiveScores}},
			Kernel{"fd_naive_values_" + typ, cudatest.Kernel{Params: size, MaxThreads: 256, Run: naiveValues}})
	}
	return append(all, Kernel{"fd_naive_softmax", cudatest.Kernel{Params: size, MaxThreads: 256, Run: naiveSoftmax}})
}

// naive finds out what a launch is about, and checks the grid and the room for scores.
func naive(c *cudatest.Call, x, y uint32) (*launch, abi.NaiveParams) {
	p := cudatest.Arg[abi.NaiveParams](c, 0)
	typ := c.Name[strings.LastIndex(c.Name, "_")+1:]
	l := &launch{c: c, p: p.D, combine: "any", kv: formats[typ], q: formats[typ], seqs: map[int]*seq{}}
	if typ == "e4m3" {
		l.q = formats["bf16"]
	}
	if l.p.PageSize == 0 {
		l.p.PageSize = 1 << 30
	}
	heads := uint32(p.D.KVHeads * p.D.Group)
	if x != heads || y == 0 {
		refuse("%s: grid %v for %d heads", c.Name, c.Grid, heads)
	}
	c.Write(driver.Ptr(p.Scores), make([]byte, int(heads)*int(y)*int(p.Room)*4))
	return l, p
}

func naiveScores(c *cudatest.Call) {
	l, p := naive(c, c.Grid.Y, c.Grid.Z)
	if int64(c.Grid.X)*abi.NaiveTokens < p.Room {
		refuse("%s: grid %v for %d tokens", c.Name, c.Grid, p.Room)
	}
	for b := range int(p.Batch) {
		if s := l.sequence(b); int64(s.call.KVLen) > p.Room {
			refuse("%s: %d tokens in room for %d", c.Name, s.call.KVLen, p.Room)
		}
	}
}

func naiveSoftmax(c *cudatest.Call) {
	p := cudatest.Arg[abi.NaiveParams](c, 0)
	if c.Grid.X != uint32(p.D.KVHeads*p.D.Group) {
		refuse("%s: grid %v", c.Name, c.Grid)
	}
}

// naiveValues does the work of all three.
func naiveValues(c *cudatest.Call) {
	l, p := naive(c, c.Grid.X, c.Grid.Y)
	total, g := 0, int(l.p.Group)
	for b := range int(p.Batch) {
		s := l.sequence(b)
		total += s.call.QLen
		for head := range int(l.p.KVHeads) {
			for row := range s.call.QLen * g {
				l.finish(s, head, row, attn.Partial(&s.call, row/g, head*g+row%g, 0, s.call.KVLen))
			}
		}
	}
	if total != int(c.Grid.Y) {
		refuse("%s: grid %v for %d query tokens", c.Name, c.Grid, total)
	}
}
