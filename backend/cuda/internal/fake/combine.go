package fake

import (
	"encoding/binary"
	"math"

	"github.com/flashdecode/flashdecode/attn"
	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// pair runs the CTAs of one unit and KV head in the grid form.
func (l *launch) pair(z, head int) {
	p := &l.p
	s := l.sequence(z >> p.RowTilesLog2)
	row0 := (z & (1<<p.RowTilesLog2 - 1)) * l.n
	rows := min(l.n, s.call.QLen*int(p.Group)-row0)
	if rows <= 0 {
		return
	}
	if rows > int(p.StateRows) {
		refuse("%s: %d rows in States of %d", l.c.Name, rows, p.StateRows)
	}
	pair, splits := z*int(p.KVHeads)+head, int(l.c.Grid.X)
	slots := p.StateRows
	first, end := 0, s.call.KVLen
	lo, hi := l.attended(s, row0, rows)
	switch l.combine {
	case "mailbox":
		l.mailbox(pair)
		fallthrough
	case "cluster":
		for r := range rows {
			l.finish(s, head, row0+r, l.turns(s, head, row0+r, first, end, splits))
		}
		return
	}
	chunk := int(p.ChunkTiles) * abi.TileTokens
	from, to := lo/chunk, max((hi+chunk-1)/chunk, lo/chunk+1)
	if to-from > splits {
		refuse("%s: %d chunks of %d tokens in a grid of %d", l.c.Name, to-from, chunk, splits)
	}
	if to-from == 1 {
		for r := range rows {
			l.finish(s, head, row0+r, l.partial(s, head, row0+r, 0, end))
		}
		return
	}
	l.counter(pair)
	slot := pair * splits * int(slots)
	for x := range to - from {
		for r := range rows {
			l.store(slot+x*int(slots)+r, l.partial(s, head, row0+r, (from+x)*chunk, (from+x+1)*chunk))
		}
	}
	if p.Flags&abi.FlagPartials == 0 {
		l.mergeSlots(s, head, row0, rows, slot, int(slots), to-from)
	}
}

// attended is the tokens that any of the rows attends.
func (l *launch) attended(s *seq, row0, rows int) (lo, hi int) {
	lo = s.call.KVLen
	for r := row0; r < row0+rows; r++ {
		if a, b := s.call.Range(r / int(l.p.Group)); a < b {
			lo, hi = min(lo, a), max(hi, b)
		}
	}
	return min(lo, hi), hi
}

// partial is the State of a row over tokens lo ≤ j < hi.
func (l *launch) partial(s *seq, head, row, lo, hi int) attn.State {
	g := int(l.p.Group)
	return attn.Partial(&s.call, row/g, head*g+row%g, lo, min(hi, s.call.KVLen))
}

// turns merges what CTAs make of tiles that they take in turn.
func (l *launch) turns(s *seq, head, row, lo, hi, splits int) attn.State {
	step := abi.TileTokens * l.warps
	all := attn.NewState(int(l.p.HeadDim))
	for x := range splits {
		part := attn.NewState(int(l.p.HeadDim))
		for j := lo + x*step; j < hi; j += splits * step {
			attn.Merge(&part, l.partial(s, head, row, j, min(j+step, hi)))
		}
		attn.Merge(&all, part)
	}
	return all
}

// finish writes a row's output and LSE.
func (l *launch) finish(s *seq, head, row int, st attn.State) {
	p, g, dim := &l.p, int(l.p.Group), int(l.p.HeadDim)
	token, h := s.first+row/g, head*g+row%g
	if s.call.Sinks != nil {
		st.Add(s.call.Sinks[h], nil)
	}
	out := make([]float32, dim)
	lse := attn.Finish(st, out)
	l.c.Write(driver.Ptr(p.Out+uint64(token)*uint64(p.OutTokenStride)+uint64(h*dim*l.q.bytes)), l.q.encode(out))
	if p.LSE != 0 {
		cudatest.Store(l.c, driver.Ptr(p.LSE+uint64(token*int(p.KVHeads)*g+h)*4), []float32{lse})
	}
}

// mailbox finds the pair's box empty, which it must be before and after a launch: a real kernel would wait for ever.
func (l *launch) mailbox(pair int) {
	box := l.c.Read(driver.Ptr(l.p.Mailbox+uint64(pair)*l.p.BoxStride), int(l.p.BoxStride))
	for i := 0; i < len(box); i += 4 {
		if binary.LittleEndian.Uint32(box[i:]) != math.MaxUint32 {
			refuse("%s: mailbox of pair %d holds something at byte %d", l.c.Name, pair, i)
		}
	}
	l.c.Write(driver.Ptr(l.p.Mailbox+uint64(pair)*l.p.BoxStride), box)
}

// counter finds an arrival counter at zero.
func (l *launch) counter(i int) {
	if l.p.Flags&abi.FlagPartials != 0 {
		return
	}
	at := driver.Ptr(l.p.Counters + uint64(i)*4)
	if n := cudatest.Load[uint32](l.c, at, 1)[0]; n != 0 {
		refuse("%s: counter %d is %d", l.c.Name, i, n)
	}
	cudatest.Store(l.c, at, []uint32{0})
}

// store writes a State slot; M is in units of log2.
func (l *launch) store(slot int, st attn.State) {
	p := &l.p
	cudatest.Store(l.c, driver.Ptr(p.StateO+uint64(slot)*uint64(p.HeadDim)*4), st.O)
	cudatest.Store(l.c, driver.Ptr(p.StateML+uint64(slot)*8), []float32{st.M * math.Log2E, st.L})
}

func (l *launch) load(slot int) attn.State {
	p := &l.p
	ml := cudatest.Load[float32](l.c, driver.Ptr(p.StateML+uint64(slot)*8), 2)
	return attn.State{M: ml[0] * math.Ln2, L: ml[1], O: cudatest.Load[float32](l.c, driver.Ptr(p.StateO+uint64(slot)*uint64(p.HeadDim)*4), int(p.HeadDim))}
}

// mergeSlots merges the splits of a pair and finishes its rows.
func (l *launch) mergeSlots(s *seq, head, row0, rows, slot, stride, splits int) {
	for r := range rows {
		all := attn.NewState(int(l.p.HeadDim))
		for x := range splits {
			attn.Merge(&all, l.load(slot+x*stride+r))
		}
		l.finish(s, head, row0+r, all)
	}
}

// items runs the items of a plan.
func (l *launch) items() {
	p := &l.p
	n := int(l.c.Grid.X)
	if p.ItemCount != 0 {
		if n = int(int32s(l.c, p.ItemCount, 0, 1)[0]); n > int(l.c.Grid.X) {
			refuse("%s: %d items in a grid of %d", l.c.Name, n, l.c.Grid.X)
		}
	}
	left := map[int32]int32{}
	for _, it := range cudatest.Load[abi.Item](l.c, driver.Ptr(p.Items), n) {
		s := l.sequence(int(it.Seq))
		rows := int(it.Rows * p.Group)
		if rows > l.n*int(l.c.Grid.Y) {
			refuse("%s: item of %d rows in %d tiles", l.c.Name, rows, l.c.Grid.Y)
		}
		row0 := int(it.Row * p.Group)
		if it.Merge < 0 {
			for r := range rows {
				l.finish(s, int(it.KVHead), row0+r, l.partial(s, int(it.KVHead), row0+r, int(it.First), int(it.First+it.Count)))
			}
			continue
		}
		for r := range rows {
			l.store(int(it.State)+r, l.partial(s, int(it.KVHead), row0+r, int(it.First), int(it.First+it.Count)))
		}
		m := cudatest.Load[abi.Merge](l.c, driver.Ptr(p.Merges+uint64(it.Merge)*24), 1)[0]
		if left[it.Merge]++; left[it.Merge] == m.Splits && p.Flags&abi.FlagPartials == 0 {
			for t := range int(l.c.Grid.Y) {
				l.counter(int(it.Merge)*int(l.c.Grid.Y) + t)
			}
			l.mergeSlots(s, int(it.KVHead), row0, rows, int(m.State), rows, int(m.Splits))
		}
	}
}
