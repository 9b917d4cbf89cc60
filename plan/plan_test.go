package plan

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// question is what a plan answers.
type question struct {
	shape Shape
	seqs  []Seq
	lim   Limits
	pol   Policy
}

// randomQuestion covers lengths 0 … 1,048,576 (log-uniform, and exact corners), windows, several query
// rows, tiles, odd pages, and devices of 1 to 264 workers.
func randomQuestion(rng *rand.Rand) question {
	heads := [][2]int{{1, 1}, {9, 3}, {32, 8}, {16, 2}, {7, 1}, {8, 8}}[rng.IntN(6)]
	q := question{
		shape: Shape{QHeads: heads[0], KVHeads: heads[1], HeadDim: 64, PageSize: []int{1, 7, 16, 64}[rng.IntN(4)],
			TokenBytes: 256, Causal: rng.IntN(3) > 0},
		lim: []Limits{CPU(1), CPU(2), CPU(16), H200(), A100()}[rng.IntN(5)],
		pol: []Policy{Auto(), Auto(), None(), Fixed(1 + rng.IntN(5000)), Splits(1 + rng.IntN(70))}[rng.IntN(5)],
	}
	if rng.IntN(4) == 0 {
		q.shape.ValueDim = 48
		q.lim.CTAsPerSM = 2
	}
	if rng.IntN(2) == 0 {
		q.lim.QTile = 1 + rng.IntN(40)
	}
	corners := []int32{0, 1, 15, 16, 17, 255, 256, 257, 4096, 1 << 20}
	for range rng.IntN(12) {
		s := Seq{QLen: 1, KVLen: corners[rng.IntN(len(corners))]}
		if rng.IntN(2) == 0 {
			s.KVLen = int32(math.Exp(rng.Float64() * math.Log(1<<20)))
		}
		if rng.IntN(3) == 0 {
			s.QLen = int32(rng.IntN(70))
		}
		if rng.IntN(3) == 0 {
			s.First = int32(rng.IntN(int(s.KVLen) + 1))
		}
		q.seqs = append(q.seqs, s)
	}
	return q
}

func TestProperties(t *testing.T) {
	var pl Planner
	var p, none Plan
	for seed := range uint64(600) {
		q := randomQuestion(rand.New(rand.NewPCG(seed, 1)))
		if err := pl.Plan(&p, q.shape, q.seqs, q.lim, q.pol); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkPlan(t, q, &p)
		if q.pol.Mode == ModeAuto {
			if err := pl.Plan(&none, q.shape, q.seqs, q.lim, None()); err != nil {
				t.Fatal(err)
			}
			checkAuto(t, q, &p, &none)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, q)
		}
	}
}

// checkPlan checks what holds for every policy: each (sequence, KV head, row, token) is covered exactly
// once, items end on pages, slots are used exactly once and in order, the workspace is exact.
func checkPlan(t *testing.T, q question, p *Plan) {
	t.Helper()
	type key struct{ seq, head, row int32 }
	byUnit := map[key][]Item{}
	for _, it := range p.Items {
		k := key{it.Seq, it.KVHead, it.Row}
		byUnit[k] = append(byUnit[k], it)
	}
	rows := map[[2]int32]int32{}
	group := int32(q.shape.QHeads / q.shape.KVHeads)
	slots := make([]bool, p.States)
	for k, items := range byUnit {
		slices.SortFunc(items, func(a, b Item) int { return int(a.First - b.First) })
		s := q.seqs[k.seq]
		rows[[2]int32{k.seq, k.head}] += items[0].Rows
		checkUnit(t, q, s, items)
		for i, it := range items {
			if split := len(items) > 1; split != (it.State >= 0) || split != (it.Merge >= 0) {
				t.Fatalf("%d splits with %+v", len(items), it)
			}
			if it.State < 0 {
				continue
			}
			want := Merge{it.Seq, it.KVHead, it.Row, it.Rows, it.State - int32(i)*it.Rows*group, int32(len(items))}
			if p.Merges[it.Merge] != want {
				t.Fatalf("split %d %+v: merge is %+v, want %+v", i, it, p.Merges[it.Merge], want)
			}
			for slot := it.State; slot < it.State+it.Rows*group; slot++ {
				if slots[slot] {
					t.Fatalf("slot %d is used twice", slot)
				}
				slots[slot] = true
			}
		}
	}
	for b, s := range q.seqs {
		for h := range int32(q.shape.KVHeads) {
			if got := rows[[2]int32{int32(b), h}]; got != s.QLen {
				t.Fatalf("sequence %d head %d: %d rows are covered, want %d", b, h, got, s.QLen)
			}
		}
	}
	if i := slices.Index(slots, false); i >= 0 {
		t.Fatalf("slot %d of %d is not used", i, p.States)
	}
	dim := q.shape.HeadDim
	if q.shape.ValueDim > 0 {
		dim = q.shape.ValueDim
	}
	if want := int64(p.States) * int64(dim+2) * 4; p.WorkspaceBytes != want {
		t.Fatalf("workspace is %d bytes, want %d", p.WorkspaceBytes, want)
	}
	checkSchedule(t, q, p)
}

