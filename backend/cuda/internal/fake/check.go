package fake

import (
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Check is fd_check.
func Check() []Kernel {
	return []Kernel{{"fd_check", cudatest.Kernel{Params: []int{sizeOf[abi.CheckParams]()}, MaxThreads: 128, Run: check}}}
}

func check(c *cudatest.Call) {
	p := cudatest.Arg[abi.CheckParams](c, 0)
	if c.Grid != (driver.Dim3{X: uint32(p.Seqs), Y: 1, Z: 1}) || c.Block.X != 128 {
		refuse("%s: grid %v, block %v for %d sequences", c.Name, c.Grid, c.Block, p.Seqs)
	}
	span := func(in, out uint64, b int, most int32) (count int32, ok bool) {
		at := int32s(c, in, b, 2)
		clamped := []int32{min(max(at[0], 0), most), min(max(at[1], 0), most)}
		if b < int(p.Seqs)-1 {
			clamped = clamped[:1]
		}
		cudatest.Store(c, driver.Ptr(out+uint64(b)*4), clamped)
		return at[1] - at[0], at[0] >= 0 && at[1] >= at[0] && at[1] <= most
	}
	for b := range int(p.Seqs) {
		n, fault := int32s(c, p.KVLen, b, 1)[0], uint32(0)
		if n < 0 || n > p.MaxKVLen {
			fault = abi.FaultKVLen
		}
		if p.QIndptr != 0 {
			if count, ok := span(p.QIndptr, p.QIndptrOut, b, p.QRows); !ok || count > p.QLen {
				fault = abi.FaultQIndptr
			}
		}
		need, first := int32(0), b*int(p.TableStride)
		if fault == 0 {
			need = (n + p.PageSize - 1) / p.PageSize
		}
		if p.TableIndptr != 0 {
			first = int(int32s(c, p.TableIndptr, b, 1)[0])
			if count, ok := span(p.TableIndptr, p.TableIndptrOut, b, p.Entries); (!ok || count < need) && fault == 0 {
				fault = abi.FaultIndptr
			}
		} else if p.Table != 0 && need > p.TableStride {
			fault = abi.FaultIndptr
		}
		if p.Table != 0 && fault == 0 {
			for _, page := range int32s(c, p.Table, first, int(need)) {
				if page < 0 || page >= p.Pages {
					fault = abi.FaultPage
				}
			}
		}
		if fault != 0 {
			n = 0
			cudatest.Store(c, driver.Ptr(p.Fault), []uint32{fault, uint32(b)})
		}
		cudatest.Store(c, driver.Ptr(p.KVLenOut+uint64(b)*4), []int32{n})
	}
}
