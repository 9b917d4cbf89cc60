package source

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree writes files below a new folder and returns its kernels folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(root, "kernels")
}

func example() map[string]string {
	return map[string]string{
		"scripts/cuda.sh":          "wheels=(\n  nvidia-a==1  # x\n  nvidia-b==2\n  nvidia-c==3\n  nvidia-d==4\n)\n",
		"kernels/Makefile":         "ARCHS      = sm_80\nNVCCFLAGS  = -O3\nall:\n",
		"kernels/attention/a.cu":   "#include \"a.cuh\"\n#include \"../prim/prim.cuh\"\n#include <math.h>\n",
		"kernels/attention/a.cuh":  "#pragma once\n  # include \"a.cuh\"\n",
		"kernels/attention/b.cuh":  "// of another unit\n",
		"kernels/prim/prim.cuh":    "#ifdef GPU\n#include \"gpu.cuh\"\n#else\n#include \"cpu.h\"\n#endif\n",
		"kernels/prim/gpu.cuh":     "int gpu;\n",
		"kernels/prim/cpu.h":       "#include \"../emu/x.h\"\n",
		"kernels/prim/a_test.cu":   "",
		"kernels/attention/a_b.cu": "",
	}
}

func TestFiles(t *testing.T) {
	root := tree(t, example())
	got, err := Files(root, "attention/a.cu")
	want := []string{"attention/a.cu", "attention/a.cuh", "prim/gpu.cuh", "prim/prim.cuh"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	units, err := Units(root)
	if err != nil || len(units) != 3 || units["a_test"] != "prim/a_test.cu" {
		t.Errorf("%v, %v", units, err)
	}
	if err := os.Remove(filepath.Join(root, "prim", "gpu.cuh")); err != nil {
		t.Fatal(err)
	}
	if got, err := Files(root, "attention/a.cu"); err == nil {
		t.Errorf("a missing header went unnoticed: %v", got)
	}
}

func TestUnitsTwice(t *testing.T) {
	files := example()
	files["kernels/prim/a.cu"] = ""
	if u, err := Units(tree(t, files)); err == nil {
		t.Errorf("two units of one name: %v", u)
	}
}

// TestHash: it changes with what the images are made from, and with nothing else.
func TestHash(t *testing.T) {
	hash := func(files map[string]string) string {
		t.Helper()
		h, err := Hash(tree(t, files), "attention/a.cu")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash(example())
	for name, same := range map[string]bool{
		"kernels/attention/a.cu": false, "kernels/attention/a.cuh": false, "kernels/prim/gpu.cuh": false,
		"kernels/attention/b.cuh": true, "kernels/prim/cpu.h": true, "kernels/attention/a_b.cu": true,
		"kernels/Makefile": true, "scripts/cuda.sh": true,
	} {
		files := example()
		files[name] += "\n"
		if got := hash(files) == base; got != same {
			t.Errorf("a line more in %s: same hash is %v, want %v", name, got, same)
		}
	}
	files := example()
	files["kernels/Makefile"] = "ARCHS = sm_80\nNVCCFLAGS = -O2\n"
	if hash(files) == base {
		t.Error("other flags, same hash")
	}
	files = example()
	files["scripts/cuda.sh"] = "  nvidia-a==1\n  nvidia-b==2\n  nvidia-c==3\n  nvidia-d==5\n"
	if hash(files) == base {
		t.Error("other compiler, same hash")
	}
	files = example()
	files["kernels/attention/a.cuh"] = "#pragma once\r\n  # include \"a.cuh\"\r\n"
	if hash(files) != base {
		t.Error("carriage returns change the hash")
	}
	files["scripts/cuda.sh"] = ""
	if _, err := Hash(tree(t, files), "attention/a.cu"); err == nil {
		t.Error("no pinned packages, no error")
	}
}
