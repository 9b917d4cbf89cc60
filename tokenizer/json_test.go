package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const tinyJSON = `{"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":N,"pre_tokenizer":P,` +
	`"post_processor":O,"decoder":D,"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`

func tiny(edits ...string) []byte {
	all := append(edits, ":N,", ":null,", ":P,", ":null,", ":O,", ":null,", ":D,", ":null,")
	return []byte(strings.NewReplacer(all...).Replace(tinyJSON))
}

func TestFromJSONRejects(t *testing.T) {
	for name, tc := range map[string]struct {
		json, config, want string
		unsupported        bool
	}{
		"syntax":     {json: "{", want: "tokenizer.json: unexpected end"},
		"empty":      {json: "{}", want: "model vocab"},
		"unigram":    {json: `{"model":{"type":"Unigram","vocab":[["a",0.5]]}}`, want: `model type "Unigram"`, unsupported: true},
		"regex":      {json: string(tiny(":P,", `:{"type":"Split","pattern":{"Regex":"x+"},"behavior":"Isolated"},`)), want: `"x+"`, unsupported: true},
		"behaviour":  {json: string(tiny(":P,", `:{"type":"Split","pattern":{"Regex":"\\p{N}"},"behavior":"Removed"},`)), want: `behavior "Removed"`, unsupported: true},
		"pre":        {json: string(tiny(":P,", `:{"type":"Whitespace"},`)), want: `pre_tokenizer "Whitespace"`, unsupported: true},
		"normalizer": {json: string(tiny(":N,", `:{"type":"Lowercase"},`)), want: `normalizer "Lowercase"`, unsupported: true},
		"growth": {json: string(tiny(":N,", `:{"type":"Replace","pattern":{"String":"a"},"content":"`+strings.Repeat("a", 100)+`"},`)),
			want: "100 times", unsupported: true},
		"decoder":   {json: string(tiny(":D,", `:{"type":"CTC"},`)), want: `decoder "CTC"`, unsupported: true},
		"processor": {json: string(tiny(":O,", `:{"type":"RobertaProcessing"},`)), want: `post_processor "RobertaProcessing"`, unsupported: true},
		"undefined": {json: string(tiny(":O,", `:{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]"}}]},`)), want: `"[CLS]"`},
		"outside": {json: string(tiny(":O,", `:{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{"x":{"ids":[99]}}},`)),
			want: "id 99"},
		"nesting":  {json: string(tiny(":N,", ":"+strings.Repeat(`{"type":"Sequence","normalizers":[`, 10)+strings.Repeat("]}", 10)+",")), want: "nested"},
		"suffix":   {json: strings.Replace(string(tiny()), `"merges"`, `"end_of_word_suffix":"</w>","merges"`, 1), want: "end_of_word_suffix", unsupported: true},
		"dropout":  {json: strings.Replace(string(tiny()), `"merges"`, `"dropout":0.1,"merges"`, 1), want: "dropout 0.1", unsupported: true},
		"gap":      {json: strings.Replace(string(tiny()), `"b":1`, `"b":2000000000`, 1), want: "id 2000000000"},
		"negative": {json: strings.Replace(string(tiny()), `"b":1`, `"b":-1`, 1), want: "id -1"},
		"twice":    {json: strings.Replace(string(tiny()), `"b":1`, `"b":0`, 1), want: "share the id 0"},
		"merge":    {json: strings.Replace(string(tiny()), `"a b"`, `"a c"`, 1), want: `"c"`},
		"merges":   {json: strings.Replace(string(tiny()), `"a b"`, `"a b c"`, 1), want: "merge 0"},
		"config":   {json: string(tiny()), config: "[", want: "tokenizer_config.json"},
		"bos":      {json: string(tiny()), config: `{"bos_token":"<x>"}`, want: `bos_token "<x>"`},
		"addbos":   {json: string(tiny()), config: `{"add_bos_token":true}`, want: "there is no bos_token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FromJSON([]byte(tc.json), []byte(tc.config))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "tokenizer: ") {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if errors.Is(err, ErrUnsupported) != tc.unsupported {
				t.Errorf("errors.Is(%v, ErrUnsupported) is %t", err, !tc.unsupported)
			}
		})
	}
}

