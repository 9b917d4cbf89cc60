package tokenizer_test

import (
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/tokenizer"
)

// BenchmarkEncode: go test -bench Encode ./tokenizer, after scripts/fetch_models.sh.
func BenchmarkEncode(b *testing.B) {
	prose := strings.Repeat("It was the best of times, it was the worst of times; in 1859 they didn't know which.\n", 500)
	cjk := strings.Repeat("时间是最好的老师，但遗憾的是——最后它把所有的学生都弄死了。", 400)
	for model, file := range map[string]string{"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"} {
		b.Run("model="+model, func(b *testing.B) {
			tok := real(b, file)
			for name, text := range map[string]string{"prose": prose, "cjk": cjk, "run": strings.Repeat("a", 1<<16)} {
				b.Run("text="+name, func(b *testing.B) {
					b.SetBytes(int64(len(text)))
					b.ReportAllocs()
					var ids []int32
					for b.Loop() {
						ids = tok.Encode(ids[:0], text, tokenizer.EncodeOptions{})
					}
				})
			}
		})
	}
}

func BenchmarkDecoder(b *testing.B) {
	tok := real(b, "SmolLM2-135M-Instruct.Q4_1.gguf")
	ids := tok.Encode(nil, strings.Repeat("Once upon a time there was a naïve café. ", 100), tokenizer.EncodeOptions{})
	b.ReportAllocs()
	for b.Loop() {
		d := tok.NewDecoder()
		for _, id := range ids {
			d.Next(id)
		}
	}
}

// BenchmarkNew measures what the vocabulary adds to opening a model.
func BenchmarkNew(b *testing.B) {
	for model, file := range map[string]string{"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"} {
		b.Run("model="+model, func(b *testing.B) {
			c := realConfig(b, file)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tokenizer.New(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
