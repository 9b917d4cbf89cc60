package attn_test

import (
	"fmt"

	"github.com/flashdecode/flashdecode/attn"
)

// Two workers each take half of four positions; the merge gives what one pass over all of them gives.
func ExampleMerge() {
	logits := []float32{1, 3, 2, 0}
	values := [][]float32{{1, 0}, {0, 1}, {1, 1}, {0, 0}}

	left, right, all := attn.NewState(2), attn.NewState(2), attn.NewState(2)
	for j, s := range logits {
		all.Add(s, values[j])
		if j < 2 {
			left.Add(s, values[j])
		} else {
			right.Add(s, values[j])
		}
	}
	attn.Merge(&left, right)

	out := make([]float32, 2)
	lse := attn.Finish(left, out)
	fmt.Printf("merged   %.4f lse %.4f\n", out, lse)
	lse = attn.Finish(all, out)
	fmt.Printf("one pass %.4f lse %.4f\n", out, lse)
	// Output:
	// merged   [0.3240 0.8808] lse 3.4402
	// one pass [0.3240 0.8808] lse 3.4402
}

// pages is a paged cache: what Tensors does with strides, it does with a table.
type pages struct {
	data     []float32 // [page][K|V][token][dim]
	table    []int32   // of this sequence
	pageSize int
	dim      int
}

func (p pages) at(kv, j int) []float32 {
	page := int(p.table[j/p.pageSize])
	o := ((page*2+kv)*p.pageSize + j%p.pageSize) * p.dim
	return p.data[o : o+p.dim]
}

func (p pages) Key(j, _ int) []float32   { return p.at(0, j) }
func (p pages) Value(j, _ int) []float32 { return p.at(1, j) }

// Flash-Decoding over a paged cache, cut at a page boundary.
func ExampleSplit() {
	kv := pages{
		// page 0: key 3 and an unused slot, value 30; page 1: keys 2 and 1, values 20 and 10.
		data:  []float32{3, 0, 30, 0, 2, 1, 20, 10},
		table: []int32{1, 0}, // the sequence starts in page 1
		dim:   1, pageSize: 2,
	}
	call := &attn.Call{
		Shape:   attn.Shape{QHeads: 1, KVHeads: 1, HeadDim: 1},
		Options: attn.Options{Scale: 1, Causal: true},
		Q:       []float32{1}, QLen: 1,
		KV: kv, KVLen: 3,
	}
	got, err := attn.Split(call, []int{2}, attn.LeftToRight)
	if err != nil {
		fmt.Println(err)
		return
	}
	want, _ := attn.Reference(call)
	fmt.Printf("split     %.4f lse %.4f\n", got.Out, got.LSE)
	fmt.Printf("reference %.4f lse %.4f\n", want.Out, want.LSE)
	// Output:
	// split     [25.7521] lse [3.4076]
	// reference [25.7521] lse [3.4076]
}

// A φ that fits costs nothing; one that doesn't is noticed and the row is computed exactly.
func ExampleAsync() {
	call := &attn.Call{
		Shape:   attn.Shape{QHeads: 1, KVHeads: 1, HeadDim: 1},
		Options: attn.Options{Scale: 1},
		Q:       []float32{1}, QLen: 1, KVLen: 2,
		KV: attn.Tensors{
			K: attn.View{Data: []float32{90, 91}, Dim: 1, TokenStride: 1},
			V: attn.View{Data: []float32{0, 1}, Dim: 1, TokenStride: 1},
		},
	}
	for _, phi := range []float32{88, 0} {
		r, redone, err := attn.Async(call, []int{1}, []float32{phi}, attn.DefaultGuard())
		fmt.Printf("φ=%v: %.4f, redone %d, %v\n", phi, r.Out, redone, err)
	}
	// Output:
	// φ=88: [0.7311], redone 0, <nil>
	// φ=0: [0.7311], redone 1, <nil>
}
