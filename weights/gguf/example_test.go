package gguf_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
)

func Example() {
	row := make([]float32, 32)
	for i := range row {
		row[i] = float32(i) / 4
	}
	data := make([]byte, quant.Q8_0.RowBytes(len(row)))
	if err := quant.Quantize(quant.Q8_0, data, row); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	err := gguf.Write(&file,
		[]gguf.KV{{Key: "general.architecture", Value: "llama"}, {Key: "llama.block_count", Value: uint32(30)}},
		[]weights.Tensor{{Name: "output.weight", Type: quant.Q8_0, Shape: []int{1, 32}, Data: data}})
	if err != nil {
		log.Fatal(err)
	}

	f, err := gguf.Parse(file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	blocks, err := f.Meta.Uint("llama.block_count")
	if err != nil {
		log.Fatal(err)
	}
	w, err := f.Tensor("output.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(blocks, w.Type, w.Shape, len(w.Data))

	_, err = f.Meta.Uint("general.architecture")
	fmt.Println(err)
	// Output:
	// 30 Q8_0 [1 32] 34
	// gguf: key "general.architecture": want an unsigned integer, found string
}
