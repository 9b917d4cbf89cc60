package abi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// cField is the name that a Go field has in the header: words of its name, in which capitals in a row are one word.
func cField(name string) string {
	var b strings.Builder
	upper := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}

// mirrors are the Go structs and their names in C.
var mirrors = []struct {
	c      string
	mirror reflect.Type
}{
	{"FdDecodeParams", reflect.TypeFor[DecodeParams]()},
	{"FdItem", reflect.TypeFor[Item]()},
	{"FdMergeItem", reflect.TypeFor[Merge]()},
	{"FdMergePairsParams", reflect.TypeFor[MergePairsParams]()},
	{"FdNaiveParams", reflect.TypeFor[NaiveParams]()},
	{"FdKvRows", reflect.TypeFor[KvRows]()},
	{"FdAppendParams", reflect.TypeFor[AppendParams]()},
	{"FdCopyPagesParams", reflect.TypeFor[CopyPagesParams]()},
	{"FdPlanParams", reflect.TypeFor[PlanParams]()},
	{"FdPlanHeader", reflect.TypeFor[PlanHeader]()},
	{"FdPlanUnit", reflect.TypeFor[PlanUnit]()},
	{"FdCheckParams", reflect.TypeFor[CheckParams]()},
	{"FdFillParams", reflect.TypeFor[FillParams]()},
	{"FdReadParams", reflect.TypeFor[ReadParams]()},
	{"FdReferenceParams", reflect.TypeFor[ReferenceParams]()},
}

const headers = "#include \"attention/params.h\"\n#include \"attention/params_prefill.h\"\n#include \"attention/params_check.h\"\n#include \"bench/params_bench.h\"\n"

// runC compiles a C++ main over the kernels' headers and returns what it prints.
func runC(t *testing.T, includes, body string) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no g++ to compile params.h with")
		}
		t.Skip("no g++ to compile params.h with")
	}
	dir := t.TempDir()
	src := "#include <cstdio>\n#include <cstddef>\n#include <initializer_list>\n" + includes + "\nint main() {\n" + body + "\nreturn 0; }\n"
	if err := os.WriteFile(filepath.Join(dir, "m.cpp"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../../../kernels")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "m")
	if out, err := exec.Command("g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-I", root, "-o", exe, filepath.Join(dir, "m.cpp")).CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestMirrors compares sizes and offsets.
func TestMirrors(t *testing.T) {
	var body, want strings.Builder
	for _, m := range mirrors {
		fmt.Fprintf(&body, "printf(\"%s %%zu\\n\", sizeof(%s));\n", m.c, m.c)
		fmt.Fprintf(&want, "%s %d\n", m.c, m.mirror.Size())
		for i := range m.mirror.NumField() {
			f := m.mirror.Field(i)
			name := cField(f.Name)
			fmt.Fprintf(&body, "printf(\"%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s*)0)->%s));\n", m.c, name, m.c, name, m.c, name)
			fmt.Fprintf(&want, "%s.%s %d %d\n", m.c, name, f.Offset, f.Type.Size())
		}
	}
	diff(t, runC(t, headers, body.String()), want.String())
}

// TestArithmetic compares the launch arithmetic with the header's.
func TestArithmetic(t *testing.T) {
	var want strings.Builder
	for _, dim := range []int{64, 128, 256} {
		for rows := 1; rows <= 16; rows++ {
			for p := 1; p <= 132; p++ {
				l := SliceLog2(rows, dim, p)
				fmt.Fprintf(&want, "%d %d\n", l, BoxBytes(rows, dim, p, l))
			}
		}
		for _, size := range []int{1, 2} {
			for _, w := range []int{4, 8} {
				s := DecodeStages(dim*size, w)
				fmt.Fprintf(&want, "%d %d %d\n", s, DecodeShared(dim*size, dim, 8, w, s), DecodeShared(dim*size, dim, 16, w, s))
			}
		}
	}
	for _, dim := range []int{64, 96, 128, 256} {
		fmt.Fprintln(&want, PrefillThreads(dim)/32, PrefillRows, PrefillShared(dim), PrefillGroupShared(dim), PrefillGroupThreads)
	}
	for x := 1; x <= 128; x++ {
		fmt.Fprintln(&want, Reciprocal(x))
	}
	fmt.Fprintf(&want, "%d %d %d %d %d %d %d %d %d %d %d %d %d\n", TileTokens, FlagCausal, FlagEarlyKV, FlagPartials, FaultPage, FlagOptions, MergeF4, NaiveTokens, PlanThreads, PlanScratch(7, 100), LatentThreads, LatentShared, FlagResident)
	for bits := range 64 {
		p := DecodeParams{QLen: 1 + int32(bits&1), WindowLeft: int32(bits>>1&1) - 1, WindowRight: -1, QIndptr: uint64(bits >> 2 & 1),
			TableIndptr: uint64(bits >> 3 & 1), SeqBase: uint64(bits >> 4 & 1), Items: uint64(bits >> 5 & 1)}
		p.SetFlags(FlagCausal)
		fmt.Fprintln(&want, p.Flags)
	}
	diff(t, runC(t, headers, `
for (int dim : {64, 128, 256}) {
  for (int rows = 1; rows <= 16; rows++)
    for (int p = 1; p <= 132; p++) {
      int l = fd_slice_log2(rows, dim, p);
      printf("%d %llu\n", l, (unsigned long long)fd_box_bytes(rows, dim, p, l));
    }
  for (int size : {1, 2})
    for (int w : {4, 8}) {
      int s = fd_decode_stages(dim * size, w);
      printf("%d %u %u\n", s, fd_decode_smem(dim * size, dim, 8, w, s), fd_decode_smem(dim * size, dim, 16, w, s));
    }
}
for (int d : {64, 96, 128, 256})
  printf("%d %d %d %d %d\n", fd_prefill_warps(d), fd_prefill_rows(d), fd_prefill_shared_bytes(d), fd_prefill_wg_shared_bytes(d), FD_PREFILL_WG_THREADS);
for (int x = 1; x <= 128; x++) printf("%u\n", fd_reciprocal(x));
printf("%d %d %d %d %d %d %d %d %d %d %d %d %d\n", FD_TILE_TOKENS, FD_CAUSAL, FD_EARLY_KV, FD_PARTIALS, FD_FAULT_PAGE, FD_OPTIONS, FD_MERGE_F4, FD_NAIVE_TOKENS, FD_PLAN_THREADS, (int)fd_plan_scratch(7, 100), FD_MLA_THREADS, FD_MLA_SHARED_BYTES, FD_RESIDENT);
for (int b = 0; b < 64; b++)
  printf("%d\n", fd_decode_flags(FD_CAUSAL, 1 + (b & 1), (b >> 1 & 1) - 1, -1, b >> 2 & 1, b >> 3 & 1, b >> 4 & 1, b >> 5 & 1));`), want.String())
}

// diff reports the first line that differs.
func diff(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("line %d: C++ has %q, Go has %q", i+1, a, b)
		}
	}
}
