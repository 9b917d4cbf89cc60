package plan

import (
	"fmt"
	"math"
)

// Planner makes plans and keeps its memory between calls, so that planning allocates nothing once it has
// seen the largest batch. The zero value is ready. Not safe for concurrent use.
type Planner struct {
	units []unit
	items []Item  // in natural order, before sorting
	loads []int64 // of workers, a heap
}

// unit is a sequence, or a query tile of one, whose KV range is cut as a whole.
type unit struct {
	seq, row, rows int32
	first, end     int32 // tokens first … end-1
	firstPage      int32
	pages          int32
	splits         int32 // per KV head; 1 is uncut
	chunk          int32 // tokens between cuts, from token 0; 0: equal pieces of whole pages
	maxSplits      int32 // that leave MinTokens to each
	tokenPS        int64 // cost of one token
	stateNS        int64 // cost of one split's States
}

// Plan computes the plan of one call into dst, whose slices it reuses.
func (pl *Planner) Plan(dst *Plan, shape Shape, seqs []Seq, lim Limits, pol Policy) error {
	if err := shape.check(); err != nil {
		return err
	}
	if err := lim.check(); err != nil {
		return err
	}
	if err := pol.check(); err != nil {
		return err
	}
	m := newModel(shape, lim)
	if err := pl.makeUnits(&m, seqs); err != nil {
		return err
	}
	switch pol.Mode {
	case ModeFixed:
		pl.cutFixed(&m, pol.N)
	case ModeSplits:
		for i := range pl.units {
			u := &pl.units[i]
			u.splits = max(1, min(int32(pol.N), u.pages))
		}
	}
	reason := Reason{Choice: ChosePolicy, Policy: pol}
	if pol.Mode == ModeAuto {
		reason = pl.auto(&m)
	}
	return pl.emit(dst, &m, reason)
}

// makeUnits checks the batch and lists its units, uncut.
func (pl *Planner) makeUnits(m *model, seqs []Seq) error {
	pl.units = pl.units[:0]
	var total, bytes int64
	for b, s := range seqs {
		switch {
		case s.QLen < 0 || s.KVLen < 0 || s.QLen > maxTokens || s.KVLen > maxTokens:
			return fmt.Errorf("plan: sequence %d: QLen %d and KVLen %d: want 0 to %d", b, s.QLen, s.KVLen, maxTokens)
		case s.First < 0 || s.First > s.KVLen:
			return fmt.Errorf("plan: sequence %d: first token %d is outside 0 … KVLen %d", b, s.First, s.KVLen)
		case int64(s.QLen)*m.group > math.MaxInt32:
			return fmt.Errorf("plan: sequence %d: %d query rows × group %d are too many", b, s.QLen, m.group)
		}
		tile := s.QLen
		if m.lim.QTile > 0 {
			tile = min(tile, int32(m.lim.QTile))
		}
		for row := int32(0); row < s.QLen; row += tile {
			u := m.unit(int32(b), s, row, min(tile, s.QLen-row))
			total += u.tokensNS()
			bytes += m.bytes(&u)
			if max(total, bytes) > maxCost/m.heads || int64(len(pl.units)) >= m.lim.maxItems()/m.heads {
				return fmt.Errorf("plan: batch of %d sequences is too large: at sequence %d", len(seqs), b)
			}
			pl.units = append(pl.units, u)
		}
	}
	return nil
}

// unit describes rows row … row+rows-1 of sequence s. A causal tile ends with its last row's position.
func (m *model) unit(b int32, s Seq, row, rows int32) unit {
	end := s.KVLen
	if m.shape.Causal {
		end = max(s.First, min(end, s.KVLen-s.QLen+row+rows))
	}
	page := int32(m.shape.PageSize)
	u := unit{seq: b, row: row, rows: rows, first: s.First, end: end, firstPage: s.First / page, splits: 1}
	if end > s.First {
		u.pages = (end+page-1)/page - u.firstPage
	}
	u.maxSplits = max(1, min(int32(m.lim.MaxSplits), u.pages/m.minPages))
	u.tokenPS, u.stateNS = m.rowCosts(int64(rows) * m.group)
	return u
}

