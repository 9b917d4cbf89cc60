package lint

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/flashdecode/flashdecode"

// root is the repository, seen from this package's folder.
const root = "../.."

// source is one parsed Go file. name is relative to the repository, with slashes.
type source struct {
	name  string
	text  []byte
	ast   *ast.File
	fset  *token.FileSet
	lines int
}

func (s *source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// pkg is the folder, "." for the root package.
func (s *source) pkg() string { return path.Dir(s.name) }

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func (s *source) generated() bool { return ast.IsGenerated(s.ast) }

func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{name, text, f, fset, strings.Count(string(text), "\n")}, nil
}

// mustParse is for the rules' own tests.
func mustParse(t *testing.T, name, text string) *source {
	t.Helper()
	s, err := parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sources returns every Go file of the module, whatever its build tags; testdata and the generators' own
// modules (_asm) are not part of it.
var sources = sync.OnceValues(func() ([]*source, error) {
	var all []*source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if b := d.Name(); name != "." && (strings.HasPrefix(b, ".") || strings.HasPrefix(b, "_") || b == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
})

func goFiles(t *testing.T) []*source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d Go files: looking in the wrong place", len(all))
	}
	return all
}

// exemptions are the lines of exempt.txt: rule, name, reason.
type exemptions struct{ unused map[[2]string]bool }

var exempt = sync.OnceValues(func() (*exemptions, error) {
	f, err := os.Open("exempt.txt")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e := &exemptions{map[[2]string]bool{}}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) >= 3 && !strings.HasPrefix(w[0], "#") {
			e.unused[[2]string{w[0], w[1]}] = true
		}
	}
	return e, nil
})

// exempted reports whether exempt.txt lets name off rule.
func exempted(t *testing.T, rule, name string) bool {
	t.Helper()
	e, err := exempt()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := e.unused[[2]string{rule, name}]; !ok {
		return false
	}
	e.unused[[2]string{rule, name}] = false
	return true
}

// stale reports the lines of exempt.txt that let nothing off rule.
func stale(t *testing.T, rule string) {
	t.Helper()
	e, err := exempt()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for k, unused := range e.unused {
		if unused && k[0] == rule {
			names = append(names, k[1])
		}
	}
	sort.Strings(names)
	for _, n := range names {
		t.Errorf("exempt.txt: %s %s is no longer needed", rule, n)
	}
}
