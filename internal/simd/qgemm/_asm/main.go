// Command asm generates the assembly of qgemm. See the go:generate lines in ../gen.go.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

var part = flag.String("part", "", "what to generate")

var parts = map[string]func(){
	"tile512": func() {
		for _, f := range formats {
			for height := 1; height <= 8; height++ {
				tile512(f, height)
			}
		}
		read512()
	},
	"tile2": func() {
		for _, f := range formats {
			tile2(f, 1)
			tile2(f, 2)
		}
		read2()
	},
	"pack": func() {
		for _, f := range packFormats {
			pack(f)
		}
	},
	"acts": quantizeAVX2,
}

func main() {
	flag.Parse()
	emit := parts[*part]
	if emit == nil {
		log.Fatalf("asm: no part %q", *part)
	}
	ConstraintExpr("amd64,!noasm")
	emit()
	Generate()
}