// checkUnit checks that the items tile [First, end of the last row) on page boundaries.
func checkUnit(t *testing.T, q question, s Seq, items []Item) {
	t.Helper()
	page := int32(q.shape.PageSize)
	end := s.KVLen
	if q.shape.Causal { // one past the last row's position
		end = max(s.First, min(end, s.KVLen-s.QLen+items[0].Row+items[0].Rows))
	}
	at := s.First
	for _, it := range items {
		if it.First != at || it.Count < 0 || it.Rows != items[0].Rows {
			t.Fatalf("%+v does not begin at token %d", it, at)
		}
		if it.Count == 0 && len(items) > 1 {
			t.Fatalf("%+v: an empty split", it)
		}
		at += it.Count
		if at%page != 0 && at != end {
			t.Fatalf("%+v ends at %d, within a page of %d", it, at, page)
		}
		if n := int32(q.pol.N); q.pol.Mode == ModeFixed {
			n = (n + page - 1) / page * page
			if at != end && at%n != 0 || it.Count > n {
				t.Fatalf("%+v is not a chunk of %d", it, n)
			}
		}
	}
	if at != end {
		t.Fatalf("items of %+v end at %d, want %d", items[0], at, end)
	}
	if q.pol.Mode == ModeNone && len(items) != 1 {
		t.Fatalf("None made %d items", len(items))
	}
	if q.pol.Mode == ModeSplits && len(items) != max(1, min(q.pol.N, int((end+page-1)/page-s.First/page))) && end > s.First {
		t.Fatalf("splits:%d made %d items of %d tokens", q.pol.N, len(items), end-s.First)
	}
}

// naiveCosts is the cost model restated.
func naiveCosts(q question, p *Plan) []int64 {
	costs := make([]int64, len(p.Items))
	stateBytes, macs := q.shape.HeadDim*4+8, 2*q.shape.HeadDim
	if q.shape.ValueDim > 0 {
		stateBytes, macs = q.shape.ValueDim*4+8, q.shape.HeadDim+q.shape.ValueDim
	}
	ctas := int64(q.lim.CTAsPerSM)
	for i, it := range p.Items {
		rows := int64(it.Rows) * int64(q.shape.QHeads/q.shape.KVHeads)
		read := int64(q.shape.TokenBytes) * 1e6 * ctas / q.lim.WorkerBytesPerUS
		arithmetic := int64(macs) * 1e6 * ctas / q.lim.MACsPerUS * rows
		// A millisecond a token and a second a split are the most that the model knows.
		costs[i] = q.lim.ItemNS + int64(it.Count)*min(1e9, max(read, arithmetic))/1000
		if it.State >= 0 {
			costs[i] += min(1e9, rows*int64(stateBytes)*1000/q.lim.MergeBytesPerUS)
		}
	}
	return costs
}

// checkSchedule checks that long items come first and that the prediction is what workers do that claim
// in this order.
func checkSchedule(t *testing.T, q question, p *Plan) {
	t.Helper()
	costs := naiveCosts(q, p)
	free := make([]int64, p.Workers)
	var end, busy, longest int64
	for i, ns := range costs {
		longest = max(longest, ns)
		if i > 0 && ns > costs[i-1]+costs[0]/classes+int64(q.shape.PageSize)*100_000 {
			t.Fatalf("item %d costs %d ns, the one before it only %d", i, ns, costs[i-1])
		}
		w := 0
		for v := range free {
			if free[v] < free[w] {
				w = v
			}
		}
		free[w] += ns
		busy += ns
		end = max(end, free[w])
	}
	if busy == 0 {
		return
	}
	if want := float64(end) * float64(p.Workers) / float64(busy); math.Abs(p.Imbalance-want) > 1e-9 {
		t.Fatalf("imbalance %v, want %v", p.Imbalance, want)
	}
	if p.EstNS < end+longest*int64(q.lim.JitterPct)/100 {
		t.Fatalf("predicted %d ns, the last worker alone takes %d", p.EstNS, end)
	}
}

// checkAuto checks Auto's promises.
func checkAuto(t *testing.T, q question, p, none *Plan) {
	t.Helper()
	if p.EstNS > none.EstNS {
		t.Fatalf("Auto is predicted at %d ns, None at %d: %v", p.EstNS, none.EstNS, p.Reason)
	}
	page := q.shape.PageSize
	least := (q.lim.MinTokens + page - 1) / page * page
	for _, m := range p.Merges {
		if int(m.Splits) > q.lim.MaxSplits {
			t.Fatalf("%+v: more than %d splits", m, q.lim.MaxSplits)
		}
	}
	for _, it := range p.Items {
		// The first and the last piece may lack part of a page each.
		if it.State >= 0 && int(it.Count) <= least-2*page {
			t.Fatalf("%+v is shorter than %d tokens", it, least)
		}
	}
	switch r := p.Reason; r.Choice {
	case ChoseSplit:
		if len(p.Merges) == 0 || p.EstNS > r.SplitNS || none.EstNS < r.NoneNS {
			t.Fatalf("%v: predicted %d and %d ns are outside the bounds", r, p.EstNS, none.EstNS)
		}
	default:
		if len(p.Merges) != 0 {
			t.Fatalf("%v, but %d merges", r, len(p.Merges))
		}
	}
	if p.Reason.String() == "" {
		t.Fatal("no reason")
	}
}

