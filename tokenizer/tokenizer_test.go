package tokenizer

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// small is a byte-level vocabulary of the 256 bytes, a few merges and special tokens.
func small() Config {
	c := Defaults("gpt2", "gpt-2")
	for b := range 256 {
		r := rune(b)
		for try := range rune(0x200) {
			if got, ok := byteOfRune(try); ok && got == byte(b) {
				r = try
				break
			}
		}
		c.Tokens = append(c.Tokens, string(r))
	}
	c.Tokens = append(c.Tokens, "ab", "abc", "Ġa", "<|endoftext|>", "<|im_end|>", "<user>")
	c.Merges = []string{"a b", "ab c", "Ġ a"}
	c.Types = slices.Repeat([]int32{TypeNormal}, len(c.Tokens))
	c.Types[259], c.Types[260], c.Types[261] = TypeControl, TypeControl, TypeUserDefined
	c.BOS, c.EOS = 259, 259
	return c
}

// smallSP is a SentencePiece vocabulary with byte tokens and a few pieces.
func smallSP() Config {
	c := Defaults("llama", "")
	add := func(text string, typ int32, score float32) {
		c.Tokens, c.Types, c.Scores = append(c.Tokens, text), append(c.Types, typ), append(c.Scores, score)
	}
	add("<unk>", TypeUnknown, 0)
	add("<s>", TypeControl, 0)
	add("</s>", TypeControl, 0)
	for b := range 256 {
		const hex = "0123456789ABCDEF"
		add("<0x"+hex[b>>4:b>>4+1]+hex[b&15:b&15+1]+">", TypeByte, 0)
	}
	for i, p := range []string{"ab", "bc", "▁a", "a", "b", "c", "▁", "é", "<", "s", ">", "<s"} {
		add(p, TypeNormal, -float32(i))
	}
	c.UNK, c.BOS, c.EOS = 0, 1, 2
	return c
}

func TestNewRejects(t *testing.T) {
	for name, tc := range map[string]struct {
		base   func() Config
		change func(c *Config)
		want   string
	}{
		"model":    {small, func(c *Config) { c.Model = "wordpiece" }, `model "wordpiece"`},
		"pre":      {small, func(c *Config) { c.Pre = "klingon" }, `"klingon" not supported (supported: codeshell`},
		"empty":    {small, func(c *Config) { c.Tokens = nil }, "empty"},
		"types":    {small, func(c *Config) { c.Types = c.Types[1:] }, "261 token types for 262 tokens"},
		"eos":      {small, func(c *Config) { c.EOS = 262 }, "eos id 262"},
		"bos":      {small, func(c *Config) { c.BOS, c.AddBOS = None, true }, "names none"},
		"negative": {small, func(c *Config) { c.PAD = -2 }, "pad id -2"},
		"merge":    {small, func(c *Config) { c.Merges = append(c.Merges, "ab") }, `merge 3 "ab"`},
		"part":     {small, func(c *Config) { c.Merges = append(c.Merges, "a zz") }, `"zz"`},
		"scores":   {smallSP, func(c *Config) { c.Scores = c.Scores[1:] }, "270 scores for 271 tokens"},
		"nan":      {smallSP, func(c *Config) { c.Scores[5] = float32(math.NaN()) }, "score of token 5"},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.base()
			tc.change(&c)
			_, err := New(c)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if wantKind := name == "model" || name == "pre"; errors.Is(err, ErrUnsupported) != wantKind {
				t.Errorf("errors.Is(%v, ErrUnsupported) is %t", err, !wantKind)
			}
		})
	}
}

func TestByteAlphabet(t *testing.T) {
	seen := map[byte]rune{}
	for r := range rune(0x200) {
		if b, ok := byteOfRune(r); ok {
			if old, twice := seen[b]; twice {
				t.Errorf("byte %#x is spelt by %q and %q", b, old, r)
			}
			seen[b] = r
		}
	}
	if len(seen) != 256 || seen[' '] != 'Ġ' || seen['\n'] != 'Ċ' || seen['a'] != 'a' {
		t.Errorf("%d bytes spelt, space as %q, newline as %q", len(seen), seen[' '], seen['\n'])
	}
}

