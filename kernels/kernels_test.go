package kernels

import (
	"errors"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/kernels/internal/source"
)

// spills lists functions that may use stack, with the reason. Every other one must not: a spilled register in a loop over the KV cache
// is read back for each tile.
var spills = map[string]string{}

func read(t *testing.T) *Manifest {
	t.Helper()
	m, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEmbedded: the images are what the manifest says, and there are no others.
func TestEmbedded(t *testing.T) {
	m := read(t)
	entries, err := files.ReadDir("bin")
	if err != nil {
		t.Fatal(err)
	}
	unlisted := map[string]bool{}
	for _, e := range entries {
		unlisted[e.Name()] = true
	}
	for i := range m.Images {
		im := &m.Images[i]
		delete(unlisted, im.Name()+".gz")
		b, err := im.Load() // checks the hash
		if err != nil {
			t.Error(err)
			continue
		}
		ptx := strings.HasPrefix(im.Target, "compute_")
		if want := im.Bytes; ptx && len(b) != want+1 || !ptx && len(b) != want {
			t.Errorf("%s has %d bytes, the manifest says %d", im.Name(), len(b), want)
		}
		if elf := strings.HasPrefix(string(b), "\x7fELF"); elf == ptx {
			t.Errorf("%s starts with %q", im.Name(), b[:4])
		}
		if ptx && b[len(b)-1] != 0 {
			t.Errorf("%s does not end with a zero byte", im.Name())
		}
	}
	for name := range unlisted {
		t.Errorf("bin/%s is not in the manifest: run make kernels", name)
	}
}

// TestSources: each unit is in the manifest for each target, compiled from the sources beside this file.
func TestSources(t *testing.T) {
	units, err := source.Units(".")
	if err != nil {
		t.Fatal(err)
	}
	m, compiled := read(t), map[string]int{}
	for _, im := range m.Images {
		compiled[im.Unit]++
		if units[im.Unit] == "" {
			t.Errorf("%s has no source: run make kernels", im.Name())
			continue
		}
		if want, err := source.Hash(".", units[im.Unit]); err != nil || im.Source != want {
			t.Errorf("%s is older than its sources (%v): run make kernels", im.Name(), err)
		}
	}
	for unit := range units {
		if compiled[unit] != 3 {
			t.Errorf("%s is compiled for %d targets, want 3: run make kernels", unit, compiled[unit])
		}
	}
}

func TestStack(t *testing.T) {
	used := map[string]bool{}
	for _, im := range read(t).Images {
		for _, f := range im.Functions {
			if f.StackBytes > 0 {
				used[f.Name] = true
			}
			if f.StackBytes > 0 && spills[f.Name] == "" {
				t.Errorf("%s: %s keeps %d bytes a thread on the stack: spilled registers or an indexed array", im.Name(), f.Name, f.StackBytes)
			}
			if im.Target != "compute_80" && (f.Registers < 8 || f.Registers > 255 || f.ParamBytes <= 0 || f.ParamBytes > 4096) {
				t.Errorf("%s: %+v", im.Name(), f)
			}
		}
	}
	for name := range spills {
		if !used[name] {
			t.Errorf("%s does not need its line in spills", name)
		}
	}
}

// example has a function everywhere, and one only on sm_90.
func example() *Manifest {
	both, one := []Function{{Name: "a"}, {Name: "b"}}, []Function{{Name: "a"}}
	return &Manifest{Images: []Image{
		{Unit: "u", Target: "compute_80", SHA256: "1", Functions: one},
		{Unit: "u", Target: "sm_80", SHA256: "2", Functions: one},
		{Unit: "u", Target: "sm_90a", SHA256: "3", Functions: both},
		{Unit: "v", Target: "sm_90a", SHA256: "4", Functions: []Function{{Name: "c"}}},
	}}
}

func TestFind(t *testing.T) {
	m := example()
	for _, c := range []struct {
		device Capability
		name   string
		target string // or, of an error, a part
	}{
		{Capability{7, 5}, "a", "no kernel for sm_75: devices from sm_80"},
		{Capability{8, 0}, "a", "sm_80"},
		{Capability{8, 9}, "a", "sm_80"},
		{Capability{9, 0}, "a", "sm_90a"},
		{Capability{10, 0}, "a", "compute_80"},
		{Capability{12, 1}, "a", "compute_80"},
		{Capability{9, 0}, "b", "sm_90a"},
		{Capability{8, 6}, "b", "b is not compiled for sm_86 (sm_80), only for sm_90a"},
		{Capability{9, 0}, "d", "nothing is called d"},
	} {
		im, f, err := m.Find(c.device, c.name)
		switch {
		case err != nil && (!errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), c.target)):
			t.Errorf("%v %s: %v, want %s", c.device, c.name, err, c.target)
		case err == nil && (im.Target != c.target || f.Name != c.name):
			t.Errorf("%v %s: %s in %s, want %s", c.device, c.name, f.Name, im.Name(), c.target)
		}
	}
	if _, err := m.Image(Capability{8, 0}, "v"); !errors.Is(err, ErrNoKernel) {
		t.Errorf("v for sm_80: %v", err)
	}
	if u, err := m.Units(Capability{9, 0}); err != nil || len(u) != 2 {
		t.Errorf("%v, %v", u, err)
	}
	if _, err := m.Units(Capability{6, 1}); !errors.Is(err, ErrNoKernel) {
		t.Error(err)
	}
	bad := &Image{Unit: "none", Target: "sm_80"}
	if _, err := bad.Load(); err == nil {
		t.Error("an image that does not exist was loaded")
	}
	wrong := read(t).Images[0]
	wrong.SHA256 = "0"
	if _, err := wrong.Load(); err == nil || !strings.Contains(err.Error(), "run make kernels") {
		t.Errorf("an image of another hash was loaded: %v", err)
	}
}

