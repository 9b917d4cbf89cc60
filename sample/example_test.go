package sample_test

import (
	"fmt"

	"github.com/flashdecode/flashdecode/sample"
)

func Example() {
	p := sample.Default()
	p.Temperature, p.TopK, p.Seed = 0.8, 2, 42
	s, err := sample.NewSampler(p, 5)
	if err != nil {
		panic(err)
	}
	logits := []float32{0.1, 2.5, -1, 2.4, 0.3}
	for range 6 {
		tok, err := s.Next(logits)
		if err != nil {
			panic(err)
		}
		s.Observe(tok)
		fmt.Print(tok, " ")
	}

	p.TopP = 1.5
	fmt.Println(p.Validate())
	// Output:
	// 1 1 3 3 3 1 sample: top-p is 1.5: want a value in (0, 1] (1 is off)
}
