package driver

import (
	"strings"
	"testing"
)

func TestSymbols(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Symbols() {
		if !strings.HasPrefix(s.Name, "cu") || s.Since < 2000 || s.Since > 13000 || s.Since%10 != 0 || seen[s.Name] {
			t.Errorf("symbol %+v", s)
		}
		seen[s.Name] = true
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		v      Version
		text   string
		branch int
	}{
		{12000, "12.0", 525}, {12040, "12.4", 550}, {12041, "12.4", 555}, {11060, "11.6", 510}, {10020, "10.2", 470},
		{13000, "13.0", 580}, {13010, "13.1", 0},
	} {
		if c.v.String() != c.text || c.v.Branch() != c.branch {
			t.Errorf("%d: %v, driver %d, want %s, %d", int(c.v), c.v, c.v.Branch(), c.text, c.branch)
		}
	}
}

func TestResult(t *testing.T) {
	for r, want := range map[Result]string{
		IllegalAddress: "CUDA_ERROR_ILLEGAL_ADDRESS (700)", 12345: "CUresult 12345", Success: "CUDA_SUCCESS (0)", -1: "CUresult -1",
	} {
		if r.String() != want {
			t.Errorf("%d: %v, want %s", int32(r), r, want)
		}
	}
}
