package plan

import (
	"fmt"
	"math"
)

// Combine is how the CTAs of one pair, a unit and a KV head, bring their States together on a GPU.
type Combine uint8

// The combines. All of them merge in the order of the splits, so a result does not depend on timing.
const (
	// CombineNone: one CTA has all tokens.
	CombineNone Combine = iota
	// CombineCluster: the pair's CTAs are one thread block cluster and push slices into each other's
	// shared memory.
	CombineCluster
	// CombineMailbox: all CTAs are resident at the same time and poll a mailbox in memory, each for the
	// slice of the output that it reduces.
	CombineMailbox
	// CombineChunk: each CTA has a fixed number of tokens, counted from token 0; the last to arrive merges.
	CombineChunk
	// CombineItems is CombineChunk over the items of a Plan, which the device computes.
	CombineItems
	// CombineSecond: another launch merges (Flash-Decoding as published).
	CombineSecond
)

var combineNames = [...]string{"none", "cluster", "mailbox", "chunk", "items", "second"}

// String is the name that benchmarks and `flashdecode plan` print.
func (c Combine) String() string {
	if int(c) < len(combineNames) {
		return combineNames[c]
	}
	return fmt.Sprintf("Combine(%d)", uint8(c))
}

// MarshalText implements encoding.TextMarshaler.
func (c Combine) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// TileTokens is the number of tokens that a warp of a decode kernel handles at a time.
const TileTokens = 16

// Residency is how many CTAs of one kernel a GPU runs at a time, as its driver says. It is never derived
// from a number of SMs: an H200 of 132 SMs holds 7 clusters of 16, not 8, and the eighth would double the
// time.
type Residency struct {
	CTAs     int    `json:"ctas"`     // that have nothing to do with each other
	Mailbox  int    `json:"mailbox"`  // of a cooperative launch
	Clusters [5]int `json:"clusters"` // of 1<<i CTAs
}

// scale is the residency of a GPU with n SMs, as far as it can be known from that of one with of.
func (r Residency) scale(n, of int) Residency {
	r.CTAs, r.Mailbox = r.CTAs*n/of, r.Mailbox*n/of
	for i := range r.Clusters {
		r.Clusters[i] = r.Clusters[i] * n / of
	}
	return r
}

// LaunchCosts are the constants of a GPU's decode kernels: what a launch takes besides reading, and how fast its CTAs
// are by themselves. The zero value means that the device launches nothing.
type LaunchCosts struct {
	W4        Residency `json:"w4"` // of kernels of 4 warps
	W8        Residency `json:"w8"` // of kernels of 8 warps
	BaseNS    int64     `json:"base_ns"`
	W8NS      int64     `json:"w8_ns"`           // what 8 warps take longer than 4 to start and to merge
	ClusterEa int64     `json:"cluster_each_ns"` // a combine, and so much more for each of a pair's CTAs:
	MailboxNS int64     `json:"mailbox_ns"`
	MailboxEa int64     `json:"mailbox_each_ns"`
	ChunkNS   int64     `json:"chunk_ns"`
	ChunkEa   int64     `json:"chunk_each_ns"`
	SecondNS  int64     `json:"second_ns"`
	SecondEa  int64     `json:"second_each_ns"`
	WaveNS    int64     `json:"wave_ns"` // of the second wave of CTAs that merge; it grows with the root of their number

	W4TokenPS  int64 `json:"w4_token_ps"` // of a CTA, at a head dimension of 128
	W8TokenPS  int64 `json:"w8_token_ps"`
	BytesPerUS int64 `json:"bytes_per_us"` // of all CTAs together
	Overlap    int64 `json:"overlap"`      // of the shorter of both, a CTA's own time and that of all bytes, 1/Overlap is seen
}

// Residency returns what is known of kernels of that many warps, 4 or 8.
func (c *LaunchCosts) Residency(warps int) *Residency {
	if warps == 4 {
		return &c.W4
	}
	return &c.W8
}

