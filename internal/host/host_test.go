package host

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestModel(t *testing.T) {
	if got := model("processor\t: 0\nmodel name\t: Some CPU @ 2.0: GHz\nmodel name\t: other\n"); got != "Some CPU @ 2.0: GHz" {
		t.Errorf("%q", got)
	}
	if got := model("Features : fp asimd\n"); got != runtime.GOARCH {
		t.Errorf("%q", got)
	}
	if c := CPU(); c.Model == "" || c.CPUs < 1 {
		t.Errorf("%+v", c)
	}
}

func TestMemoryTexts(t *testing.T) {
	if n := kilobytes(field("MemTotal: 1 kB\nMemAvailable:   16384 kB\n", "MemAvailable")); n != 16384<<10 {
		t.Errorf("%d", n)
	}
	if limit("max\n") != 0 || limit("1073741824\n") != 1<<30 || limit("") != 0 || kilobytes("") != 0 {
		t.Error("limits")
	}
	for text, want := range map[string]string{"always [madvise] never\n": "madvise", "[never]": "never", "": "", "none": ""} {
		if got := chosen(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if m := Mem(); runtime.GOOS == "linux" && m.TotalBytes < 1<<20 {
		t.Errorf("%+v", m)
	}
}

func TestFindGPUs(t *testing.T) {
	root := t.TempDir()
	if g := FindGPUs(root); g.Driver != "" || g.Library != "" || len(g.Names) != 0 {
		t.Errorf("nothing there: %+v", g)
	}
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\nGCC version: 12.3.0\n")
	write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\nIRQ: 1\n")
	write("usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
	g := FindGPUs(root)
	if g.Driver != "550.54.15" || len(g.Names) != 1 || g.Names[0] != "NVIDIA H200" || filepath.Base(g.Library) != "libcuda.so.1" {
		t.Errorf("%+v", g)
	}
}
