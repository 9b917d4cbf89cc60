//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// library compiles the recording library of package driver: a libcuda that says yes to everything.
func library(t testing.TB, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc: nothing to open")
	}
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	flags = append(flags, "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", path, "driver/testdata/libcuda.c")
	if out, err := exec.Command("gcc", flags...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}

// TestOpen opens real libraries that lack something.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		flags string
		kind  error
		words string
	}{
		{"-DWITHOUT", ErrSymbol, "no cuLaunchKernelEx, which CUDA 11.6 brought: the installed driver supports CUDA 13.0"},
		{"-DVERSION=11080", ErrDriverTooOld, "install NVIDIA driver 525 or newer"},
		{"-DINIT=100", ErrNoDevice, "cuInit"},
		{"-DINIT=803", ErrNoDriver, "reboot"},
	} {
		_, err := open(library(t, c.flags))
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", c.flags, err)
		}
	}
	_, err := open(filepath.Join(t.TempDir(), "libcuda.so.1"))
	if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "cannot open shared object file") || !strings.Contains(err.Error(), "install") {
		t.Errorf("no library: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "libempty.so")
	if out, err := exec.Command("gcc", "-shared", "-o", empty, "-x", "c", "/dev/null").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if _, err := open(empty); !errors.Is(err, ErrSymbol) || !strings.Contains(err.Error(), "no cuInit") {
		t.Errorf("another library: %v", err)
	}
}

// recorded opens the recording library up to a launch.
func recorded(t testing.TB) (*Launch, *Stream, *Exec) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	drv, err := open(library(t))
	ok(err)
	dev, err := drv.Device(0)
	ok(err)
	ctx, err := dev.Open()
	ok(err)
	s, err := ctx.NewStream(NormalPriority)
	ok(err)
	m, err := ctx.LoadModule([]byte("PTX"))
	ok(err)
	f, err := m.Function("fd_x")
	ok(err)
	l, err := f.NewLaunch(Arg(new([40]byte)))
	ok(err)
	l.Grid, l.Block, l.Cluster, l.PDL = Dim3{X: 8}, Dim3{X: 128}, Dim3{X: 2}, true
	l.block.Params = append(l.block.Params, l.block.Params[0]) // the library reads two
	g, err := s.Capture(func() error { return l.Run(s) })
	ok(err)
	x, err := g.Instantiate()
	ok(err)
	return l, s, x
}

// BenchmarkRun is what a launch costs on this side of the driver: two calls through purego.
func BenchmarkRun(b *testing.B) {
	l, s, _ := recorded(b)
	for b.Loop() {
		if err := l.Run(s); err != nil {
			b.Fatal(err)
		}
	}
}
