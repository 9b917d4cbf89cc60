package lint

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
)

// allowed lists, per package, the packages of ours it may import, tests apart; docs/design/0001 says why.
// A package or an edge that is not listed fails. "internal/simd/*" stands for each package below.
var allowed = map[string][]string{
	"attn":                  {},
	"plan":                  {"attn"},
	"kvcache":               {},
	"kvcache/flat":          {},
	"sample":                {},
	"tokenizer":             {"internal/quote"},
	"weights/quant":         {},
	"weights":               {"weights/quant"},
	"weights/gguf":          {"weights", "weights/quant", "weights/internal/*", "internal/quote"},
	"weights/safetensors":   {"weights", "weights/quant", "weights/internal/*", "internal/quote"},
	"weights/internal/*":    {"weights", "weights/quant"},
	"ops":                   {"plan", "attn", "weights/quant"},
	"model":                 {"ops", "plan", "attn", "weights", "weights/quant", "internal/quote"},
	"engine":                {"model", "ops", "plan", "attn", "kvcache", "sample", "tokenizer"},
	"backend/ref":           {"ops", "plan", "attn", "weights/quant", "internal/*"},
	"backend/cpu":           {"ops", "plan", "attn", "weights/quant", "internal/*", "kvcache/flat"},
	"backend/cuda":          {"ops", "plan", "attn", "weights/quant", "internal/*", "kernels", "backend/cuda/*"},
	"backend/cuda/*":        {"plan", "attn", "weights/quant", "internal/*", "kernels", "kvcache", "backend/cuda/*"},
	"backend/backendtest":   {"backend/ref", "ops", "plan", "attn", "weights/quant", "internal/testkit"},
	"kernels":               {},
	"kernels/internal/*":    {"kernels", "kernels/internal/*"}, // the build's programs
	"kernels/primtest":      {},
	"models/tiny":           {},
	"internal/simd":         {},
	"internal/simd/*":       {"internal/simd", "internal/simd/*", "weights/quant"},
	"internal/mem":          {},
	"internal/pool":         {},
	"internal/quote":        {},
	"internal/testkit":      {},
	"internal/lint":         {},
	".":                     {"*"},
	"cmd/flashdecode":       {"*"},
	"cmd/flashdecode/*":     {"*"},
	"bench/*":               {"*"},
	"internal/bench":        {"*"},
	"internal/*":            {"ops", "plan", "attn", "weights", "weights/quant", "kvcache", "internal/*"},
	"serve/openai":          {"engine", "tokenizer", "sample"},
	"internal/cuda":         {"internal/cuda/driver"},
	"internal/cuda/driver":  {},
	"internal/cuda/*":       {"internal/cuda", "internal/cuda/driver", "attn"},
	"examples/*":            {"*"},
	"backend/cpu/internal*": {"ops", "plan", "attn", "weights/quant", "internal/*"},
}

// outside lists the modules a package may import besides the standard library; most may none.
var outside = map[string][]string{
	"tokenizer":            {"golang.org/x/text"},
	"weights/internal/*":   {"golang.org/x/sys"},
	"weights/gguf":         {"golang.org/x/sys"},
	"kvcache/flat":         {"golang.org/x/sys"},
	"internal/*":           {"golang.org/x/sys"},
	"internal/chat":        {"github.com/ardanlabs/jinja"},
	"backend/cpu":          {"golang.org/x/sys"},
	"backend/cuda":         {"golang.org/x/sys"},
	"internal/cuda/driver": {"github.com/ebitengine/purego"},
	".":                    {"*"},
	"cmd/flashdecode":      {"*"},
	"cmd/flashdecode/*":    {"*"},
	"bench/*":              {"*"},
}

// only lists the packages that may import what few may: libcuda is opened by the dynamic linker, so that whatever
// imports these can't be linked statically.
var only = map[string][]string{
	"internal/cuda*": {"internal/cuda*", "backend/cuda*"},
}

// match reports whether name is pattern, or below it where the pattern ends in a star; "*" is everything.
func match(pattern, name string) bool {
	if pattern == "*" {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix) && name != "."
	}
	return pattern == name
}

