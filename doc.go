// Package flashdecode runs large language models in-process, without cgo, built for long context: at each token a
// model re-reads its whole KV cache, and Flash-Decoding splits that cache, works on the pieces in parallel and merges
// the partial softmax states exactly.
//
//	m, err := flashdecode.Open("model.gguf")
//	if err != nil { … }
//	defer m.Close()
//	for tok, err := range m.Generate(ctx, "Once upon a time", flashdecode.MaxTokens(100)) {
//		if err != nil { … }
//		fmt.Print(tok.Text)
//	}
//
// Open reads GGUF files and Hugging Face directories (config.json, tokenizer.json, safetensors) of the llama
// (Mistral, SmolLM2), qwen2, qwen3 and gemma3 families; Embedded has a small story model inside the binary. A Model
// serves any number of goroutines: their sequences share steps, and equal prefixes share memory.
//
// The parts are usable by themselves: attn is the mathematics in plain Go, plan decides how attention is cut into
// work, kvcache hands out pages, engine schedules sequences.
package flashdecode
