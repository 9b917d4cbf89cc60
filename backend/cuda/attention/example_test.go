package attention_test

import (
	"fmt"
	"log"

	"github.com/flashdecode/flashdecode/backend/cuda/attention"
	"github.com/flashdecode/flashdecode/plan"
)

// A step of two sequences and 32 layers, on device memory of the caller's. Lengths and tables are int32 arrays there.
func ExamplePlan() {
	var (
		ctx                               *attention.Context
		stream                            *attention.Stream
		workspace, lens, table            attention.Ptr
		q, out, cache                     attention.Ptr
		workspaceBytes, layerBytes, vFrom int64
	)
	if ctx == nil {
		return // needs a GPU
	}
	ks, err := attention.Load(ctx)
	if err != nil {
		log.Fatal(err)
	}
	p, err := ks.Plan(attention.Config{
		QHeads: 32, KVHeads: 8, HeadDim: 128, PageSize: 16, Seqs: 64, KVLen: 131072,
		Policy: plan.Fixed(2048), // a sequence's result does not depend on its neighbours
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("needs", p.WorkspaceBytes(), "bytes")
	if err := p.Bind(workspace, workspaceBytes); err != nil {
		log.Fatal(err)
	}
	if err := p.Reset(stream); err != nil {
		log.Fatal(err)
	}
	step := attention.Step{Seqs: 2, KVLen: lens, Table: table, TableStride: 8192}
	if err := p.Begin(stream, &step); err != nil {
		log.Fatal(err)
	}
	for i := range int64(32) {
		k := cache + attention.Ptr(i*layerBytes)
		layer := attention.Layer{Q: q, Out: out, K: k, V: k + attention.Ptr(vFrom), PageStride: 32 * layerBytes}
		if err := p.Run(stream, &layer); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
}