func TestSpecialTokens(t *testing.T) {
	tok := must(t)(New(small()))
	plain := tok.Encode(nil, "x<|im_end|><user>", EncodeOptions{})
	if slices.Contains(plain, 260) || plain[len(plain)-1] != 261 {
		t.Errorf("without ParseSpecial: %s", spell(tok, plain))
	}
	parsed := tok.Encode([]int32{7}, "x<|im_end|><user>", EncodeOptions{ParseSpecial: true})
	if !slices.Equal(parsed, []int32{7, 'x', 260, 261}) {
		t.Errorf("with ParseSpecial: %v", parsed)
	}
	if got := tok.Decode(parsed[1:]); got != "x<|im_end|><user>" {
		t.Errorf("Decode: %q", got)
	}
}

func TestControlTokensAreNotMerged(t *testing.T) {
	tok := must(t)(New(smallSP()))
	for _, text := range []string{"<s>", "a<s>"} {
		if ids := tok.Encode(nil, text, EncodeOptions{}); slices.Contains(ids, 1) {
			t.Errorf("%q became %s: text forged a control token", text, spell(tok, ids))
		}
	}
	if got := tok.Encode(nil, "<s>ab", EncodeOptions{ParseSpecial: true, AddSpecial: true}); got[0] != 1 || got[1] != 1 {
		t.Errorf("ParseSpecial: %s", spell(tok, got))
	}
}

func TestAccessors(t *testing.T) {
	c := small()
	c.EOT, c.AddEOS = 260, true
	tok := must(t)(New(c))
	if tok.VocabSize() != 262 || tok.BOS() != 259 || tok.EOS() != 259 || tok.EOT() != 260 || tok.PAD() != None {
		t.Error("sizes or ids are wrong")
	}
	if got := tok.EOG(); !slices.Equal(got, []int32{259, 260}) || !tok.IsEOG(260) || tok.IsEOG('a') || tok.IsEOG(None) {
		t.Errorf("EOG %v", got)
	}
	if id, ok := tok.ID("Ġa"); !ok || id != 258 || tok.Token(258) != "Ġa" || string(tok.Piece(258)) != " a" {
		t.Errorf("ID of Ġa is %d, %t", id, ok)
	}
	if _, ok := tok.ID("nothing"); ok {
		t.Error("ID of an unknown text")
	}
	for _, id := range []int32{-1, 262, math.MaxInt32, math.MinInt32} {
		if tok.Piece(id) != nil || tok.Token(id) != "" || tok.IsSpecial(id) || tok.NewDecoder().Next(id) != "" {
			t.Errorf("id %d is not in the vocabulary", id)
		}
	}
	if got := tok.Decode([]int32{-1, 'h', 262, 'i'}); got != "hi" {
		t.Errorf("Decode with foreign ids: %q", got)
	}
	if !tok.IsSpecial(259) || tok.IsSpecial(261) {
		t.Error("IsSpecial is true for control tokens only")
	}
	if got := tok.Encode(nil, "", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{259}) {
		t.Errorf("AddSpecial on an empty text: %v", got)
	}
	if p := tok.Piece('a'); cap(p) != len(p) {
		t.Error("appending to a piece would overwrite the next")
	}
}

func TestDefaults(t *testing.T) {
	for _, tc := range []struct {
		model, pre                 string
		bos, prefix, ignore, bytes bool
	}{
		{"gpt2", "gpt-2", false, false, false, false}, {"gpt2", "llama-bpe", true, false, true, false},
		{"llama", "default", true, true, false, true}, {"", "", false, false, false, false},
	} {
		c := Defaults(tc.model, tc.pre)
		if c.AddBOS != tc.bos || c.AddSpacePrefix != tc.prefix || c.IgnoreMerges != tc.ignore || c.ByteFallback != tc.bytes ||
			c.BOS != None || c.EOT != None {
			t.Errorf("%s %s: %+v", tc.model, tc.pre, c)
		}
	}
}

func TestInvalidUTF8RoundTrip(t *testing.T) {
	tok := must(t)(New(small()))
	for _, s := range []string{"\xff", "a\x80b", "\xed\xa0\x80", "\xf0\x9f", "\xc3\x28", "é\xe2\x82", " \xfe \xff\n"} {
		if got := tok.Decode(tok.Encode(nil, s, EncodeOptions{})); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	}
	sp := must(t)(New(smallSP()))
	if got := sp.Decode(sp.Encode(nil, "a\xffb\xed\xa0\x80", EncodeOptions{})); got != "a\xffb\xed\xa0\x80" {
		t.Errorf("SentencePiece: %q", got)
	}
}