// cutFixed cuts every unit at multiples of n tokens, rounded up to whole pages.
func (pl *Planner) cutFixed(m *model, n int) {
	page := m.shape.PageSize
	chunk := int32((n + page - 1) / page * page)
	for i := range pl.units {
		u := &pl.units[i]
		u.chunk = chunk
		if u.end > u.first {
			u.splits = (u.end-1)/chunk - u.first/chunk + 1
		}
	}
}

// cut returns the first token of split s; cut(splits) is the end.
func (u *unit) cut(page, s int32) int32 {
	switch {
	case s == 0:
		return u.first
	case s == u.splits:
		return u.end
	case u.chunk > 0:
		return (u.first/u.chunk + s) * u.chunk
	}
	return (u.firstPage + int32(int64(s)*int64(u.pages)/int64(u.splits))) * page
}

// emit lists the items and merges of the units as they are cut.
func (pl *Planner) emit(dst *Plan, m *model, reason Reason) error {
	var n, merges, states int64
	for i := range pl.units {
		u := &pl.units[i]
		n += m.heads * int64(u.splits)
		if u.splits > 1 {
			merges += m.heads
			states += m.heads * int64(u.splits) * int64(u.rows) * m.group
		}
		if n > m.lim.maxItems() || states > math.MaxInt32 {
			return fmt.Errorf("plan: more than %d items or %d States at sequence %d: use longer items", m.lim.maxItems(), math.MaxInt32, u.seq)
		}
	}
	pl.items = grow(pl.items, int(n))
	dst.Items = grow(dst.Items, int(n))
	dst.Merges = grow(dst.Merges, int(merges))
	dst.States, dst.Workers = int(states), m.lim.workers()
	dst.WorkspaceBytes = states * m.shape.stateBytes()
	pl.list(dst.Merges, m)
	pl.sort(dst.Items, m)
	pl.predict(dst, m)
	reason.Items, reason.Workers = len(dst.Items), dst.Workers
	dst.Reason = reason
	return nil
}

// list fills pl.items and merges by sequence, tile, KV head and split. Slots are numbered in the same
// order, so that they don't depend on the order of claims.
func (pl *Planner) list(merges []Merge, m *model) {
	page := int32(m.shape.PageSize)
	var n, k, state int32
	for i := range pl.units {
		u := &pl.units[i]
		for h := range int32(m.heads) {
			it := Item{Seq: u.seq, KVHead: h, Row: u.row, Rows: u.rows, State: -1, Merge: -1}
			if u.splits > 1 {
				merges[k] = Merge{Seq: u.seq, KVHead: h, Row: u.row, Rows: u.rows, State: state, Splits: u.splits}
				it.Merge = k
				k++
			}
			for s := range u.splits {
				it.First = u.cut(page, s)
				it.Count = u.cut(page, s+1) - it.First
				if u.splits > 1 {
					it.State = state
					state += u.rows * int32(m.group)
				}
				pl.items[n] = it
				n++
			}
		}
	}
}

// sort orders items long first: a counting sort over the cost classes that bounds uses, stable, so
// that equal items keep their natural order.
func (pl *Planner) sort(dst []Item, m *model) {
	longest := pl.longest(m)
	var start [classes + 1]int
	pl.eachCost(m, func(_ int, ns int64) { start[classes-class(ns, longest)]++ })
	for c := 1; c <= classes; c++ {
		start[c] += start[c-1]
	}
	pl.eachCost(m, func(i int, ns int64) {
		c := classes - 1 - class(ns, longest)
		dst[start[c]] = pl.items[i]
		start[c]++
	})
}

// longest is the cost of the longest item, the last page of a sequence counted as if it were full.
func (pl *Planner) longest(m *model) (ns int64) {
	for i := range pl.units {
		ns = max(ns, m.longestNS(&pl.units[i], pl.units[i].splits))
	}
	return ns
}

// eachCost calls f with every item in natural order and its cost.
func (pl *Planner) eachCost(m *model, f func(i int, ns int64)) {
	i := 0
	for k := range pl.units {
		u := &pl.units[k]
		for range m.heads * int64(u.splits) {
			f(i, m.itemNS(u, int64(pl.items[i].Count), u.splits))
			i++
		}
	}
}

// grow returns s with length n and, if it has to be made, some room to grow.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
