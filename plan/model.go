package plan

// model is the cost model of one call: shape and limits, with what is derived from them.
type model struct {
	shape    Shape
	lim      Limits
	heads    int64 // KV heads: a unit's splits exist once per head
	group    int64
	workers  int64
	minPages int32
}

func newModel(shape Shape, lim Limits) model {
	return model{
		shape: shape, lim: lim,
		heads:    int64(shape.KVHeads),
		group:    int64(shape.QHeads / shape.KVHeads),
		workers:  int64(lim.workers()),
		minPages: int32((lim.MinTokens + shape.PageSize - 1) / shape.PageSize),
	}
}

// mostPS caps the cost of one token and mostNS that of one split's States, so that no sum overflows.
const mostPS, mostNS = 1_000_000_000, 1_000_000_000

// rowCosts returns the cost of one token and of one split's States, for a number of query rows × heads.
// A token's K and V are read once for all of them, while each adds arithmetic.
func (m *model) rowCosts(rows int64) (tokenPS, stateNS int64) {
	tokenPS = int64(m.shape.TokenBytes) * 1_000_000 * int64(m.lim.CTAsPerSM) / m.lim.WorkerBytesPerUS
	rowPS := max(1, m.shape.macs()*1_000_000*int64(m.lim.CTAsPerSM)/m.lim.MACsPerUS)
	if rows >= mostPS/rowPS {
		return mostPS, min(mostNS, rows*m.shape.stateBytes()*1000/m.lim.MergeBytesPerUS)
	}
	tokenPS = min(mostPS, max(1, tokenPS, rows*rowPS))
	return tokenPS, min(mostNS, rows*m.shape.stateBytes()*1000/m.lim.MergeBytesPerUS)
}

// bytes are the KV bytes of u for one KV head.
func (m *model) bytes(u *unit) int64 { return int64(u.end-u.first) * int64(m.shape.TokenBytes) }

// tokensNS is the cost of all of u's tokens for one KV head.
func (u *unit) tokensNS() int64 { return int64(u.end-u.first) * u.tokenPS / 1000 }

// itemNS is the cost of an item of u with count tokens when u is cut into splits.
func (m *model) itemNS(u *unit, count int64, splits int32) int64 {
	ns := m.lim.ItemNS + count*u.tokenPS/1000
	if splits > 1 {
		ns += u.stateNS
	}
	return ns
}

// longestNS is the cost of u's longest item when u is cut into equal splits.
func (m *model) longestNS(u *unit, splits int32) int64 {
	count := int64(u.end - u.first)
	switch {
	case splits > 1 && u.chunk > 0:
		count = min(count, int64(u.chunk))
	case splits > 1:
		pages := (int64(u.pages) + int64(splits) - 1) / int64(splits)
		count = min(count, pages*int64(m.shape.PageSize))
	}
	return m.itemNS(u, count, splits)
}

// tailNS is what the merge of u adds after its last item.
func (m *model) tailNS(u *unit, splits int32) int64 {
	if splits == 1 {
		return 0
	}
	return int64(splits) * u.stateNS / int64(m.lim.MergeFanIn)
}

// callNS is what a call costs besides its items: what workers share, and the merge.
func (m *model) callNS(bytes, tailNS, longestNS int64, merges bool) int64 {
	ns := tailNS + longestNS*int64(m.lim.JitterPct)/100
	if r := m.lim.SharedBytesPerUS; r > 0 {
		ns += bytes/r*1000 + bytes%r*1000/r
	}
	if merges {
		ns += m.lim.MergeNS
	}
	return ns
}

// classes is the number of cost classes that items are sorted into.
const classes = 64

// class returns the cost class of ns, 0 … classes-1.
func class(ns, longest int64) int { return int(ns * classes / (longest + 1)) }