// Launch is a configuration of one decode launch.
type Launch struct {
	Combine Combine `json:"combine"`
	Warps   int     `json:"warps"`           // of a CTA
	Splits  int     `json:"splits"`          // CTAs of a pair
	Chunk   int     `json:"chunk,omitempty"` // tokens of a CTA; 0: the pair's CTAs take tiles in turn
	CTAs    int     `json:"ctas"`
	EstNS   int64   `json:"est_ns"`
}

// String is short: "cluster W4 P8", "chunk W8 P4 of 2048 tokens".
func (l Launch) String() string {
	s := fmt.Sprintf("%v W%d P%d", l.Combine, l.Warps, l.Splits)
	if l.Chunk > 0 && l.Combine != CombineNone {
		s += fmt.Sprintf(" of %d tokens", l.Chunk)
	}
	return s
}

// LaunchRequest is what a launch has to serve: capacities, where lengths are known on the device only.
type LaunchRequest struct {
	Shape  Shape
	Units  int   // sequences × tiles of their query rows
	KVLen  int   // of the longest sequence
	Tokens int64 // of all units; 0: Units·KVLen
	Rows   int   // query rows × group of a unit: what a State holds
	// Slice is the number of 16-byte pieces of a pair's output, which clusters and mailboxes share out so that a
	// thread gets at most one; 0: few enough.
	Slice int
	// ChunkWarps is the number of warps of the kernel for chunks, items and single CTAs: 4, or 8 for 0.
	ChunkWarps int
	// ChunkCTAs is the most CTAs of a grid of chunks, for which States have room; 0: any.
	ChunkCTAs int
	// Chained says that the launch is a link of a chain of dependent launches, which begin while their predecessors end.
	Chained bool
	// Only says which combines may be chosen, as bits 1<<Combine; 0: any. A device may lack a kernel, a
	// caller may want one variant.
	Only uint16
}

func (r *LaunchRequest) may(c Combine) bool { return r.Only == 0 || r.Only>>c&1 != 0 }

// launcher evaluates candidates.
type launcher struct {
	r     *LaunchRequest
	lim   *Limits
	pairs int64
	chunk int64 // warps of a chunk's CTA
	tiles int64 // of the longest sequence
	total int64 // tiles of all pairs
	best  Launch
}

// ChooseLaunch returns the configuration with the least predicted time. It allocates nothing and takes about
// a microsecond, so that a host may call it with every batch. Lengths that differ much make fixed shares of CTAs
// per pair wait for the longest: then only chunks and items are left by their cost.
func ChooseLaunch(r LaunchRequest, lim *Limits) (Launch, error) {
	if lim.Launch.W4.CTAs < 1 && lim.Launch.W8.CTAs < 1 {
		return Launch{}, fmt.Errorf("plan: limits %q have no constants for launches", lim.Name)
	}
	if r.Units < 1 || r.KVLen < 0 || r.KVLen > maxTokens || r.Rows < 1 || r.Tokens < 0 {
		return Launch{}, fmt.Errorf("plan: launch for %d units of %d rows and %d tokens: want positive numbers", r.Units, r.Rows, r.KVLen)
	}
	if err := r.Shape.check(); err != nil {
		return Launch{}, err
	}
	l := launcher{r: &r, lim: lim, chunk: 8, pairs: int64(r.Units) * int64(r.Shape.KVHeads)}
	l.tiles = max(1, ceilDiv(int64(r.KVLen), TileTokens))
	l.total = l.pairs * l.tiles
	if r.Tokens > 0 {
		l.total = max(1, min(l.total, ceilDiv(r.Tokens*int64(r.Shape.KVHeads), TileTokens)))
	}
	if r.ChunkWarps == 4 {
		l.chunk = 4
	}
	l.single()
	for _, warps := range [...]int64{4, 8} {
		l.clusters(warps)
		l.mailboxes(warps)
	}
	l.chunks()
	l.items()
	if l.best.CTAs == 0 {
		return Launch{}, fmt.Errorf("plan: no launch of %d units and %d tokens is allowed on %q", r.Units, r.KVLen, lim.Name)
	}
	return l.best, nil
}

