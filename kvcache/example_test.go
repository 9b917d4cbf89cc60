package kvcache_test

import (
	"fmt"

	"github.com/flashdecode/flashdecode/kvcache"
)

// A second request with the same beginning computes only what is new.
func Example() {
	pool, err := kvcache.NewPool(64, 4)
	if err != nil {
		panic(err)
	}
	system := []int32{5, 6, 7, 8, 9, 10, 11, 12} // two full pages

	first := pool.NewSeq("")
	prompt := append(system[:8:8], 1, 2, 3)
	n := pool.Lookup(first, prompt)
	if _, err := pool.Grow(first, len(prompt)-n); err != nil {
		panic(err) // ErrFull: free another sequence and try again
	}
	fmt.Println("first: compute", len(prompt)-n, "tokens into pages", first.Table())
	pool.Commit(first, prompt) // after the step

	second := pool.NewSeq("")
	prompt = append(system[:8:8], 4, 4)
	n = pool.Lookup(second, prompt)
	if _, err := pool.Grow(second, len(prompt)-n); err != nil {
		panic(err)
	}
	fmt.Println("second: compute", len(prompt)-n, "tokens, pages", second.Table())

	// Output:
	// first: compute 11 tokens into pages [0 1 2]
	// second: compute 2 tokens, pages [0 1 33]
}