func TestVerified(t *testing.T) {
	m, v := example(), new(Verified)
	run := func(images ...string) Run {
		r := Run{Date: "2026-01-31", GPU: "NVIDIA H200", Driver: "580.1", Passed: 3, Images: map[string]string{}}
		for i := range m.Images {
			for _, name := range images {
				if m.Images[i].Name() == name {
					r.Images[name] = m.Images[i].SHA256
				}
			}
		}
		return r
	}
	missing := func(want string) {
		t.Helper()
		if got := strings.Join(v.Missing(m, "sm_90a"), " "); got != want {
			t.Errorf("missing %q, want %q", got, want)
		}
	}
	enter := func(r Run, runs int, refusal string) {
		t.Helper()
		err := v.Enter(m, r)
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%v, want %q", err, refusal)
		}
		if len(v.Runs) != runs {
			t.Errorf("%d runs, want %d", len(v.Runs), runs)
		}
	}
	missing("u.sm_90a v.sm_90a")
	enter(Run{Passed: 1}, 0, "lacks")
	failed := run("u.sm_90a")
	failed.Failed = 1
	enter(failed, 0, "without failures")
	none := run("u.sm_90a")
	none.Passed = 0
	enter(none, 0, "without failures")
	other := run("u.sm_90a")
	other.Images["u.sm_90a"] = "9"
	enter(other, 0, "another u.sm_90a")
	enter(run("u.sm_90a"), 1, "")
	missing("v.sm_90a")
	enter(run("v.sm_90a"), 2, "") // the first run still speaks for u
	missing("")
	m.Images[2].SHA256 = "5" // u changes
	missing("u.sm_90a")
	enter(run("u.sm_90a", "v.sm_90a"), 1, "")
	missing("")
	if s := v.String(); !strings.Contains(s, "NVIDIA H200, driver 580.1: 3 tests passed") {
		t.Error(s)
	}
	if _, err := ReadVerified(); err != nil {
		t.Error(err)
	}
}

func BenchmarkLoad(b *testing.B) {
	m, err := Read()
	if err != nil {
		b.Fatal(err)
	}
	im := &m.Images[0]
	b.SetBytes(int64(im.Bytes))
	for b.Loop() {
		if _, err := im.Load(); err != nil {
			b.Fatal(err)
		}
	}
}
