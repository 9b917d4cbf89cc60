package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// loaded keeps what load read: parsing takes longer than most tests. Tests leave it as it is.
var loaded sync.Map

// load reads a file that scripts/golden_tokenizers.py wrote.
func load[T any](t testing.TB, name string) T {
	t.Helper()
	if v, ok := loaded.Load(name); ok {
		return v.(T)
	}
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, v)
	return v
}

type goldenTexts struct{ Texts, Special []string }

type goldenByteLevel struct {
	JSON map[string]json.RawMessage
	Pre  map[string]struct {
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Words        [][]int
		IDs          [][]int32
	}
	Added []struct {
		Normalizer json.RawMessage
		Added      []json.RawMessage
		IDs        [][]int32
		PlainIDs   [][]int32 `json:"plain_ids"`
	}
}

func (g *goldenByteLevel) with(t testing.TB, field string, value any) []byte {
	t.Helper()
	file := map[string]any{}
	for k, v := range g.JSON {
		file[k] = v
	}
	file[field] = value
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type goldenJSONRun struct {
	JSON    json.RawMessage
	IDs     [][]int32
	Decoded []string
}

type goldenSP struct {
	Tokens       []string
	Scores       []float32
	Types        []int32
	AddPrefix    bool `json:"add_space_prefix"`
	RemoveSpaces bool `json:"remove_extra_whitespaces"`
	IDs          [][]int32
}

func must(t testing.TB) func(*Tokenizer, error) *Tokenizer {
	return func(tok *Tokenizer, err error) *Tokenizer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
}

// compare encodes every text and reports the first few that differ.
func compare(t *testing.T, tok *Tokenizer, texts []string, want [][]int32, opts EncodeOptions) {
	t.Helper()
	if len(texts) != len(want) {
		t.Fatalf("%d texts, %d goldens", len(texts), len(want))
	}
	bad := 0
	for i, text := range texts {
		got := tok.Encode(nil, text, opts)
		if slices.Equal(got, want[i]) {
			continue
		}
		if bad++; bad <= 5 {
			t.Errorf("text %d %.120q\n got %.300s\nwant %.300s", i, text, spell(tok, got), spell(tok, want[i]))
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d texts differ", bad, len(texts))
	}
}

func spell(tok *Tokenizer, ids []int32) (s string) {
	for _, id := range ids {
		s += fmt.Sprintf("%d:%q ", id, tok.Piece(id))
	}
	return s
}

// configOf makes the Config that a GGUF file with this byte-level vocabulary would give.
func (g *goldenByteLevel) configOf(t testing.TB, pre string) Config {
	t.Helper()
	var model struct {
		Vocab  map[string]int32
		Merges [][2]string
	}
	if err := json.Unmarshal(g.JSON["model"], &model); err != nil {
		t.Fatal(err)
	}
	c := Defaults("gpt2", pre)
	c.Tokens, c.Types = make([]string, len(model.Vocab)), make([]int32, len(model.Vocab))
	for text, id := range model.Vocab {
		c.Tokens[id], c.Types[id] = text, TypeNormal
	}
	for _, m := range model.Merges {
		c.Merges = append(c.Merges, m[0]+" "+m[1])
	}
	for id := range 3 {
		c.Types[id] = TypeControl
	}
	c.BOS, c.EOS = 0, 2
	return c
}

func TestPreTokenizersAgainstTokenizers(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	g := load[goldenByteLevel](t, "bytelevel.json.gz")
	for name, run := range g.Pre {
		if run.Words == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			bad := 0
			for i, text := range texts {
				var got []int
				preTokenizers[name].stages.each(text, func(w string) { got = append(got, len(w)) })
				if !slices.Equal(got, run.Words[i]) {
					if bad++; bad <= 5 {
						t.Errorf("text %d %.120q: words %.200s, want %.200s", i, text, fmt.Sprint(got), fmt.Sprint(run.Words[i]))
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d texts differ", bad, len(texts))
			}
		})
	}
}

func TestByteLevelAgainstTokenizers(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	if testing.Short() { // the race detector and emulators are ten times slower
		texts = texts[:150]
	}
	g := load[goldenByteLevel](t, "bytelevel.json.gz")
	parse := EncodeOptions{ParseSpecial: true}
	for name, run := range g.Pre {
		want := run.IDs
		if name == "qwen2-nfc" {
			continue
		}
		t.Run("config/"+name, func(t *testing.T) {
			if name == "qwen2" { // its name stands for the normalisation, too
				want = g.Pre["qwen2-nfc"].IDs
			}
			compare(t, must(t)(New(g.configOf(t, name))), texts, want[:len(texts)], parse)
		})
		t.Run("json/"+name, func(t *testing.T) {
			file := g.with(t, "pre_tokenizer", run.PreTokenizer)
			if preTokenizers[name].ignoreMerges {
				file = bytes.Replace(file, []byte(`"ignore_merges":false`), []byte(`"ignore_merges":true`), 1)
			}
			tok := must(t)(FromJSON(file, nil))
			compare(t, tok, texts, run.IDs[:len(texts)], parse)
			for i, text := range texts {
				if got := tok.Decode(run.IDs[i]); got != text {
					t.Errorf("Decode of text %d: %.80q, want %.80q", i, got, text)
				}
			}
		})
	}
}

func TestAddedTokensAgainstTokenizers(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Special
	g := load[goldenByteLevel](t, "bytelevel.json.gz")
	g.JSON = maps.Clone(g.JSON)
	g.JSON["pre_tokenizer"] = g.Pre["gpt-2"].PreTokenizer
	for i, run := range g.Added {
		var base []json.RawMessage
		if err := json.Unmarshal(g.JSON["added_tokens"], &base); err != nil {
			t.Fatal(err)
		}
		withAdded := g
		withAdded.JSON = map[string]json.RawMessage{}
		for k, v := range g.JSON {
			withAdded.JSON[k] = v
		}
		withAdded.JSON["normalizer"] = run.Normalizer
		tok := must(t)(FromJSON(withAdded.with(t, "added_tokens", append(base, run.Added...)), nil))
		t.Logf("normalizer %d: %s", i, run.Normalizer)
		compare(t, tok, texts, run.IDs, EncodeOptions{ParseSpecial: true})
		compare(t, tok, texts, run.PlainIDs, EncodeOptions{})
	}
}

func TestSentencePieceAgainstSentencepiece(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	for name, run := range load[map[string]goldenSP](t, "sentencepiece.json.gz") {
		t.Run(name, func(t *testing.T) {
			compare(t, must(t)(New(run.config())), texts, run.IDs, EncodeOptions{})
		})
	}
}

func (g *goldenSP) config() Config {
	c := Defaults("llama", "default")
	c.Tokens, c.Scores, c.Types = g.Tokens, g.Scores, g.Types
	c.UNK, c.BOS, c.EOS = 0, 1, 2
	c.AddSpacePrefix, c.RemoveExtraWhitespaces = g.AddPrefix, g.RemoveSpaces
	return c
}

func TestSentencePieceJSONAgainstTokenizers(t *testing.T) {
	g := load[goldenTexts](t, "texts.json.gz")
	for name, run := range load[map[string]goldenJSONRun](t, "spmjson.json.gz") {
		t.Run(name, func(t *testing.T) {
			tok := must(t)(FromJSON(run.JSON, nil))
			texts := append(slices.Clone(g.Texts), g.Special...)[:len(run.IDs)]
			compare(t, tok, texts, run.IDs, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		})
	}
}

func TestTinyAgainstTokenizers(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	run := load[goldenJSONRun](t, "tiny.json.gz")
	tok := must(t)(FromJSON(run.JSON, nil))
	compare(t, tok, texts, run.IDs, EncodeOptions{ParseSpecial: true})
}
