package tokenizer

import "testing"

// What the external tests share with the internal ones.

var Compare = compare

func LoadTexts(t testing.TB) []string { return load[goldenTexts](t, "texts.json.gz").Texts }

func LoadReal(t testing.TB) map[string][][]int32 {
	return load[map[string][][]int32](t, "real.json.gz")
}
