package plan

// predict fills EstNS and Imbalance by running the list: each item goes to the worker that is free first.
func (pl *Planner) predict(dst *Plan, m *model) {
	var longest, tail, bytes, work int64
	for i := range pl.units {
		u := &pl.units[i]
		tail = max(tail, m.tailNS(u, u.splits))
		bytes += m.bytes(u) * m.heads
	}
	pl.loads = grow(pl.loads, min(dst.Workers, len(dst.Items)))
	clear(pl.loads)
	end := int64(0)
	for k := range dst.Items {
		ns := pl.costOf(m, &dst.Items[k])
		work += ns
		longest = max(longest, ns)
		pl.loads[0] += ns
		end = max(end, pl.loads[0])
		siftDown(pl.loads)
	}
	dst.Imbalance = 1
	if work > 0 {
		dst.Imbalance = float64(end) * float64(dst.Workers) / float64(work)
	}
	dst.EstNS = end + m.callNS(bytes, tail, longest, len(dst.Merges) > 0)
}

// costOf is the cost of an item of the finished plan.
func (pl *Planner) costOf(m *model, it *Item) int64 {
	tokenPS, stateNS := m.rowCosts(int64(it.Rows) * m.group)
	ns := m.lim.ItemNS + int64(it.Count)*tokenPS/1000
	if it.State >= 0 {
		ns += stateNS
	}
	return ns
}

// siftDown restores the min-heap h after its root grew.
func siftDown(h []int64) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