// Launches returns the best launch of each combine that is possible, the chosen one first: what a choice was
// made from.
func Launches(r LaunchRequest, lim *Limits) ([]Launch, error) {
	best, err := ChooseLaunch(r, lim)
	if err != nil {
		return nil, err
	}
	all, only := []Launch{best}, r.Only
	for c := CombineNone; int(c) < len(combineNames); c++ {
		if r.Only = 1 << c; c == best.Combine || only != 0 && only&r.Only == 0 {
			continue
		}
		if l, err := ChooseLaunch(r, lim); err == nil {
			all = append(all, l)
		}
	}
	return all, nil
}

// offer keeps the cheaper candidate, the earlier one if they are equal.
func (l *launcher) offer(c Launch) {
	if l.best.CTAs == 0 || c.EstNS < l.best.EstNS {
		l.best = c
	}
}

// baseNS is the time of a launch in which each CTA, of so many warps, has so many tiles while all of them are read. What
// a CTA can do by itself is bound by the latency of a tile in each of its warps, not by bytes: the same for 8-bit numbers.
func (l *launcher) baseNS(warps, tiles int64) int64 {
	c, shape := &l.lim.Launch, &l.r.Shape
	ns, ps := c.BaseNS, c.W4TokenPS
	if warps == 8 {
		ns, ps = ns+c.W8NS, c.W8TokenPS
	}
	own := tiles * TileTokens * ps / 1000 * int64(max(shape.HeadDim, 64)) / 128
	bytes := l.total * int64(shape.TokenBytes) * TileTokens
	all := bytes/c.BytesPerUS*1000 + bytes%c.BytesPerUS*1000/c.BytesPerUS
	return ns + max(own, all) + min(own, all)/c.Overlap
}

// wavesNS is what waves of CTAs that merge take longer than one.
func (l *launcher) wavesNS(waves int64) int64 {
	return int64(math.Sqrt(float64(max(waves-1, 0))) * float64(l.lim.Launch.WaveNS))
}

// single is one CTA a pair.
func (l *launcher) single() {
	c := &l.lim.Launch
	slots := int64(c.Residency(int(l.chunk)).CTAs)
	if !l.r.may(CombineNone) || slots < 1 {
		return
	}
	// CTAs of unequal sequences fill in behind each other; the longest may begin last but is not split.
	perSlot := max(l.tiles, ceilDiv(l.total, slots))
	waves := ceilDiv(l.pairs, slots)
	if l.total == l.pairs*l.tiles {
		perSlot = waves * l.tiles
	}
	l.offer(Launch{Combine: CombineNone, Warps: int(l.chunk), Splits: 1, Chunk: int(l.tiles) * TileTokens, CTAs: int(l.pairs),
		EstNS: l.baseNS(l.chunk, perSlot)})
}

// chainedTiles is how many tiles a CTA of a cluster may have in a chain. The next launch's clusters take whatever SMs are
// free first, which leaves them unevenly placed: 13.4 µs for 32/8 heads and 8,192 tokens, against 11.2 unchained.
const chainedTiles = 24

// clusters are powers of two up to 16 CTAs, as long as each warp has a tile and one wave holds all.
func (l *launcher) clusters(warps int64) {
	if !l.r.may(CombineCluster) {
		return
	}
	c := &l.lim.Launch
	for i, fit := range c.Residency(int(warps)).Clusters {
		p := int64(1) << i
		if p < 2 || int64(fit) < l.pairs || p/2*warps >= l.tiles || !l.slices(p, warps) {
			continue
		}
		if l.r.Chained && p >= 4 && l.tiles > chainedTiles*p {
			continue
		}
		ns := p*c.ClusterEa + l.baseNS(warps, l.share(p, warps))
		if p == 16 && l.pairs > 2 { // more than two of them get in each other's way: 14.5 µs where a mailbox takes 12.5
			ns += ns / 5
		}
		l.offer(Launch{Combine: CombineCluster, Warps: int(warps), Splits: int(p), CTAs: int(l.pairs * p), EstNS: ns})
	}
}

// slices says whether p CTAs have threads enough for the output that they share out.
func (l *launcher) slices(p, warps int64) bool { return ceilDiv(int64(l.r.Slice), p) <= 32*warps }

