package flashdecode

import (
	"fmt"
	"runtime"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Option changes how a model is opened.
type Option func(*config) error

type config struct {
	context     int // 0: the model's
	kvType      quant.Type
	pageSize    int
	pages       int // 0: enough for maxSeqs full contexts, within half of the machine's memory
	workers     int
	maxSeqs     int
	chunk       int
	policy      plan.Policy
	fileOrder   bool
	float32     bool
	level       *simd.Level
	prefixCache bool
	flat        bool
}

func defaults() config {
	return config{kvType: quant.F16, pageSize: 16, maxSeqs: 8, chunk: 512, prefixCache: true, workers: runtime.GOMAXPROCS(0)}
}

const (
	maxContext = 1 << 24 // more than any model has
	maxCache   = 1 << 30
)

// Context limits sequences to that many tokens, prompt included. The default, 0, is what the model was trained for.
func Context(tokens int) Option {
	return func(c *config) error {
		if tokens < 0 || tokens == 1 || tokens > maxContext {
			return fmt.Errorf("flashdecode: context of %d tokens, want 2 to %d, or 0 for the model's own", tokens, maxContext)
		}
		c.context = tokens
		return nil
	}
}

// KV sets the number format of the KV cache: "f16" (the default), "bf16", "f32" or "q8_0", which halves memory and
// time for some accuracy.
func KV(format string) Option {
	return func(c *config) error {
		t, err := ops.ParseKVType(format)
		if err != nil {
			return fmt.Errorf("flashdecode: KV format %q is not one of f16, bf16, f32, q8_0", format)
		}
		c.kvType = t
		return nil
	}
}

// KVAddresses sets how sequences see their pages: by "table" (the default), or "flat", each in an address range of its
// own into which pages are mapped (Linux).
func KVAddresses(mode string) Option {
	return func(c *config) error {
		if mode != "table" && mode != "flat" {
			return fmt.Errorf("flashdecode: KV addresses %q are not one of table, flat", mode)
		}
		c.flat = mode == "flat"
		return nil
	}
}

// KVTokens sets how many tokens the cache holds in all, shared by all sequences.
func KVTokens(tokens int) Option {
	return func(c *config) error {
		if tokens < 1 || tokens > maxCache {
			return fmt.Errorf("flashdecode: a KV cache of %d tokens, want 1 to %d", tokens, maxCache)
		}
		c.pages = (tokens + c.pageSize - 1) / c.pageSize
		return nil
	}
}

// Threads sets how many threads compute. The default is GOMAXPROCS.
func Threads(n int) Option {
	return func(c *config) error {
		if n < 1 || n > 1024 {
			return fmt.Errorf("flashdecode: %d threads, want 1 to 1024", n)
		}
		c.workers = n
		return nil
	}
}

// MaxSequences sets how many sequences may run at once; more wait. The default is 8.
func MaxSequences(n int) Option {
	return func(c *config) error {
		if n < 1 || n > 4096 {
			return fmt.Errorf("flashdecode: %d sequences, want 1 to 4096", n)
		}
		c.maxSeqs = n
		return nil
	}
}

// PrefillChunk sets how many tokens a step computes at most. The default is 512. Smaller steps delay running streams
// less while a long prompt is read; larger ones read it faster.
func PrefillChunk(tokens int) Option {
	return func(c *config) error {
		if tokens < 1 || tokens > 1<<16 {
			return fmt.Errorf("flashdecode: steps of %d tokens, want 1 to 65536", tokens)
		}
		c.chunk = tokens
		return nil
	}
}

// Split sets how attention is split: "auto" (the default: by a cost model), "none" (the FlashAttention baseline),
// "fixed:N" (every N tokens, so that a sequence's output is the same bits alone and in any batch) or "splits:S".
func Split(policy string) Option {
	return func(c *config) (err error) {
		if c.policy, err = plan.ParsePolicy(policy); err != nil {
			return fmt.Errorf("flashdecode: %w", err)
		}
		return nil
	}
}

// Repack chooses whether weights are rearranged at their first use, which makes products faster and needs memory for
// the copy instead of the file's: "auto" and "on" do, "off" keeps them in the order of the file.
func Repack(mode string) Option {
	return func(c *config) error {
		switch mode {
		case "auto", "on":
			c.fileOrder = false
		case "off":
			c.fileOrder = true
		default:
			return fmt.Errorf("flashdecode: repack %q is not one of auto, on, off", mode)
		}
		return nil
	}
}

// Float32 converts quantised weights to float32 when they are loaded, so that nothing but their own rounding remains:
// for judging the quantised path. It takes four bytes for every weight.
func Float32() Option {
	return func(c *config) error { c.float32 = true; return nil }
}

// Instructions limits the processor's instruction set: "generic", "avx2" or "avx512". The default is the best there is.
func Instructions(set string) Option {
	return func(c *config) error {
		l, err := simd.ParseLevel(set)
		if err != nil {
			return fmt.Errorf("flashdecode: %w", err)
		}
		c.level = &l
		return nil
	}
}

// NoPrefixCache computes every prompt from its first token, even where the cache holds its beginning.
func NoPrefixCache() Option {
	return func(c *config) error { c.prefixCache = false; return nil }
}