// lookup finds the entry for name: its own, or the longest pattern.
func lookup(table map[string][]string, name string) ([]string, bool) {
	best, found := "", false
	for p := range table {
		if match(p, name) && (p == name || len(p) > len(best) && best != name) {
			best, found = p, true
		}
	}
	return table[best], found
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if match(p, name) {
			return true
		}
	}
	return false
}

// checkImports returns what file imports against the tables.
func checkImports(s *source) (bad []string) {
	ours, known := lookup(allowed, s.pkg())
	if !known {
		return []string{fmt.Sprintf("%s: package %s is not in the table of internal/lint", s.name, s.pkg())}
	}
	theirs, _ := lookup(outside, s.pkg())
	for _, im := range s.ast.Imports {
		p, _ := strconv.Unquote(im.Path.Value)
		switch rel, in := strings.CutPrefix(p+"/", module+"/"); {
		case in:
			rel = path.Clean(rel)
			if !matchAny(ours, rel) || strings.HasPrefix(rel, "cmd/") || rel == "internal/testkit" && s.pkg() != "backend/backendtest" {
				bad = append(bad, fmt.Sprintf("%s: %s must not import %s", s.name, s.pkg(), rel))
			}
			for pattern, who := range only {
				if match(pattern, rel) && !matchAny(who, s.pkg()) {
					bad = append(bad, fmt.Sprintf("%s: only %v may import %s", s.name, who, rel))
				}
			}
		case strings.Contains(strings.SplitN(p, "/", 2)[0], "."): // a module, not the standard library
			ok := false
			for _, m := range theirs {
				ok = ok || m == "*" || p == m || strings.HasPrefix(p, m+"/")
			}
			if !ok {
				bad = append(bad, fmt.Sprintf("%s: %s must not import %s", s.name, s.pkg(), p))
			}
		case p == "C":
			bad = append(bad, s.name+": no cgo")
		}
	}
	return bad
}

func TestImports(t *testing.T) {
	for _, s := range goFiles(t) {
		if s.test() {
			continue // tests may use any package: the compiler forbids cycles
		}
		for _, b := range checkImports(s) {
			t.Error(b)
		}
	}
}

func TestImportsRule(t *testing.T) {
	for _, c := range []struct{ file, imports string }{
		{"attn/x.go", module + "/plan"},
		{"attn/x.go", "golang.org/x/sys/cpu"},
		{"backend/cpu/x.go", module + "/engine"},
		{"backend/cpu/x.go", module + "/model"},
		{"engine/x.go", module + "/backend/cpu"},
		{"model/x.go", module + "/weights/gguf"},
		{"internal/pool/x.go", module + "/internal/testkit"},
		{"ops/x.go", module + "/cmd/flashdecode"},
		{"cmd/flashdecode/x.go", module + "/internal/cuda"},
		{"internal/host/x.go", module + "/internal/cuda/driver"},
		{"internal/cuda/x.go", "github.com/ebitengine/purego"},
		{"nowhere/x.go", "fmt"},
		{"ops/x.go", "C"},
	} {
		s := mustParse(t, c.file, "package x\nimport _ \""+c.imports+"\"\n")
		if checkImports(s) == nil {
			t.Errorf("%s may import %s", c.file, c.imports)
		}
	}
	for _, c := range []struct{ file, imports string }{
		{"plan/x.go", module + "/attn"},
		{"plan/x.go", "math/rand/v2"},
		{"x.go", module + "/engine"},
		{"backend/cuda/attention/x.go", module + "/internal/cuda"},
		{"internal/cuda/cudatest/x.go", module + "/internal/cuda/driver"},
		{"internal/cuda/driver/x.go", "github.com/ebitengine/purego"},
		{"internal/simd/vec/x.go", "golang.org/x/sys/cpu"},
		{"internal/simd/vec/x.go", module + "/weights/quant"},
		{"cmd/flashdecode/x.go", module},
	} {
		s := mustParse(t, c.file, "package x\nimport _ \""+c.imports+"\"\n")
		if bad := checkImports(s); bad != nil {
			t.Error(bad)
		}
	}
}
