package tokenizer

import (
	"maps"
	"slices"
	"unicode/utf8"
)

// matcher returns the end of its expression's match that begins at s[i], or -1. It never returns i.
type matcher func(s string, i int) int

// stages cut text in turn: each cuts what the one before it left into its matches and the text between them.
type stages []matcher

func (st stages) each(s string, word func(string)) {
	if s == "" {
		return
	}
	if len(st) == 0 {
		word(s)
		return
	}
	done := 0
	for i := 0; i < len(s); {
		end := st[0](s, i)
		if end < 0 {
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
			continue
		}
		if done < i {
			st[1:].each(s[done:i], word)
		}
		st[1:].each(s[i:end], word)
		i, done = end, end
	}
	if done < len(s) {
		st[1:].each(s[done:], word)
	}
}

// preTokenizer is what a name in GGUF's tokenizer.ggml.pre stands for.
type preTokenizer struct {
	stages       stages
	ignoreMerges bool
	addBOS       bool
	nfc          bool // the published tokenizer.json normalises to NFC
}

var (
	preGPT2       = preTokenizer{stages: stages{matchGPT2}}
	preDigitsGPT2 = preTokenizer{stages: stages{matchDigit, matchGPT2}}
	preLlama3     = preTokenizer{stages: stages{matchCL100K3}, ignoreMerges: true, addBOS: true}
	preQwen2      = preTokenizer{stages: stages{matchCL100K1}, nfc: true}
	preGPT4o      = preTokenizer{stages: stages{matchO200K}}
	preTekken     = preTokenizer{stages: stages{matchTekken}, ignoreMerges: true, addBOS: true}
)

// preTokenizers holds the names used in GGUF files.
var preTokenizers = map[string]preTokenizer{
	// The guess for files of before October 2023, which name none: punctuation, GPT-2, numbers, groups of three digits.
	"default": {stages: stages{matchPunctuation, matchGPT2, matchNumber, matchASCIIDigits3}},

	"gpt-2": preGPT2, "gpt2": preGPT2, "mpt": preGPT2, "olmo": preGPT2, "jais": preGPT2, "phi-2": preGPT2,
	"smollm": preDigitsGPT2, "starcoder": preDigitsGPT2, "refact": preDigitsGPT2, "command-r": preDigitsGPT2,
	"codeshell": preDigitsGPT2, "exaone": preDigitsGPT2, "minerva-7b": preDigitsGPT2,
	"llama-bpe": preLlama3, "llama3": preLlama3, "llama-v3": preLlama3, "falcon3": preLlama3, "pixtral": preLlama3,
	"dbrx": {stages: stages{matchCL100K3}}, "smaug-bpe": {stages: stages{matchCL100K3}},
	"qwen2": preQwen2, "megrez": preQwen2,
	"deepseek-r1-qwen": {stages: stages{matchCL100K1}},
	"stablelm2":        {stages: stages{matchCL100K1}},
	"gpt-4o":           preGPT4o, "llama4": preGPT4o,
	"tekken":         preTekken,
	"deepseek-llm":   {stages: deepseekLLM, addBOS: true},
	"deepseek-coder": {stages: deepseekCoder, addBOS: true},
	"deepseek-v3":    {stages: deepseekV3, addBOS: true},
}

var (
	deepseekLLM = stages{matchNewline, matchSpacedCased, matchSpacedPunctuation, matchTrailingSpace, matchCJK,
		matchDigit}
	deepseekCoder = stages{matchNewline, matchSpacedLetters, matchSpacedP, matchCJK, matchDigit}
	deepseekV3    = stages{matchDigits3, matchHanKana, matchDeepSeekV3}
)

// PreTokenizers returns the names that Config.Pre may have, sorted.
func PreTokenizers() []string { return slices.Sorted(maps.Keys(preTokenizers)) }