func TestFromJSONConfig(t *testing.T) {
	template := `:{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],` +
		`"special_tokens":{"<s>":{"ids":[3]}}},`
	for config, want := range map[string][]int32{
		``:                    {3, 2},
		`{"bos_token":"<s>"}`: {3, 2},
		`{"bos_token":{"content":"<s>"},"add_bos_token":true}`:                           {3, 2},
		`{"bos_token":"<s>","add_bos_token":false}`:                                      {2},
		`{"bos_token":"<s>","eos_token":"b","add_bos_token":false,"add_eos_token":true}`: {2, 1},
		`{"bos_token":null,"eos_token":null}`:                                            {3, 2},
	} {
		tok := must(t)(FromJSON(tiny(":O,", template), []byte(config)))
		if got := tok.Encode(nil, "ab", EncodeOptions{AddSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
	tok := must(t)(FromJSON(tiny(), []byte(`{"bos_token":"<s>","eos_token":"b","pad_token":"a"}`)))
	if tok.BOS() != 3 || tok.EOS() != 1 || tok.PAD() != 0 || !tok.IsEOG(1) {
		t.Errorf("bos %d, eos %d, pad %d", tok.BOS(), tok.EOS(), tok.PAD())
	}
}

// TestFromJSONRecognises lists the spellings of expressions in published files that the goldens do not have.
func TestFromJSONRecognises(t *testing.T) {
	for _, pre := range []string{
		`{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Removed","invert":true}`,
		`{"type":"Split","pattern":{"Regex":"[\r\n]"},"behavior":"Isolated","invert":false}`,
		`{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":false},{"type":"ByteLevel","add_prefix_space":false}]}`,
	} {
		must(t)(FromJSON(tiny(":P,", ":"+pre+","), nil))
	}
	tok := must(t)(FromJSON(tiny(":P,", `:{"type":"ByteLevel","add_prefix_space":true},`), nil))
	if !tok.addPrefix || len(tok.stages) != 1 {
		t.Error("ByteLevel's defaults are not read")
	}
}

// TestMetaspaceFirst: only what stands at the very start of the text gets the prefix, whichever splitter cut before it.
func TestMetaspaceFirst(t *testing.T) {
	file := tiny(":P,", `:{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},`)
	for from, to := range map[string]string{
		`{"a":0,`:          `{"▁":4,"a":0,`,
		`"added_tokens":[`: `"added_tokens":[{"id":5,"content":"<n>","normalized":true},`,
	} {
		file = []byte(strings.Replace(string(file), from, to, 1))
	}
	tok := must(t)(FromJSON(file, nil))
	for text, want := range map[string][]int32{
		"ab": {4, 2}, "<s>ab": {3, 2}, "<n>ab": {5, 2}, "a<n>b": {4, 0, 5, 1}, "a<s>b": {4, 0, 3, 1}, " a": {4, 0}, "<n> a": {5, 4, 0},
	} {
		if got := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestFromJSONLongNames: no error repeats all of a name that a damaged file claims.
func TestFromJSONLongNames(t *testing.T) {
	long := strings.Repeat("ü", 30000)
	part := `:{"type":"` + long + `"},`
	files := map[string][]byte{
		"normalizer": tiny(":N,", part), "pre_tokenizer": tiny(":P,", part), "decoder": tiny(":D,", part), "post_processor": tiny(":O,", part),
		"split":    tiny(":P,", `:{"type":"Split","pattern":{"String":"`+long+`"},"behavior":"`+long+`"},`),
		"regex":    tiny(":P,", `:{"type":"Split","pattern":{"Regex":"`+long+`"},"behavior":"x"},`),
		"behavior": tiny(":P,", `:{"type":"Split","pattern":{"Regex":"[\\r\\n]"},"behavior":"`+long+`"},`),
		"scheme":   tiny(":P,", `:{"type":"Metaspace","replacement":"▁","prepend_scheme":"`+long+`"},`),
		"replace":  tiny(":N,", `:{"type":"Replace","pattern":{"String":"a"},"content":"`+long+`"},`),
		"number":   tiny(":N,", `:{"type":`+strings.Repeat("7", 30000)+`},`),
		"id":       []byte(strings.Replace(string(tiny()), `{"a":0,`, `{"`+long+`":-1,"a":0,`, 1)),
		"shared":   []byte(strings.Replace(string(tiny()), `{"a":0,`, `{"`+long+`":0,"a":0,`, 1)),
	}
	for name, file := range files {
		if _, err := FromJSON(file, nil); err == nil || len(err.Error()) > 900 {
			t.Errorf("%s: %.1200v", name, err)
		}
	}
	if _, err := FromJSON(tiny(), []byte(`{"bos_token":"`+long+`"}`)); err == nil || len(err.Error()) > 500 {
		t.Errorf("%.900v", err)
	}
	for _, c := range []Config{{Model: long}, {Model: "gpt2", Pre: long, Tokens: []string{"a"}}, {Model: "gpt2", Pre: "gpt2", Tokens: []string{"a"}, Merges: []string{long}}} {
		if _, err := New(c); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.900v", err)
		}
	}
}

func FuzzFromJSON(f *testing.F) {
	f.Add(tiny(), []byte(`{"bos_token":"<s>"}`), "abc")
	f.Add(tiny(":P,", `:{"type":"ByteLevel"},`, ":N,", `:{"type":"NFC"},`), []byte(nil), "a b\xff")
	f.Add(tiny(":P,", `:{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},`), []byte(`{}`), " a  b")
	f.Add(tiny(":N,", `:{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},`),
		[]byte(`{"add_bos_token":false}`), "<s>a")
	f.Add(tiny(":P,", `:{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious"},`), []byte(nil), "a b")
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		tok, err := FromJSON(file, config)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if limit := 2*len(file) + 1<<17; tok.VocabSize() > limit {
			t.Fatalf("%d bytes make a vocabulary of %d", len(file), tok.VocabSize())
		}
		ids := tok.Encode(nil, text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		for _, id := range ids {
			if !tok.valid(id) {
				t.Fatalf("id %d is outside the vocabulary of %d", id, tok.VocabSize())
			}
		}
		tok.Decode(ids)
	})
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "Hello, world!", "don't 123456\r\n\r\n  x", "\xff\xfe", "e\u0301 日本語 😀", "<|im_end|>\n", "   \t\u00a0\u3000x", "カABc'LL"} {
		f.Add(s)
	}
	bl := load[goldenByteLevel](f, "bytelevel.json.gz")
	sp := load[map[string]goldenSP](f, "sentencepiece.json.gz")["gemma"]
	gemma := must(f)(New(sp.config()))
	toks := map[string]*Tokenizer{}
	for name := range bl.Pre {
		if name != "qwen2-nfc" && name != "qwen2" { // NFC does not come back
			toks[name] = must(f)(New(bl.configOf(f, name)))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range toks {
			for _, o := range []EncodeOptions{{}, {ParseSpecial: true}} {
				ids := tok.Encode(nil, text, o)
				if got := tok.Decode(ids); got != text {
					t.Fatalf("%s: %q came back as %q", name, text, got)
				}
				stream, d := "", tok.NewDecoder()
				for _, id := range ids {
					stream += d.Next(id)
				}
				if stream += d.Flush(); stream != text {
					t.Fatalf("%s: %q was streamed as %q", name, text, stream)
				}
			}
		}
		if got, want := gemma.Decode(gemma.Encode(nil, text, EncodeOptions{})), strings.ReplaceAll(text, metaspace, " "); got != want {
			t.Fatalf("gemma: %q came back as %q", text, got)
		}
	})
}
