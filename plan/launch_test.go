package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// launchRequest is decode attention of 16-bit KV at head dim 128.
func launchRequest(q, kv, units, n int) LaunchRequest {
	return LaunchRequest{Shape: Shape{QHeads: q, KVHeads: kv, HeadDim: 128, PageSize: 16, TokenBytes: 512, Causal: true},
		Units: units, KVLen: n, Rows: q / kv}
}

// TestLaunchMeasured holds the choice against launches timed on an H200 (bench/results/cuda-*.jsonl has their like): the
// predicted time within 7 %, and the combine that was fastest, or one within 3 % of it.
func TestLaunchMeasured(t *testing.T) {
	lim := H200()
	for _, c := range []struct {
		q, kv, units, n int
		combine         Combine
		us              float64
	}{
		{16, 2, 1, 512, CombineCluster, 3.58}, {16, 2, 1, 1024, CombineCluster, 3.92}, {16, 2, 1, 4096, CombineCluster, 5.31},
		{16, 2, 1, 8192, CombineMailbox, 6.69}, {16, 2, 1, 32768, CombineMailbox, 12.56},
		{32, 8, 1, 512, CombineCluster, 3.73}, {32, 8, 1, 1024, CombineCluster, 4.42}, {32, 8, 1, 2048, CombineCluster, 5.31},
		{32, 8, 1, 4096, CombineCluster, 7.18}, {32, 8, 1, 8192, CombineCluster, 11.00}, {32, 8, 1, 32768, CombineMailbox, 34.45},
		{32, 4, 1, 16384, CombineMailbox, 12.5}, {32, 8, 1, 131072, CombineMailbox, 123.84}, {32, 32, 1, 64, CombineNone, 3.38}, {32, 8, 16, 4096, CombineNone, 63.95},
		{32, 8, 256, 1024, CombineNone, 245.8},
	} {
		l, err := ChooseLaunch(launchRequest(c.q, c.kv, c.units, c.n), &lim)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(l.EstNS) / 1000; l.Combine != c.combine || got < c.us*0.93 || got > c.us*1.07 {
			t.Errorf("%d/%d heads, %d × %d: %v, %.2f µs; measured %v, %.2f µs", c.q, c.kv, c.units, c.n, l, got, c.combine, c.us)
		}
	}
}

// TestLaunchFits checks, for random calls, that what must be resident is, that every token has a CTA and
// that no single CTA per pair would be predicted faster.
func TestLaunchFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	for range 3000 {
		lim := []Limits{H200(), A100()}[rng.IntN(2)]
		kv := 1 << rng.IntN(6)
		r := launchRequest(kv*(1+rng.IntN(16)), kv, 1+rng.IntN(1<<rng.IntN(9)), rng.IntN(1<<(4+rng.IntN(17))))
		r.Rows *= 1 + rng.IntN(8)
		if rng.IntN(2) == 0 {
			r.Tokens = rng.Int64N(int64(r.Units)*int64(r.KVLen) + 1)
		}
		r.Slice, r.ChunkWarps, r.ChunkCTAs = min(r.Rows, 16)*32, 4*rng.IntN(3), 4096
		l, err := ChooseLaunch(r, &lim)
		if err != nil {
			t.Fatal(err)
		}
		pairs, res := r.Units*r.Shape.KVHeads, lim.Launch.Residency(l.Warps)
		what := fmt.Sprintf("%s, %d pairs of %d tokens (%d in all): %v, %d CTAs", lim.Name, pairs, r.KVLen, r.Tokens, l, l.CTAs)
		switch l.Combine {
		case CombineCluster:
			fits := false
			for i, n := range res.Clusters {
				fits = fits || l.Splits == 1<<i && n >= pairs
			}
			if fits = fits && (r.Slice+l.Splits-1)/l.Splits <= 32*l.Warps; !fits || l.CTAs != pairs*l.Splits {
				t.Error(what, "clusters are not resident")
			}
		case CombineMailbox:
			if (r.Slice+l.Splits-1)/l.Splits > 32*l.Warps || l.CTAs != pairs*l.Splits || l.CTAs > res.Mailbox {
				t.Error(what, "CTAs are not resident")
			}
		case CombineChunk, CombineSecond, CombineNone:
			if l.Combine != CombineNone && l.CTAs > r.ChunkCTAs {
				t.Error(what, "more CTAs than States have room for")
			}
			if l.Splits*l.Chunk < r.KVLen || (l.Splits-1)*l.Chunk >= max(r.KVLen, 1) {
				t.Error(what, "chunks do not cover the tokens")
			}
		}
		r.Only = 1 << CombineNone
		if single, err := ChooseLaunch(r, &lim); err != nil || single.EstNS < l.EstNS {
			t.Error(what, "is slower than", single, err)
		}
	}
}