// A sequence's items under Fixed don't depend on the batch, and growing it changes the last one only.
func TestFixedIsBatchInvariant(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var pl Planner
	var batch, alone Plan
	for range 80 {
		q := randomQuestion(rng)
		q.pol = Fixed(100 + rng.IntN(3000))
		if err := pl.Plan(&batch, q.shape, q.seqs, q.lim, q.pol); err != nil {
			t.Fatal(err)
		}
		for b, s := range q.seqs {
			lim := CPU(3) // nor on the device
			lim.QTile = q.lim.QTile
			if err := pl.Plan(&alone, q.shape, []Seq{s}, lim, q.pol); err != nil {
				t.Fatal(err)
			}
			if got, want := cutsOf(&batch, int32(b)), cutsOf(&alone, 0); !slices.Equal(got, want) {
				t.Fatalf("sequence %d %+v: in the batch %v, alone %v", b, s, got, want)
			}
		}
	}
	shape := Shape{QHeads: 1, KVHeads: 1, HeadDim: 8, PageSize: 16, TokenBytes: 32}
	var long []Item
	for n := int32(1); n < 400; n++ {
		if err := pl.Plan(&alone, shape, []Seq{{QLen: 1, KVLen: n}}, CPU(2), Fixed(64)); err != nil {
			t.Fatal(err)
		}
		now := cutsOf(&alone, 0)
		if len(long) > 1 && !slices.Equal(now[:len(long)-1], long[:len(long)-1]) {
			t.Fatalf("token %d moved an earlier cut: %v, before %v", n, now, long)
		}
		long = now
	}
}

// cutsOf lists a sequence's items in natural order, without what depends on the batch.
func cutsOf(p *Plan, seq int32) (items []Item) {
	for _, it := range p.Items {
		if it.Seq == seq {
			it.Seq, it.State, it.Merge = 0, 0, 0
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		if a.KVHead != b.KVHead {
			return int(a.KVHead - b.KVHead)
		}
		if a.Row != b.Row {
			return int(a.Row - b.Row)
		}
		return int(a.First - b.First)
	})
	return items
}

// Two workers and three KV heads: every split that pays gives whole waves.
func TestOddHeadsGetWholeWaves(t *testing.T) {
	shape := Shape{QHeads: 9, KVHeads: 3, HeadDim: 64, PageSize: 16, TokenBytes: 256, Causal: true}
	var pl Planner
	var p Plan
	for n := int32(512); n <= 1<<20; n = n*5/4 + 3 {
		if err := pl.Plan(&p, shape, []Seq{{QLen: 1, KVLen: n}}, CPU(2), Auto()); err != nil {
			t.Fatal(err)
		}
		if len(p.Items)%2 != 0 || p.Imbalance > 1.02 {
			t.Errorf("%d tokens: %d items, imbalance %.3f: %v", n, len(p.Items), p.Imbalance, p.Reason)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	shape := Shape{QHeads: 9, KVHeads: 3, HeadDim: 64, PageSize: 16, TokenBytes: 256, Causal: true}
	lim := CPU(2)
	lim.QTile = 64
	for _, pol := range []Policy{Auto(), None(), Fixed(512), Splits(7)} {
		var pl Planner
		var p Plan
		seqs := []Seq{{1, 30000, 0}, {1, 17, 0}, {130, 4000, 0}, {1, 9000, 8000}}
		if err := pl.Plan(&p, shape, seqs, lim, pol); err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(50, func() {
			seqs[0].KVLen-- // stay within the memory of the first call
			if err := pl.Plan(&p, shape, seqs, lim, pol); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations a call", pol, n)
		}
	}
}

func TestJSON(t *testing.T) {
	shape := Shape{QHeads: 9, KVHeads: 3, HeadDim: 64, PageSize: 16, TokenBytes: 256}
	r, err := NewReport(shape, []Seq{{1, 2000, 0}}, CPU(2), Fixed(1024))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Policy Policy
		Plan   struct {
			Items  []Item
			Merges []Merge
			States int
			Reason string
		}
	}
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.Policy != Fixed(1024) || !slices.Equal(back.Plan.Items, r.Plan.Items) ||
		!slices.Equal(back.Plan.Merges, r.Plan.Merges) || back.Plan.Reason != "policy fixed:1024; 3 whole waves" {
		t.Errorf("read back %+v from %s", back, data)
	}
}

func TestPolicyText(t *testing.T) {
	for _, s := range []string{"auto", "none", "fixed:2048", "splits:3"} {
		p, err := ParsePolicy(s)
		if err != nil || p.String() != s {
			t.Errorf("%q reads as %v, %v", s, p, err)
		}
	}
}
