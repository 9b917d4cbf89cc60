package testkit

import (
	"bytes"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing with them")

// Golden fails the test unless got is the content of testdata/name in the package's folder. With
// go test -rewrite it writes the file instead: review the diff.
func Golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: go test -rewrite makes it", err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || !bytes.Equal(g[i], w[i]) {
			t.Fatalf("%s:%d differs (go test -rewrite accepts it)\n got %s\nwant %s", path, i+1, line(g, i), line(w, i))
		}
	}
}

func line(ls [][]byte, i int) string {
	if i >= len(ls) {
		return "(end of file)"
	}
	return strconv.Quote(string(ls[i]))
}

// Rand returns a generator and logs its seed, which is the test's own name hashed, or FLASHDECODE_SEED: a
// run is repeatable, and a loop over seeds finds more.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	seed := h.Sum64()
	if s := os.Getenv("FLASHDECODE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatalf("FLASHDECODE_SEED=%q: not a 64-bit number", s)
		}
		seed = v
	}
	t.Logf("FLASHDECODE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Root returns the folder of go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}

// SkipEmulated skips a test of what user-mode emulation does not reproduce (the address of a fault, which
// pages are resident). make test-arm64 sets FLASHDECODE_EMULATED=1.
func SkipEmulated(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("FLASHDECODE_EMULATED") == "1" {
		t.Skipf("under emulation: %s", why)
	}
}

// The real models of scripts/fetch_models.sh.
const (
	SmolLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
	Gemma3  = "gemma-3-270m-q4_k_m.gguf"
)

// Model returns the path of a downloaded model, in .models or the folder FLASHDECODE_MODELS names, and
// skips the test if it is not there; FLASHDECODE_REQUIRE_MODELS=1 makes that a failure.
func Model(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("FLASHDECODE_MODELS")
	if dir == "" {
		dir = filepath.Join(Root(t), ".models")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("FLASHDECODE_REQUIRE_MODELS") == "1" {
			t.Fatalf("no %s: run scripts/fetch_models.sh", path)
		}
		t.Skipf("no %s: run scripts/fetch_models.sh", path)
	}
	return path
}