func TestUnknownCharacters(t *testing.T) {
	c := smallSP()
	c.ByteFallback = false
	tok := must(t)(New(c))
	got := tok.Encode(nil, "a日本b", EncodeOptions{})
	if want := tok.Encode(nil, "a", EncodeOptions{}); !slices.Equal(got, append(want, 0, 263)) {
		t.Errorf("neighbouring unknown characters are one token: %s", spell(tok, got))
	}
	c.UNK = None
	if got := must(t)(New(c)).Encode(nil, "日", EncodeOptions{}); len(got) != 1 {
		t.Errorf("without an unknown token only the prefix stays: %v", got)
	}
}

func TestEqualScoresMergeLeftFirst(t *testing.T) {
	c := smallSP()
	c.AddSpacePrefix = false
	ab, bc := slices.Index(c.Tokens, "ab"), slices.Index(c.Tokens, "bc")
	c.Tokens[ab], c.Tokens[bc] = "bc", "ab" // the right pair has the lower id
	c.Scores[bc] = c.Scores[ab]
	tok := must(t)(New(c))
	if got := tok.Encode(nil, "abc", EncodeOptions{}); len(got) != 2 || tok.Token(got[0]) != "ab" {
		t.Errorf("abc became %s", spell(tok, got))
	}
}

func TestTokensAcrossSpaces(t *testing.T) {
	c := smallSP()
	c.AddSpacePrefix = false
	c.Tokens, c.Types, c.Scores = append(c.Tokens, "a▁b"), append(c.Types, TypeNormal), append(c.Scores, -0.5)
	c.Tokens, c.Types, c.Scores = append(c.Tokens, "a▁"), append(c.Types, TypeNormal), append(c.Scores, -0.25)
	tok := must(t)(New(c))
	if got := tok.Encode(nil, "a b", EncodeOptions{}); len(got) != 1 || string(tok.Piece(got[0])) != "a b" {
		t.Errorf("a b became %s", spell(tok, got))
	}
}

// TestDecoder feeds every way of cutting text into byte tokens and compares with Decode.
func TestDecoder(t *testing.T) {
	tok := must(t)(New(small()))
	for _, text := range []string{"", "abc", "é日😀", "a\xffé\xe2\x82", "\xe2\x82\xe2\x82\xac", "\xf0\x9f\x98", "\x80\x80\x80\x80\x80", "\xf0\x80é"} {
		d := tok.NewDecoder()
		out := ""
		for _, id := range tok.Encode(nil, text, EncodeOptions{}) {
			part := d.Next(id)
			if utf8.ValidString(text) && !utf8.ValidString(part) {
				t.Errorf("%q: a part %q ends inside a character", text, part)
			}
			if len(d.pending) > 3 {
				t.Errorf("%q: %d bytes held back", text, len(d.pending))
			}
			out += part
		}
		out += d.Flush()
		if out != text || d.Flush() != "" {
			t.Errorf("streamed %q, want %q", out, text)
		}
	}
	sp := must(t)(New(smallSP()))
	if got := sp.NewDecoder().Next(261); got != " a" {
		t.Errorf("a stream keeps its leading space: %q", got)
	}
}

