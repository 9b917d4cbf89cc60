package plan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestGolden reviews plans as text. Each block of testdata/*.txt is a line of what is asked, "----", what
// is printed, and "====".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var anew strings.Builder
		for _, block := range strings.SplitAfter(string(data), "====\n") {
			if strings.TrimSpace(block) == "" {
				continue
			}
			ask, want, ok := strings.Cut(strings.TrimLeft(block, "\n"), "\n----\n")
			if !ok {
				t.Fatalf("%s: block without ----: %q", file, block)
			}
			got := answer(ask) + "====\n"
			fmt.Fprintf(&anew, "%s\n----\n%s\n", ask, got)
			if got != want && !*rewrite {
				t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", file, ask, got, want)
			}
		}
		if *rewrite {
			if err := os.WriteFile(file, []byte(anew.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answer plans what a line asks: device=cpu:2 policy=auto heads=9/3/64 bytes=256 page=16 tile=0
// seqs=16384,q8:512,512@256 (q8: eight query rows; @256: from token 256 on; 4*512: four of them).
func answer(ask string) string {
	shape, lim, pol := Shape{PageSize: 16, Causal: true}, CPU(2), Auto()
	var seqs []Seq
	for _, field := range strings.Fields(ask) {
		key, arg, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "device":
			lim, err = ParseLimits(arg, 2)
		case "policy":
			pol, err = ParsePolicy(arg)
		case "heads":
			_, err = fmt.Sscanf(arg, "%d/%d/%d", &shape.QHeads, &shape.KVHeads, &shape.HeadDim)
		case "bytes":
			shape.TokenBytes, err = strconv.Atoi(arg)
		case "page":
			shape.PageSize, err = strconv.Atoi(arg)
		case "tile":
			lim.QTile, err = strconv.Atoi(arg)
		case "seqs":
			seqs, err = parseSeqs(arg)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return err.Error() + "\n"
		}
	}
	r, err := NewReport(shape, seqs, lim, pol)
	if err != nil {
		return err.Error() + "\n"
	}
	return r.String()
}

func parseSeqs(arg string) (seqs []Seq, err error) {
	for _, one := range strings.Split(arg, ",") {
		s, times := Seq{QLen: 1}, 1
		if n, rest, ok := strings.Cut(one, "*"); ok {
			if times, err = strconv.Atoi(n); err != nil {
				return nil, err
			}
			one = rest
		}
		num := func(text string) int32 {
			n, e := strconv.ParseInt(text, 10, 32)
			if e != nil {
				err = e
			}
			return int32(n)
		}
		if q, rest, ok := strings.Cut(one, ":"); ok {
			s.QLen, one = num(strings.TrimPrefix(q, "q")), rest
		}
		if rest, first, ok := strings.Cut(one, "@"); ok {
			s.First, one = num(first), rest
		}
		s.KVLen = num(one)
		for range times {
			seqs = append(seqs, s)
		}
	}
	return seqs, err
}
