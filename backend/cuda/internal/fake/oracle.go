package fake

import (
	"strings"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/oracle"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Oracle is the kernels of package oracle.
func Oracle() (all []Kernel) {
	for _, typ := range []string{"bf16", "f16", "e4m3"} {
		all = append(all,
			Kernel{"fd_fill_" + typ, cudatest.Kernel{Params: []int{sizeOf[abi.FillParams]()}, Run: fill}},
			Kernel{"fd_reference_" + typ, cudatest.Kernel{Params: []int{sizeOf[abi.ReferenceParams]()}, Run: reference}})
	}
	for _, u := range []string{"4", "8"} {
		all = append(all, Kernel{"fd_read_u" + u, cudatest.Kernel{Params: []int{sizeOf[abi.ReadParams]()}, Run: read}})
	}
	return all
}

// pieceBytes is how much is read or written at a time.
const pieceBytes = 1 << 20

func fill(c *cudatest.Call) {
	p := cudatest.Arg[abi.FillParams](c, 0)
	typ := c.Name[strings.LastIndex(c.Name, "_")+1:]
	f := formats[typ]
	for i := uint64(0); i < p.Count; i += pieceBytes {
		b := make([]byte, min(pieceBytes, p.Count-i)*uint64(f.bytes))
		for j := range len(b) / f.bytes {
			x := oracle.Unit(p.Seed, p.First+i+uint64(j)) * p.Scale
			if typ == "e4m3" {
				b[j] = byte(int(x*8)&0x3f | 0x20)
				continue
			}
			f.write(b[j*f.bytes:], x)
		}
		c.Write(driver.Ptr(p.Dst+i*uint64(f.bytes)), b)
	}
}

func read(c *cudatest.Call) {
	p := cudatest.Arg[abi.ReadParams](c, 0)
	for i := uint64(0); i < p.Count*16; i += pieceBytes {
		c.Read(driver.Ptr(p.Src+i), int(min(pieceBytes, p.Count*16-i)))
	}
	c.Read(driver.Ptr(p.Sink), 4*int(c.Grid.X))
}

func reference(c *cudatest.Call) {
	p := cudatest.Arg[abi.ReferenceParams](c, 0)
	typ := c.Name[strings.LastIndex(c.Name, "_")+1:]
	l := &launch{c: c, p: p.Decode, combine: "any", kv: formats[typ], q: formats[typ], seqs: map[int]*seq{}}
	if typ == "e4m3" {
		l.q = formats["bf16"]
	}
	heads, dim := int(l.p.KVHeads*l.p.Group), int(l.p.HeadDim)
	for b := range int(c.Grid.Z) {
		s := l.sequence(b)
		if int64(s.call.KVLen) > p.MaxKVLen || int(c.Grid.Y) != heads {
			refuse("%s: %d tokens of %d, grid %v", c.Name, s.call.KVLen, p.MaxKVLen, c.Grid)
		}
		r, err := attn.Reference(&s.call)
		if err != nil {
			refuse("%s: %v", c.Name, err)
		}
		cudatest.Store(c, driver.Ptr(p.Out+uint64(s.first*heads*dim)*4), r.Out)
		cudatest.Store(c, driver.Ptr(p.LSE+uint64(s.first*heads)*4), r.LSE)
	}
}
