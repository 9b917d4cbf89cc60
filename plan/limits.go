package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits are the facts of a device that a plan depends on, and the constants of its cost model. The time
// to read is modelled as bytes/WorkerBytesPerUS of each worker, plus all bytes/SharedBytesPerUS for what
// the workers share: one worker alone is faster than its share of all of them.
type Limits struct {
	Name       string `json:"name"`
	Workers    int    `json:"workers"`      // SMs, or CPU threads
	CTAsPerSM  int    `json:"ctas_per_sm"`  // items that an SM runs at a time; 1 on a CPU
	MaxSplits  int    `json:"max_splits"`   // most pieces that Auto cuts a sequence into
	MaxWaves   int    `json:"max_waves"`    // Auto makes no more, on average, by splitting
	MinTokens  int    `json:"min_tokens"`   // Auto makes no shorter items, unless the sequence is
	QTile      int    `json:"q_tile"`       // most query rows of an item; 0: all rows of a sequence
	MaxItems   int    `json:"max_items"`    // of a plan; 0: 4,194,304, which are 128 MB
	JitterPct  int    `json:"jitter_pct"`   // part of the longest item by which workers differ in speed
	ItemNS     int64  `json:"item_ns"`      // fixed cost of an item
	MergeNS    int64  `json:"merge_ns"`     // fixed cost of a call that merges
	MergeFanIn int    `json:"merge_fan_in"` // workers that share the merge of one segment

	WorkerBytesPerUS int64 `json:"worker_bytes_per_us"` // KV bytes that a worker alone reads
	SharedBytesPerUS int64 `json:"shared_bytes_per_us"` // see above; 0: workers don't slow each other
	MACsPerUS        int64 `json:"macs_per_us"`         // multiply-adds of a worker
	MergeBytesPerUS  int64 `json:"merge_bytes_per_us"`  // State bytes that a worker merges

	Launch LaunchCosts `json:"launch,omitzero"` // of a GPU
}

// CPU describes threads of a processor. ItemNS is a claim plus the start of a new stretch of memory;
// MinTokens keeps stretches long enough to be read at the linear rate. Threads lose time to other
// processes, which JitterPct lets shorter items make up for. MaxItems is half of what the threads can number in one go:
// the blocks of prompts, which are not planned, have the other half.
func CPU(threads int) Limits {
	return Limits{
		Name: "cpu", Workers: threads, CTAsPerSM: 1, MaxSplits: 256, MaxWaves: 8, MinTokens: 256,
		JitterPct: 6, MaxItems: 1 << 19, ItemNS: 500, MergeNS: 0, MergeFanIn: 1,
		WorkerBytesPerUS: 10_000, SharedBytesPerUS: 137_000, MACsPerUS: 40_000, MergeBytesPerUS: 4_000,
	}
}

// H200 describes NVIDIA's H200: 132 SMs, of which 32 read about half of what all read together, whence
// the two rates. ItemNS is the way from a block's start to its first data; MergeNS and MergeFanIn describe
// a combine within the same launch that all blocks share.
func H200() Limits {
	return Limits{
		Name: "h200", Workers: 132, CTAsPerSM: 1, MaxSplits: 128, MaxWaves: 4, MinTokens: 64,
		ItemNS: 1000, MergeNS: 900, MergeFanIn: 32,
		WorkerBytesPerUS: 100_000, SharedBytesPerUS: 7_000_000, MACsPerUS: 2_000_000, MergeBytesPerUS: 33_000,
		Launch: LaunchCosts{
			W4:     Residency{CTAs: 132, Mailbox: 132, Clusters: [5]int{132, 66, 30, 15, 7}},
			W8:     Residency{CTAs: 132, Mailbox: 132, Clusters: [5]int{132, 66, 30, 15, 7}},
			BaseNS: 2770, W8NS: 250, ClusterEa: 38, MailboxNS: 900, MailboxEa: 18, ChunkNS: 1000, ChunkEa: 20, SecondNS: 1700, SecondEa: 25,
			WaveNS: 3300, W4TokenPS: 7900, W8TokenPS: 5200, BytesPerUS: 4_700_000, Overlap: 6,
		},
	}
}

// A100 describes NVIDIA's A100: the H200's constants scaled by nominal bandwidth and SMs, not measured.
func A100() Limits {
	l := H200()
	l.Name, l.Workers = "a100", 108
	l.WorkerBytesPerUS, l.SharedBytesPerUS = 44_000, 2_900_000
	l.MACsPerUS, l.MergeBytesPerUS = 1_000_000, 20_000
	l.Launch.BytesPerUS, l.Launch.W4TokenPS, l.Launch.W8TokenPS = 1_900_000, 10_000, 7_000
	l.Launch.W4, l.Launch.W8 = Residency{CTAs: 108, Mailbox: 108}, Residency{CTAs: 108, Mailbox: 108} // clusters came with Hopper
	return l
}