// share is the tiles of the busiest CTA when p CTAs take them in turn, each as many at a time as it has warps.
func (l *launcher) share(p, warps int64) int64 {
	return min(ceilDiv(l.tiles, p*warps)*warps, l.tiles)
}

// mailboxes are any number of CTAs that fit at the same time.
func (l *launcher) mailboxes(warps int64) {
	if !l.r.may(CombineMailbox) {
		return
	}
	c := &l.lim.Launch
	most := min(int64(c.Residency(int(warps)).Mailbox)/l.pairs, ceilDiv(l.tiles, warps))
	for p := int64(2); p <= most; p++ {
		if !l.slices(p, warps) || p > 2 && p < most && l.share(p, warps) == l.share(p-1, warps) {
			continue // more States for the same share
		}
		l.offer(Launch{Combine: CombineMailbox, Warps: int(warps), Splits: int(p), CTAs: int(l.pairs * p),
			EstNS: c.MailboxNS + p*c.MailboxEa + l.baseNS(warps, l.share(p, warps))})
	}
}

// chunks are powers of two of tiles, and what makes one wave.
func (l *launcher) chunks() {
	slots := int64(l.lim.Launch.Residency(int(l.chunk)).CTAs)
	if slots < 1 || !l.r.may(CombineChunk) && !l.r.may(CombineSecond) {
		return
	}
	if p := slots / l.pairs; p > 1 {
		l.chunksOf(max(ceilDiv(l.tiles, p), l.chunk), slots)
	}
	for chunk := l.chunk; chunk <= 1024 && chunk < l.tiles; chunk *= 2 {
		l.chunksOf(chunk, slots)
	}
}

// chunksOf offers chunks of that many tiles.
func (l *launcher) chunksOf(chunk, slots int64) {
	c := &l.lim.Launch
	p := ceilDiv(l.tiles, chunk)
	if p < 2 || l.r.ChunkCTAs > 0 && p*l.pairs > int64(l.r.ChunkCTAs) {
		return
	}
	work := ceilDiv(l.total, chunk) // CTAs that find tokens
	if l.total < l.pairs*l.tiles {
		work += l.pairs / 2 // half a chunk a sequence is missing from its last one
	}
	waves := ceilDiv(work, slots)
	perSlot := waves * chunk
	if waves > 2 { // CTAs drift apart, and the last wave costs what it holds
		perSlot = ceilDiv(work*chunk, slots) + chunk/2
	}
	ns := l.baseNS(l.chunk, perSlot) + l.wavesNS(waves)
	ns += (l.pairs*p - work) / slots * 100 // CTAs that return at once
	launch := Launch{Combine: CombineChunk, Warps: int(l.chunk), Splits: int(p), Chunk: int(chunk) * TileTokens, CTAs: int(l.pairs * p)}
	if l.r.may(CombineChunk) {
		launch.EstNS = ns + c.ChunkNS + p*c.ChunkEa
		l.offer(launch)
	}
	if l.r.may(CombineSecond) {
		launch.Combine, launch.EstNS = CombineSecond, ns+c.SecondNS+p*c.SecondEa
		l.offer(launch)
	}
}

// items are pieces of about equal cost, cut by the planner on the device. The planner runs once a step, not once
// a layer, so its time is not counted; reading the list is.
func (l *launcher) items() {
	if !l.r.may(CombineItems) || l.r.Units == 1 || l.total == l.pairs*l.tiles {
		return
	}
	c := &l.lim.Launch
	slots := int64(c.Residency(int(l.chunk)).CTAs)
	if slots < 1 {
		return
	}
	perSlot := max(ceilDiv(l.total, slots), 4*l.chunk) // at least four rounds of its warps
	p := ceilDiv(l.tiles, perSlot)
	l.offer(Launch{Combine: CombineItems, Warps: int(l.chunk), Splits: int(p), CTAs: int(min(slots*2, l.pairs*p)),
		EstNS: c.ChunkNS + min(p, 32)*c.ChunkEa + l.wavesNS(2) + l.baseNS(l.chunk, perSlot+perSlot/8)})
}
