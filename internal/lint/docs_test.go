package lint

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// symbols maps "attn.State", "attn.State.Merge" and "attn.Merge" to true, for every way to spell the
// package: its path or its last element.
func symbols(files []*source) map[string]bool {
	all := map[string]bool{}
	for _, s := range files {
		add := func(name string) {
			all[s.pkg()+"."+name] = true
			all[path.Base(s.pkg())+"."+name] = true
			if s.pkg() == "." {
				all["flashdecode."+name] = true
			}
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if r := receiver(d); r != "" {
					add(r + "." + d.Name.Name)
				} else {
					add(d.Name.Name)
				}
			case *ast.GenDecl:
				for _, sp := range d.Specs {
					addSpec(sp, add)
				}
			}
		}
	}
	return all
}

func addSpec(sp ast.Spec, add func(string)) {
	switch sp := sp.(type) {
	case *ast.ValueSpec:
		for _, n := range sp.Names {
			add(n.Name)
		}
	case *ast.TypeSpec:
		add(sp.Name.Name)
		var fields *ast.FieldList
		switch ty := sp.Type.(type) {
		case *ast.StructType:
			fields = ty.Fields
		case *ast.InterfaceType:
			fields = ty.Methods
		default:
			return
		}
		for _, f := range fields.List {
			for _, n := range f.Names {
				add(sp.Name.Name + "." + n.Name)
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

var (
	inCode = regexp.MustCompile(`(?i)^\W*in code:`)
	ticked = regexp.MustCompile("`([^`]+)`")
)

// missing returns the names in backticks on "In code:" lines, and on the lines that continue them, that are
// neither a symbol nor a file.
func missing(doc string, known map[string]bool, exists func(string) bool) (bad []string) {
	within := false
	for _, line := range strings.Split(doc, "\n") {
		within = inCode.MatchString(line) || within && strings.TrimSpace(line) != ""
		if !within {
			continue
		}
		for _, m := range ticked.FindAllStringSubmatch(line, -1) {
			name := strings.TrimSuffix(m[1], "()")
			if !known[name] && !exists(name) {
				bad = append(bad, name)
			}
		}
	}
	return bad
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

func TestDocsNameSymbols(t *testing.T) {
	known := symbols(goFiles(t))
	docs, err := filepath.Glob(filepath.Join(root, "docs", "math", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		text, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?im)^\W*in code:`).Match(text) {
			t.Errorf("%s: no line \"In code:\"", filepath.Base(d))
		}
		for _, name := range missing(string(text), known, exists) {
			t.Errorf("%s: `%s` is neither a symbol nor a file", filepath.Base(d), name)
		}
	}
}

func TestSymbolsRule(t *testing.T) {
	s := mustParse(t, "a/attn/x.go", "package attn\ntype T[K any] struct{ L int }\nfunc (t *T[K]) M() {}\nfunc F() {}\nvar V int\ntype I interface{ N() }\n")
	known := symbols([]*source{s})
	doc := "`not.checked`\n\n**In code:** `attn.T`, `attn.T.L`, `attn.T.M()`, `attn.F`,\n`a/attn.V`, `attn.I.N`, `go.mod`, `attn.G`\n\n`not.either`\n"
	if got := strings.Join(missing(doc, known, exists), " "); got != "attn.G" {
		t.Errorf("missing: %q", got)
	}
}

// modules returns the requirements of a go.mod, path to version.
func modules(text string) map[string]string {
	all := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		w := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(w) == 2 && strings.HasPrefix(w[1], "v") {
			all[w[0]] = w[1]
		}
	}
	return all
}

// undocumented returns the modules that docs/dependencies.md has no line for, or another version.
func undocumented(mods map[string]string, doc string) (bad []string) {
	for m, v := range mods {
		if !strings.Contains(doc, "| `"+m+"` | "+v+" |") {
			bad = append(bad, m+" "+v)
		}
	}
	return bad
}

func TestDependencies(t *testing.T) {
	doc := string(read(t, "docs/dependencies.md"))
	mods := modules(string(read(t, "go.mod")))
	if len(mods) == 0 {
		t.Error("go.mod has no requirements: read wrongly")
	}
	for _, m := range undocumented(mods, doc) {
		t.Errorf("docs/dependencies.md has no line \"| `%s` | … |\" in this version", m)
	}
	got := modules("module x\nrequire a.b/c v1.2.3 // indirect\nrequire (\n\td.e/f v0.1.0\n)\n")
	if len(got) != 2 || got["a.b/c"] != "v1.2.3" || got["d.e/f"] != "v0.1.0" {
		t.Errorf("modules: %v", got)
	}
	if bad := undocumented(got, "| `a.b/c` | v1.2.4 |\n| `d.e/f` | v0.1.0 |"); len(bad) != 1 {
		t.Errorf("undocumented: %v", bad)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: a relative link in a document leads to a file.
func TestLinks(t *testing.T) {
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, ".md") || strings.Contains(name, "testdata/") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(read(t, name)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			if !exists(path.Join(path.Dir(name), target)) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
}

// TestBackendWidth: ops.Backend stays an interface of fused operations, not a tensor library.
func TestBackendWidth(t *testing.T) {
	const most = 16
	n := 0
	for name := range symbols(goFiles(t)) {
		if strings.HasPrefix(name, "ops.Backend.") {
			n++
		}
	}
	if n == 0 || n > most {
		t.Errorf("ops.Backend has %d methods, %d are allowed: see docs/design/0002-ops-not-tensors.md", n, most)
	}
}
