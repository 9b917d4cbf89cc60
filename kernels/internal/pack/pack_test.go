package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/kernels"
)

const report = `
Resource usage:
 Common:
  GLOBAL:0
 Function fd_a:
  REG:32 STACK:0 SHARED:2048 LOCAL:0 CONSTANT[2]:16 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function fd_b:
  REG:255 STACK:40 SHARED:0 LOCAL:8 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
`

func TestResources(t *testing.T) {
	got, err := resources([]byte(report), "sm_90a")
	want := []kernels.Function{
		{Name: "fd_a", Registers: 32, SharedBytes: 1024, ParamBytes: 560 - 0x210},
		{Name: "fd_b", Registers: 255, StackBytes: 48, ParamBytes: 536 - 0x210},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := resources([]byte(report), "sm_80"); err != nil || got[0].SharedBytes != 2048 || got[0].ParamBytes != 560-0x160 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := resources([]byte(report+" Function fd_c:\n  REG:many\n"), "sm_80"); err == nil {
		t.Errorf("a line that was not understood went unnoticed: %v", got)
	}
}

func TestDescriptor(t *testing.T) {
	const good = "LDGSTS.E.BYPASS.128.ZFILL [R13], desc[UR12][R6.64], P1 ;"
	if bad := descriptor.FindString("/*0330*/ " + good); bad != "" {
		t.Errorf("refused: %s", bad)
	}
	if bad := descriptor.FindString("/*0400*/ LDGSTS.E.BYPASS.128 [R11+UR0+0x400], desc[UR1][R4.64] ;\n" + good); !strings.Contains(bad, "[R11+UR0+0x400]") {
		t.Errorf("found %q", bad)
	}
}

func TestEntries(t *testing.T) {
	got := entries([]byte(".version 9.0\n.visible .entry fd_a(\n.param .u64 x\n)\n{}\n.visible .func f\n.visible .entry fd_b(\n"))
	if len(got) != 2 || got[0].Name != "fd_a" || got[1].Name != "fd_b" {
		t.Errorf("%v", got)
	}
}

// TestCompare: what write stores compares equal, and each kind of difference is found.
func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	m := &kernels.Manifest{Compiler: "nvcc", Images: []kernels.Image{
		{Unit: "a", Target: "sm_80", SHA256: "1", Functions: []kernels.Function{{Name: "fd_a", Registers: 9}}},
	}}
	images := map[string][]byte{"a.sm_80": []byte("machine code"), "b.sm_80": []byte("more of it")}
	if err := write(m, images, ""); err != nil {
		t.Fatal(err)
	}
	if err := compare(m, images); err != nil {
		t.Errorf("equal: %v", err)
	}
	text, err := os.ReadFile("manifest.json")
	if err != nil || !strings.Contains(string(text), "\n    { \"name\": \"fd_a\", \"registers\": 9 }\n") {
		t.Errorf("%s, %v", text, err)
	}
	differs := func(what string, m *kernels.Manifest, images map[string][]byte) {
		t.Helper()
		if compare(m, images) == nil {
			t.Errorf("%s: no difference found", what)
		}
	}
	differs("a byte", m, map[string][]byte{"a.sm_80": []byte("machine cod0"), "b.sm_80": images["b.sm_80"]})
	differs("an image more", m, map[string][]byte{"a.sm_80": images["a.sm_80"], "b.sm_80": images["b.sm_80"], "c.sm_80": nil})
	differs("an image less", m, map[string][]byte{"a.sm_80": images["a.sm_80"]})
	differs("the manifest", &kernels.Manifest{}, images)
	if err := os.WriteFile(filepath.Join("bin", "a.sm_80.gz"), []byte("not gzip"), 0o666); err != nil {
		t.Fatal(err)
	}
	differs("a damaged file", m, images)
	if err := write(m, map[string][]byte{"a.sm_80": images["a.sm_80"]}, ""); err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob("bin/*"); len(names) != 1 {
		t.Errorf("an image that is no more stayed: %v", names)
	}
}
