// Command asm generates the assembly bodies of package vec.
//
//	go run . -isa avx512 -out ../zavx512_amd64.s -stubs ../zavx512_amd64.go -pkg vec
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	name := flag.String("isa", "", "avx2 or avx512")
	flag.Parse()
	var s isa
	switch *name {
	case "avx2":
		s = isa{suffix: "AVX2", lanes: 8}
	case "avx512":
		s = isa{suffix: "AVX512", lanes: 16}
	default:
		log.Fatalf("vec/_asm: -isa %q, want avx2 or avx512", *name)
	}
	ConstraintExpr("amd64,!noasm")
	s.tables()
	s.elementwise()
	s.reductions()
	s.activations()
	s.ropes()
	s.conversions()
	Generate()
}