func TestDecodeTakesPrefixBack(t *testing.T) {
	tok := must(t)(New(smallSP()))
	for _, text := range []string{"a", " a", "  a ", "<s>a", "<s> a</s>b", ""} {
		if got := tok.Decode(tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
	runs := load[map[string]goldenJSONRun](t, "spmjson.json.gz")
	for name, run := range runs {
		tok := must(t)(FromJSON(run.JSON, nil))
		for i, ids := range run.IDs[:len(load[goldenTexts](t, "texts.json.gz").Texts)] {
			if slices.ContainsFunc(ids[1:], tok.IsSpecial) {
				continue // the reference takes one space from the whole text, whatever stands in between
			}
			// The reference replaces the bytes of an incomplete character, Decode keeps them.
			got := strings.ToValidUTF8(tok.Decode(ids[1:]), "\ufffd")
			if want := run.Decoded[i]; got != want && !strings.Contains(want, "\ufffd") {
				t.Errorf("%s %d: decoded %.80q, want %.80q", name, i, got, want)
			}
		}
	}
}

// TestMergersAgree compares the two mergers, and merging whole texts with merging them word by word.
func TestMergersAgree(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	sp := load[map[string]goldenSP](t, "sentencepiece.json.gz")["llama"]
	tok := must(t)(New(sp.config()))
	if !tok.cutAtSpace {
		t.Fatal("the vocabulary is not one that is cut at spaces")
	}
	whole := must(t)(New(sp.config()))
	whole.cutAtSpace = false
	for i, text := range texts {
		a, b := tok.Encode(nil, text, EncodeOptions{}), whole.Encode(nil, text, EncodeOptions{})
		if !slices.Equal(a, b) {
			t.Errorf("text %d %.60q: %.100s by words, %.100s whole", i, text, spell(tok, a), spell(tok, b))
		}
	}
	syms := func(s string) (out []sym) {
		for i := range len(s) {
			out = append(out, sym{start: int32(i), end: int32(i + 1), id: tok.words.get(s[i : i+1])})
		}
		return out
	}
	for _, s := range texts {
		if s == "" || len(s) > 2000 {
			continue
		}
		small, large := tok.mergeSmall(s, syms(s)), tok.mergeLarge(s, syms(s), new(scratch))
		if !slices.EqualFunc(small, large, func(a, b sym) bool { return a.id == b.id && a.end == b.end }) {
			t.Errorf("%.60q: %d symbols by scanning, %d by heap", s, len(small), len(large))
		}
	}
}

// TestLongRuns would not end if anything were quadratic: a million steps each take a million more.
func TestLongRuns(t *testing.T) {
	size := 1 << 20
	if testing.Short() { // the race detector and emulators are ten times slower
		size = 1 << 12
	}
	bl := load[goldenByteLevel](t, "bytelevel.json.gz")
	for name := range bl.Pre {
		pre := preTokenizers[name] // the others share these stages
		for _, unit := range []string{"a", " ", "A", "\u0301", "\x00", "カ", "\u3000", "'", "1", "\n "} {
			text := strings.Repeat(unit, size/len(unit)) + "x"
			n := 0
			pre.stages.each(text, func(w string) { n += len(w) })
			if n != len(text) {
				t.Errorf("%s: words of a run of %q have %d bytes of %d", name, unit, n, len(text))
			}
		}
	}
	gemma := load[map[string]goldenSP](t, "sentencepiece.json.gz")["gemma"]
	for _, tok := range []*Tokenizer{must(t)(New(bl.configOf(t, "gpt-2"))), must(t)(New(gemma.config()))} {
		for _, unit := range []string{"a", " <"} {
			text := strings.Repeat(unit, size/len(unit))
			if got := tok.Decode(tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})); got != text {
				t.Errorf("a run of %q does not come back", unit)
			}
		}
	}
	for _, text := range []string{strings.Repeat(" ", size) + "<r>", strings.Repeat("<r> ", size/4)} {
		s := newSplitter([]addedToken{{id: 1, text: "<r>", lstrip: true, rstrip: true}, {id: 2, text: strings.Repeat(" ", 40)}})
		s.each(text, true, func(string, int) {}, func(int32) {})
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := must(t)(New(small()))
	texts := load[goldenTexts](t, "texts.json.gz").Texts[:200]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, text := range texts {
				if got := tok.Decode(tok.Encode(nil, text, EncodeOptions{})); got != text {
					t.Errorf("%q came back as %q", text, got)
				}
			}
		})
	}
	wg.Wait()
}

// TestNormalForm checks the slow path, which only long runs of marks take, against x/text on texts without those.
func TestNormalForm(t *testing.T) {
	texts := load[goldenTexts](t, "texts.json.gz").Texts
	texts = append(texts, "a\u0323\u0302", "a\u0302\u0323", "ᄀ\u1161\u11a8", "\u1100\u0301\u1161", "\u0344", "ṩ\u0323", "\u0fb2\u0f71\u0f80", "\u212b")
	for _, s := range texts {
		if strings.Count(norm.NFC.String(s), joiner) > strings.Count(s, joiner) || !utf8.ValidString(s) {
			continue
		}
		d := orderMarks(decomposed(norm.NFD, s))
		if got, want := string(d), norm.NFD.String(s); got != want {
			t.Errorf("NFD of %.60q: %.60q, want %.60q", s, got, want)
		}
		if got, want := string(composed(d)), norm.NFC.String(s); got != want {
			t.Errorf("NFC of %.60q: %.60q, want %.60q", s, got, want)
		}
		if got, want := string(composed(orderMarks(decomposed(norm.NFKD, s)))), norm.NFKC.String(s); got != want {
			t.Errorf("NFKC of %.60q: %.60q, want %.60q", s, got, want)
		}
	}
	marks := strings.Repeat("\u0301", 100)
	for _, f := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		if got := normalForm(f, "x"+marks); got != "x"+marks {
			t.Errorf("form %d changes a run of marks to %q", f, got)
		}
	}
}
