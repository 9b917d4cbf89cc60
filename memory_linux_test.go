package flashdecode_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/flashdecode/flashdecode/weights/gguf"
)

// resident is this process's resident set in bytes, counted page by page: the counters of /proc/self/status may be
// off by megabytes.
func resident(t testing.TB) int64 {
	t.Helper()
	return rollup(t, "Rss:")
}

// rollup is one sum in bytes over all mappings of this process.
func rollup(t testing.TB, name string) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip(err)
	}
	var kb int64
	for _, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(line, name) {
			fmt.Sscan(strings.TrimPrefix(line, name), &kb)
		}
	}
	if kb == 0 {
		t.Skipf("no %s in smaps_rollup: %q", name, data)
	}
	return kb << 10
}

// usage is what one process measures of itself.
type usage struct{ Start, Opened, Used, Closed, KV int64 }

const childEnv = "FLASHDECODE_MEMORY_CHILD"

// measureChild opens a model, generates, closes it, and looks at the resident set at each point.
func measureChild(t *testing.T, spec string) {
	var path, repack string
	var prompt int
	if _, err := fmt.Sscan(spec, &path, &repack, &prompt); err != nil {
		t.Fatal(err)
	}
	var u usage
	u.Start = resident(t)
	m, err := flashdecode.Open(path, flashdecode.Repack(repack))
	if err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	u.Opened = rollup(t, "Anonymous:") // not the file's pages: how many a fault maps is the kernel's choice
	if _, err := generate(m, ids(rand.New(rand.NewPCG(1, 1)), prompt), flashdecode.MaxTokens(10)); err != nil {
		t.Fatal(err)
	}
	u.Used = resident(t)
	i, s := m.Info(), m.Stats()
	u.KV = int64(s.Cache.Used+s.Cache.Cached+1) * int64(i.KVTokens/s.Cache.Pages) * i.KVTokenBytes
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	u.Closed = resident(t)
	out, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("usage %s\n", out)
}

// TestMemory: the resident set is the weights that were read, the pages of the cache in use and at most 64 MB more,
// whether weights are repacked or not; opening takes little; everything comes back on Close.
func TestMemory(t *testing.T) {
	if spec := os.Getenv(childEnv); spec != "" {
		measureChild(t, spec)
		return
	}
	testkit.SkipEmulated(t, "what is resident is the emulator's")
	if testing.Short() {
		t.Skip("short: the race detector's own memory counts")
	}
	for _, path := range []string{filepath.Join("models", "tiny", "tiny.Q8_0.gguf"), testkit.SmolLM2} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if path == testkit.SmolLM2 {
				path = testkit.Model(t, path)
			}
			for _, repack := range []string{"auto", "off"} {
				checkMemory(t, path, repack)
			}
		})
	}
}

func checkMemory(t *testing.T, path, repack string) {
	const mb = 1 << 20
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$")
	prompt := 300
	if simd.Detect() == simd.Generic {
		prompt = 8 // all weights are read for these, too
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", childEnv, path, repack, prompt))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, ok := strings.Cut(string(out), "usage ")
	if !ok {
		t.Skipf("the process did not measure: %s", out)
	}
	var u usage
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&u); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	weights := info.Size() // all of them are read; those that are repacked are read from the copy, and the file's evicted
	t.Logf("repack %s: start %d MB, opened %d of its own, generated +%d (weights %d, KV %d), closed +%d", repack, u.Start/mb,
		u.Opened/mb, (u.Used-u.Start)/mb, weights/mb, u.KV/mb, (u.Closed-u.Start)/mb)
	if most := weights + u.KV + 64*mb; u.Used > most {
		t.Errorf("repack %s: %d MB resident, want at most %d", repack, u.Used/mb, most/mb)
	}
	if u.Opened > 32*mb {
		t.Errorf("repack %s: opening took %d MB", repack, u.Opened/mb)
	}
	if u.Closed-u.Start > 16*mb {
		t.Errorf("repack %s: %d MB are still resident after Close", repack, (u.Closed-u.Start)/mb)
	}
}

// TestMemoryOfIdleCache: pages that nobody uses go back to the system while the model is open.
func TestMemoryOfIdleCache(t *testing.T) {
	testkit.SkipEmulated(t, "what is resident is the emulator's")
	if simd.Detect() == simd.Generic {
		t.Skip("takes a minute in plain Go")
	}
	m := embedded(t, flashdecode.NoPrefixCache(), flashdecode.KV("f32"))
	if _, err := generate(m, ids(rand.New(rand.NewPCG(1, 1)), 2000), flashdecode.MaxTokens(1)); err != nil {
		t.Fatal(err)
	}
	busy, size := resident(t), 2000*m.Info().KVTokenBytes
	if size < 10<<20 {
		t.Fatalf("a cache of %d bytes shows nothing", size)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		now := resident(t)
		if now < busy-size*8/10 { // the rest may have been replaced by the collector's own
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d MB resident, %d MB when the cache held %d MB", now>>20, busy>>20, size>>20)
		}
	}
}

// BenchmarkOpen is the time to open a real model of 98 MB: its file alone, and all that can go before the first token.
func BenchmarkOpen(b *testing.B) {
	path := testkit.Model(b, testkit.SmolLM2)
	b.Run("gguf", func(b *testing.B) {
		for b.Loop() {
			f, err := gguf.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
	b.Run("model", func(b *testing.B) {
		for b.Loop() {
			m, err := flashdecode.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			m.Close()
		}
	})
}