// TestLaunchSkew checks that work is cut on the device where fixed shares would wait for one long sequence, and not where
// all are alike.
func TestLaunchSkew(t *testing.T) {
	lim := H200()
	r := launchRequest(32, 8, 64, 131072)
	r.Tokens = 131072 + 63*1024
	if l, err := ChooseLaunch(r, &lim); err != nil || l.Combine != CombineItems {
		t.Errorf("one of 131072, 63 of 1024: %v, %v", l, err)
	}
	r.KVLen, r.Tokens = 3072, 0
	if l, err := ChooseLaunch(r, &lim); err != nil || l.Combine == CombineItems {
		t.Errorf("64 of 3072: %v, %v", l, err)
	}
}

// TestLaunchChained checks that a chain avoids clusters with much to read.
func TestLaunchChained(t *testing.T) {
	lim := H200()
	r := launchRequest(32, 8, 1, 8192)
	r.Chained = true
	if l, err := ChooseLaunch(r, &lim); err != nil || l.Combine != CombineMailbox {
		t.Errorf("8192 tokens: %v, %v", l, err)
	}
	r.KVLen = 2048
	if l, err := ChooseLaunch(r, &lim); err != nil || l.Combine != CombineCluster {
		t.Errorf("2048 tokens: %v, %v", l, err)
	}
}

// TestLaunchOnly checks that a wanted combine is obeyed or refused.
func TestLaunchOnly(t *testing.T) {
	lim := H200()
	for c := CombineNone; c <= CombineSecond; c++ {
		r := launchRequest(32, 8, 4, 65536)
		r.Tokens, r.Only = 100_000, 1<<c
		l, err := ChooseLaunch(r, &lim)
		if err != nil || l.Combine != c {
			t.Errorf("only %v: %v, %v", c, l, err)
		}
		r.Units = 9 // 72 pairs: not even clusters of 2, nor two CTAs each
		if l, err = ChooseLaunch(r, &lim); (err == nil) == (c == CombineCluster || c == CombineMailbox) {
			t.Errorf("72 pairs, only %v: %v, %v", c, l, err)
		}
	}
}

func TestLaunchErrors(t *testing.T) {
	lim, cpu := H200(), CPU(4)
	ok := launchRequest(8, 8, 1, 100)
	if _, err := ChooseLaunch(ok, &cpu); err == nil {
		t.Error("a CPU launches")
	}
	for _, bad := range []func(*LaunchRequest){
		func(r *LaunchRequest) { r.Units = 0 }, func(r *LaunchRequest) { r.KVLen = -1 }, func(r *LaunchRequest) { r.Rows = 0 },
		func(r *LaunchRequest) { r.Tokens = -1 }, func(r *LaunchRequest) { r.Shape.QHeads = 9 },
		func(r *LaunchRequest) { r.Units, r.Only = 500, 1<<CombineMailbox },
	} {
		r := ok
		bad(&r)
		if l, err := ChooseLaunch(r, &lim); err == nil {
			t.Errorf("%+v: %v", r, l)
		}
	}
}

func TestLaunchAllocatesNothing(t *testing.T) {
	lim, r := H200(), launchRequest(16, 2, 1, 65536)
	if n := testing.AllocsPerRun(50, func() { _, _ = ChooseLaunch(r, &lim) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChooseLaunch(b *testing.B) {
	lim, r := H200(), launchRequest(16, 2, 1, 65536)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = ChooseLaunch(r, &lim)
	}
}
