package flashdecode_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode"
)

// mostOpenBytes bounds what opening a hostile file of 220 kB and one short generation may allocate on the heap:
// 30 bytes for each page of the largest cache that is set up unasked.
const mostOpenBytes = 100 << 20

// FuzzOpen changes one key of a tiny checkpoint to anything, and then one byte of the file: neither opening it nor
// generating with it panics, hangs or takes much memory.
func FuzzOpen(f *testing.F) {
	for _, key := range []string{
		"llama.context_length", "llama.block_count", "llama.attention.head_count_kv", "llama.rope.freq_base", "general.architecture",
		"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
		"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.token_type", "tokenizer.chat_template", "split.count",
	} {
		for kind := range uint8(7) {
			f.Add(key, kind, int64(3), "a", uint32(0), byte(0))
		}
		f.Add(key, uint8(0), int64(-1), "", uint32(4), byte(1))
	}
	for at := uint32(0); at < 6000; at += 311 {
		f.Add("x", uint8(0), int64(1), "", at, byte(0xff))
	}
	f.Fuzz(func(t *testing.T, key string, kind uint8, n int64, s string, at uint32, flip byte) {
		value := []any{uint32(n), n, float32(n), s, n != 0, []string{s, "b"}, []int32{int32(n), 1}}[int(kind)%7]
		if key == "" || len(key) > 1000 || key == "general.alignment" {
			return // the writer refuses
		}
		data := edited(t, map[string]any{key: value})
		data[int(at)%len(data)] ^= flip
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := flashdecode.Open(path, flashdecode.Threads(1))
		if err == nil {
			for _, e := range m.Generate(t.Context(), "the", flashdecode.MaxTokens(2)) {
				err = e
			}
			if e := m.Close(); e != nil {
				t.Error(e)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "flashdecode: ") {
			t.Errorf("error %q", err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > mostOpenBytes {
			t.Errorf("%d bytes allocated, error %v", used, err)
		}
	})
}
