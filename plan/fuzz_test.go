package plan

import (
	"encoding/binary"
	"testing"
)

// FuzzPlan: any input gives an error or a plan that covers everything once.
func FuzzPlan(f *testing.F) {
	seq := func(v ...int32) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
		return b
	}
	f.Add(uint8(0), int32(0), int32(2), uint16(16), uint16(0), uint8(3), seq(1, 4096, 0, 1, 0, 0, 9, 100, 50))
	f.Add(uint8(0), int32(0), int32(132), uint16(16), uint16(0), uint8(8), seq(1, 1<<20, 0))
	f.Add(uint8(2), int32(1000), int32(2), uint16(7), uint16(5), uint8(1), seq(64, 1000, 3))
	f.Add(uint8(3), int32(1<<30), int32(1), uint16(1), uint16(0), uint8(2), seq(1, 1<<30, 0, 1<<30, 1<<30, 0))
	f.Add(uint8(0), int32(0), int32(1<<16), uint16(1), uint16(1), uint8(1), seq(1000, 1<<30, 1<<29))
	f.Fuzz(func(t *testing.T, mode uint8, n, workers int32, page, tile uint16, heads uint8, data []byte) {
		q := question{
			shape: Shape{QHeads: 2 * int(heads), KVHeads: int(heads), HeadDim: 64, PageSize: int(page), TokenBytes: 256, Causal: mode&4 != 0},
			lim:   CPU(int(workers)),
			pol:   Policy{Mode: Mode(mode & 3), N: int(n)},
		}
		q.lim.QTile = int(tile)
		for len(data) >= 12 && len(q.seqs) < 8 {
			at := func(i int) int32 { return int32(binary.LittleEndian.Uint32(data[i:])) }
			q.seqs = append(q.seqs, Seq{at(0), at(4), at(8)})
			data = data[12:]
		}
		if workers > 1024 { // the checks are slow, the planner is not
			q.lim.Workers = 1024
		}
		units := 0
		for _, s := range q.seqs {
			if tile > 0 && s.QLen > 0 {
				units += int(s.QLen) / int(tile)
			}
		}
		if units*int(heads) > 1<<14 {
			t.Skip("valid, but slow to check")
		}
		var pl Planner
		var p Plan
		if err := pl.Plan(&p, q.shape, q.seqs, q.lim, q.pol); err != nil {
			return
		}
		if len(p.Items) > 1<<14 || p.States > 1<<20 {
			t.Skip("valid, but slow to check")
		}
		checkPlan(t, q, &p)
	})
}