// classFloor is the least cost of class c; classFloor(c+1)-1 the greatest.
func classFloor(c int, longest int64) int64 {
	return ceilDiv(int64(c)*(longest+1), classes)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// bounds are what is known of a way to cut without scheduling it.
type bounds struct {
	items         int64
	longest       int64 // ns
	splits        int32 // most per unit and head
	lower, upper  int64 // ns: bounds of the whole call
	busyPerWorker int64 // ns
}

// bounds evaluates cutting every unit into as few equal pieces as cost no more than budget nanoseconds
// of tokens each. It needs two sums over units and a histogram of costs.
func (pl *Planner) bounds(m *model, budget int64) bounds {
	var b bounds
	var tail, bytes int64
	for i := range pl.units {
		u := &pl.units[i]
		n := u.splitsWithin(budget)
		b.splits = max(b.splits, n)
		b.longest = max(b.longest, m.longestNS(u, n))
		tail = max(tail, m.tailNS(u, n))
		bytes += m.bytes(u)
	}
	var count, sum [classes]int64
	for i := range pl.units {
		u := &pl.units[i]
		n := u.splitsWithin(budget)
		c := class(m.longestNS(u, n), b.longest)
		count[c] += m.heads * int64(n)
		sum[c] += m.heads * (int64(n)*m.itemNS(u, 0, n) + u.tokensNS())
	}
	b.schedule(m, &count, &sum)
	call := m.callNS(bytes*m.heads, tail, b.longest, b.splits > 1)
	b.lower += call
	b.upper += call
	return b
}

// splitsWithin is the least number of equal pieces of u that cost at most budget, within its limit.
func (u *unit) splitsWithin(budget int64) int32 {
	return int32(max(1, min(ceilDiv(u.tokensNS(), budget), int64(u.maxSplits))))
}

// schedule bounds the time at which workers that claim long items first are done. After the classes
// down to c, N items with work S have been claimed, none longer than longest, the last not longer than
// its class. The last of them begins when the least busy worker is free, at S/workers or before, and a
// worker finishes an item at least every longest. Conversely some worker runs ⌈N/workers⌉ of them, and
// none of those is shorter than its class.
func (b *bounds) schedule(m *model, count, sum *[classes]int64) {
	var n, work int64
	for c := classes - 1; c >= 0; c-- {
		if count[c] == 0 {
			continue
		}
		n += count[c]
		work += sum[c]
		waves := ceilDiv(n, m.workers)
		last := classFloor(c+1, b.longest) - 1
		byWork := ceilDiv(work, m.workers) + last - last/m.workers
		b.upper = max(b.upper, min(waves*b.longest, byWork))
		b.lower = max(b.lower, waves*classFloor(c, b.longest))
	}
	b.items = n
	b.busyPerWorker = work / m.workers
	b.lower = max(b.lower, b.longest, b.busyPerWorker)
}

// auto cuts the units by the best candidate and says why.
func (pl *Planner) auto(m *model) Reason {
	var longest, total int64 // of tokens alone
	room := int32(1)
	for i := range pl.units {
		u := &pl.units[i]
		longest = max(longest, u.tokensNS())
		total += m.heads * u.tokensNS()
		room = max(room, u.maxSplits)
	}
	none := pl.bounds(m, max(1, longest))
	r := Reason{Choice: ChoseNone, Splits: 1, NoneNS: none.lower}
	switch {
	case len(pl.units) == 0:
		return r
	case m.workers == 1:
		r.Choice = ChoseOneWorker
		return r
	case room == 1:
		r.Choice = ChoseTooShort
		return r
	}
	most := int64(room)
	if perWorker := total / m.workers; perWorker > 0 {
		most = min(most, max(2, ceilDiv(longest*int64(m.lim.MaxWaves), perWorker)))
	}
	best, budget := none, int64(0)
	best.upper = 1<<63 - 1
	for n := int64(2); n <= most; n++ {
		k := max(1, ceilDiv(longest, n))
		if c := pl.bounds(m, k); c.upper < best.upper && c.splits > 1 {
			best, budget = c, k
		}
	}
	if budget == 0 || best.upper > none.lower-none.lower/32 {
		r.SplitNS = best.upper
		if budget == 0 {
			r.SplitNS = 0
		}
		return r
	}
	for i := range pl.units {
		pl.units[i].splits = pl.units[i].splitsWithin(budget)
	}
	r.Choice, r.Splits, r.SplitNS = ChoseSplit, int(best.splits), best.upper
	r.AtLimit = int64(best.splits) == int64(room)
	return r
}
