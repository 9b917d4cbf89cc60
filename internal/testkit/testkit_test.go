package testkit

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake records what a helper would have done to a test.
type fake struct {
	testing.TB
	failed, skipped string
}

type stop struct{}

func (f *fake) Helper()             {}
func (f *fake) Name() string        { return "fake" }
func (f *fake) Logf(string, ...any) {}
func (f *fake) Fatal(args ...any)   { f.failed = "fatal"; panic(stop{}) }
func (f *fake) Fatalf(format string, args ...any) {
	f.failed = format
	panic(stop{})
}
func (f *fake) Skipf(format string, args ...any) {
	f.skipped = format
	panic(stop{})
}

func try(f func(t testing.TB)) *fake {
	t := &fake{}
	func() {
		defer func() {
			if r := recover(); r != nil && r != (stop{}) {
				panic(r)
			}
		}()
		f(t)
	}()
	return t
}

func TestCompare(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		got, want []float64
		tol       Tolerance
		message   string
	}{
		{[]float64{1, 2}, []float64{1, 2}, Tolerance{}, ""},
		{[]float64{1}, []float64{1, 2}, Tolerance{}, "1 elements, want 2"},
		{[]float64{nan, inf, -inf}, []float64{nan, inf, -inf}, Tolerance{}, ""},
		{[]float64{nan}, []float64{1}, Tolerance{Abs: inf}, "NaN, want 1"},
		{[]float64{1}, []float64{nan}, Tolerance{Abs: inf}, "1, want NaN"},
		{[]float64{inf}, []float64{-inf}, Tolerance{Abs: inf}, "+Inf, want -Inf"},
		{[]float64{1.5, 3}, []float64{1, 2}, Tolerance{Abs: 0.25}, "[1] = 3, want 2"},
		{[]float64{1.5, 3}, []float64{1, 2}, Tolerance{Abs: 0.25}, "2 of 2 elements"},
		{[]float64{101}, []float64{100}, Tolerance{Rel: 0.01}, ""},
		{[]float64{102}, []float64{100}, Tolerance{Rel: 0.01}, "2 times the bound"},
		{[]float64{1e-30}, []float64{0}, Tolerance{}, "+Inf times the bound"},
	} {
		err := Compare(c.got, c.want, c.tol)
		if (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("Compare(%v, %v, %v): %v, want %q", c.got, c.want, c.tol, err, c.message)
		}
	}
	if f := try(func(t testing.TB) { Near(t, "x", []float32{1}, []float64{2}, Tolerance{}) }); f.failed == "" {
		t.Error("Near accepted 1 for 2")
	}
}

func TestSame(t *testing.T) {
	negative := math.Copysign(0, -1)
	if f := try(func(t testing.TB) { Same(t, "x", []float64{negative}, []float64{0}) }); f.failed == "" {
		t.Error("-0 passed for +0")
	}
	if f := try(func(t testing.TB) { Same(t, "x", []float32{1, float32(math.NaN())}, []float32{1, float32(math.NaN())}) }); f.failed != "" {
		t.Error("equal slices refused")
	}
}

// TestTol: float32 sums of random terms stay within Tol of exact, and a lost term of them does not.
func TestTol(t *testing.T) {
	r := Rand(t)
	for _, n := range []int{1, 10, 1000, 100000} {
		var sum float32
		exact, largest := 0.0, 0.0
		for range n {
			v := float32(r.NormFloat64())
			sum += v
			exact += float64(v)
			largest = max(largest, math.Abs(float64(sum))) // what each rounding is relative to
		}
		if e := math.Abs(float64(sum) - exact); e > Tol(F32, n)*largest {
			t.Errorf("n=%d: error %g above %g", n, e, Tol(F32, n)*largest)
		}
		if lost := 0.1; lost < Tol(F32, n)*largest {
			t.Errorf("n=%d: a term of %g would pass", n, lost)
		}
	}
}

func TestRMS(t *testing.T) {
	if got := RMS([]float64{3, -3, math.NaN(), math.Inf(1)}, 0.5); got != (Tolerance{Abs: 1.5}) {
		t.Errorf("RMS = %v", got)
	}
}

func TestCanary(t *testing.T) {
	for _, n := range []int{0, 1, 7, 64} {
		c := NewCanary[float32](n)
		for i := range c.V {
			if c.V[i] == c.V[i] {
				t.Fatal("fresh buffer is not NaN")
			}
			c.V[i] = 1
		}
		c.Check(t)
		if cap(c.V) != n {
			t.Errorf("capacity %d of %d elements", cap(c.V), n)
		}
		for _, i := range []int{0, guardBytes - 1, guardBytes + 4*n} {
			c.all[i] ^= 1
			if f := try(func(t testing.TB) { c.Check(t) }); f.failed == "" {
				t.Errorf("n=%d: a write at byte %d went unseen", n, i-guardBytes)
			}
			c.all[i] ^= 1
		}
	}
	if c := CanaryOf([]uint8{1, 2, 3}); string(c.V) != "\x01\x02\x03" {
		t.Errorf("copy is %v", c.V)
	}
	v := []float32{1}
	Poison(v)
	if v[0] == v[0] {
		t.Error("not poisoned")
	}
}

func TestGolden(t *testing.T) {
	t.Chdir(t.TempDir())
	if f := try(func(t testing.TB) { Golden(t, "a/x.txt", []byte("one\n")) }); f.failed == "" {
		t.Error("a missing file passed")
	}
	*rewrite = true
	Golden(t, "a/x.txt", []byte("one\ntwo\n"))
	*rewrite = false
	Golden(t, "a/x.txt", []byte("one\ntwo\n"))
	if f := try(func(t testing.TB) { Golden(t, "a/x.txt", []byte("one\n")) }); !strings.Contains(f.failed, "differs") {
		t.Error("a shorter text passed")
	}
}

func TestRand(t *testing.T) {
	if Rand(t).Uint64() != Rand(t).Uint64() {
		t.Error("one test, two sequences")
	}
	t.Setenv("FLASHDECODE_SEED", "")
	a := Rand(t).Uint64()
	t.Setenv("FLASHDECODE_SEED", "7")
	if b := Rand(t).Uint64(); a == b {
		t.Error("FLASHDECODE_SEED has no effect")
	}
	t.Setenv("FLASHDECODE_SEED", "x")
	if f := try(func(t testing.TB) { Rand(t) }); f.failed == "" {
		t.Error("a seed that is no number passed")
	}
}

func TestSkipEmulated(t *testing.T) {
	for env, want := range map[string]string{"1": "under emulation: %s", "": ""} {
		t.Setenv("FLASHDECODE_EMULATED", env)
		if f := try(func(t testing.TB) { SkipEmulated(t, "x") }); f.skipped != want {
			t.Errorf("FLASHDECODE_EMULATED=%q: %q", env, f.skipped)
		}
	}
}

func TestModel(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FLASHDECODE_MODELS", dir)
	t.Setenv("FLASHDECODE_REQUIRE_MODELS", "")
	if f := try(func(t testing.TB) { Model(t, "m") }); !strings.Contains(f.skipped, "fetch_models.sh") {
		t.Errorf("missing model: skip %q, failure %q", f.skipped, f.failed)
	}
	t.Setenv("FLASHDECODE_REQUIRE_MODELS", "1")
	if f := try(func(t testing.TB) { Model(t, "m") }); f.failed == "" {
		t.Error("missing model passed where models are required")
	}
	want := filepath.Join(dir, "m")
	if err := os.WriteFile(want, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Model(t, "m"); got != want {
		t.Errorf("path %s, want %s", got, want)
	}
}