// ParseLimits reads a device name: "cpu" with the given number of threads, "cpu:N", "h200", "a100", or
// "SMs=N", which is the H200's model with another number of SMs and its share of the bandwidth.
func ParseLimits(s string, threads int) (Limits, error) {
	bad := func(what, arg string) (Limits, error) {
		return Limits{}, fmt.Errorf("plan: device %q: %q is not a number of %s within 1 … %d", s, arg, what, maxWorkers)
	}
	switch name := strings.ToLower(s); {
	case name == "h200":
		return H200(), nil
	case name == "a100":
		return A100(), nil
	case name == "cpu":
		if threads < 1 || threads > maxWorkers {
			return bad("threads", strconv.Itoa(threads))
		}
		return CPU(threads), nil
	case strings.HasPrefix(name, "cpu:"):
		n, err := strconv.Atoi(name[4:])
		if err != nil || n < 1 || n > maxWorkers {
			return bad("threads", name[4:])
		}
		return CPU(n), nil
	case strings.HasPrefix(name, "sms="):
		n, err := strconv.Atoi(name[4:])
		if err != nil || n < 1 || n > maxWorkers {
			return bad("SMs", name[4:])
		}
		l := H200()
		l.Name, l.Workers = "SMs="+name[4:], n
		l.SharedBytesPerUS = l.SharedBytesPerUS * int64(n) / 132
		l.Launch.BytesPerUS = max(1, l.Launch.BytesPerUS*int64(n)/132)
		l.Launch.W4, l.Launch.W8 = l.Launch.W4.scale(n, 132), l.Launch.W8.scale(n, 132)
		return l, nil
	}
	return Limits{}, fmt.Errorf("plan: unknown device %q: want cpu, cpu:N, h200, a100 or SMs=N", s)
}

// workers is how many items run at a time.
func (l Limits) workers() int { return l.Workers * l.CTAsPerSM }

const (
	maxWorkers = 1 << 16
	maxTokens  = 1 << 30 // of a sequence: page-rounded ends stay within int32
	maxItems   = 1 << 22 // of any plan: 128 MB of items
	maxCost    = 1 << 56 // ns and bytes of a batch: sums of them, times classes, stay within int64
)

// maxItems is how many items a plan may have.
func (l Limits) maxItems() int64 {
	if l.MaxItems == 0 {
		return maxItems
	}
	return int64(l.MaxItems)
}

// check names the first value that no device has.
func (l Limits) check() error {
	switch {
	case l.Workers < 1 || l.CTAsPerSM < 1 || l.Workers > maxWorkers || l.CTAsPerSM > 32 || l.workers() > maxWorkers:
		return fmt.Errorf("plan: %d workers × %d: want 1 to %d in all", l.Workers, l.CTAsPerSM, maxWorkers)
	case l.MaxSplits < 1 || l.MaxWaves < 1 || l.MinTokens < 1 || l.MergeFanIn < 1 ||
		l.MaxSplits > maxTokens || l.MaxWaves > 64 || l.MinTokens > maxTokens || l.MergeFanIn > maxWorkers:
		return fmt.Errorf("plan: limits %q: MaxSplits %d, MaxWaves %d, MinTokens %d and MergeFanIn %d must be positive and sensible",
			l.Name, l.MaxSplits, l.MaxWaves, l.MinTokens, l.MergeFanIn)
	case l.QTile < 0 || l.QTile > maxTokens || l.JitterPct < 0 || l.JitterPct > 100:
		return fmt.Errorf("plan: limits %q: QTile %d must not be negative, JitterPct %d within 0 … 100", l.Name, l.QTile, l.JitterPct)
	case l.MaxItems < 0 || l.MaxItems > maxItems:
		return fmt.Errorf("plan: limits %q: MaxItems %d must be within 0 … %d", l.Name, l.MaxItems, maxItems)
	case l.ItemNS < 0 || l.MergeNS < 0 || l.ItemNS > 1e9 || l.MergeNS > 1e9:
		return fmt.Errorf("plan: limits %q: ItemNS %d and MergeNS %d must be within a second", l.Name, l.ItemNS, l.MergeNS)
	case l.WorkerBytesPerUS < 1 || l.MACsPerUS < 1 || l.MergeBytesPerUS < 1 || l.SharedBytesPerUS < 0 || l.SharedBytesPerUS > 1e15:
		return fmt.Errorf("plan: limits %q: rates %d, %d, %d and %d must be positive", l.Name,
			l.WorkerBytesPerUS, l.SharedBytesPerUS, l.MACsPerUS, l.MergeBytesPerUS)
	}
	return nil
}

// check names the first value that makes the shape meaningless.
func (s Shape) check() error {
	const most = 1 << 16
	switch {
	case s.QHeads < 1 || s.KVHeads < 1 || s.QHeads > most:
		return fmt.Errorf("plan: %d query heads and %d KV heads: want 1 to %d", s.QHeads, s.KVHeads, most)
	case s.QHeads%s.KVHeads != 0:
		return fmt.Errorf("plan: %d query heads are not a multiple of %d KV heads", s.QHeads, s.KVHeads)
	case s.HeadDim < 1 || s.ValueDim < 0 || s.HeadDim > most || s.ValueDim > most:
		return fmt.Errorf("plan: head dim %d and value dim %d: want 1 to %d", s.HeadDim, s.ValueDim, most)
	case s.PageSize < 1 || s.PageSize > most:
		return fmt.Errorf("plan: page size %d: want 1 to %d tokens", s.PageSize, most)
	case s.TokenBytes < 1 || s.TokenBytes > 1<<24:
		return fmt.Errorf("plan: %d bytes per token and KV head: want 1 to %d", s.TokenBytes, 1<<24)
	}
	return nil
}
