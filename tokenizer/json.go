package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flashdecode/flashdecode/internal/quote"
)

// shownBytes is the most that errors show of what could not be read, such as an expression.
const shownBytes = 300

// jsonFile is the part of tokenizer.json that this package reads.
type jsonFile struct {
	AddedTokens   []jsonAdded     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         jsonModel       `json:"model"`
}

type jsonAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type jsonModel struct {
	Type          string          `json:"type"`
	Vocab         json.RawMessage `json:"vocab"` // an object for BPE, an array for Unigram
	Merges        jsonMerges      `json:"merges"`
	Dropout       float64         `json:"dropout"`
	UnkToken      string          `json:"unk_token"`
	SubwordPrefix string          `json:"continuing_subword_prefix"`
	WordSuffix    string          `json:"end_of_word_suffix"`
	FuseUnk       bool            `json:"fuse_unk"`
	ByteFallback  bool            `json:"byte_fallback"`
	IgnoreMerges  bool            `json:"ignore_merges"`
}

// jsonMerges reads both spellings of a merge, ["a","b"] and "a b".
type jsonMerges [][2]string

func (m *jsonMerges) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*[][2]string)(m)) == nil {
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	*m = make(jsonMerges, len(lines))
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %d %s is not two parts separated by a space", i, quote.Name(line))
		}
		(*m)[i] = [2]string{left, right}
	}
	return nil
}

// jsonConfig is the part of tokenizer_config.json that this package reads.
type jsonConfig struct {
	BOS    jsonToken `json:"bos_token"`
	EOS    jsonToken `json:"eos_token"`
	UNK    jsonToken `json:"unk_token"`
	PAD    jsonToken `json:"pad_token"`
	AddBOS *bool     `json:"add_bos_token"`
	AddEOS *bool     `json:"add_eos_token"`
}

// jsonToken reads "text", {"content": "text"} and null.
type jsonToken string

func (t *jsonToken) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(data, (*string)(t)) == nil {
		return nil
	}
	err := json.Unmarshal(data, &object)
	*t = jsonToken(object.Content)
	return err
}

// FromJSON builds a tokenizer from Hugging Face's tokenizer.json and tokenizer_config.json; the latter may be nil.
// It reads byte-level and SentencePiece-like BPE. A component that it does not implement is an error that wraps
// ErrUnsupported and names it.
func FromJSON(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", quote.ErrorUpTo(err, shownBytes))
	}
	var c jsonConfig
	if len(tokenizerConfigJSON) > 0 {
		if err := json.Unmarshal(tokenizerConfigJSON, &c); err != nil {
			return nil, fmt.Errorf("tokenizer: tokenizer_config.json: %w", quote.ErrorUpTo(err, shownBytes))
		}
	}
	t, err := f.build(&c)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	return t, nil
}

func (f *jsonFile) build(c *jsonConfig) (*Tokenizer, error) {
	if err := f.Model.check(); err != nil {
		return nil, err
	}
	tokens, kinds, err := f.vocabulary()
	if err != nil {
		return nil, err
	}
	t := newTokenizer(tokens)
	m := &f.Model
	t.ignoreMerges, t.byteFallback, t.fuseUnknown = m.IgnoreMerges, m.ByteFallback, m.FuseUnk
	if err := t.readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if err := t.readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := t.readDecoder(f.Decoder); err != nil {
		return nil, err
	}
	t.setPieces(kinds)
	if err := t.setMerges(m.Merges); err != nil {
		return nil, err
	}
	t.readAdded(f.AddedTokens)
	if err := t.readPostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	if err := t.readConfig(c, m.UnkToken); err != nil {
		return nil, err
	}
	t.findEOG()
	return t, nil
}

func (m *jsonModel) check() error {
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model type %s %w (supported: BPE)", quote.Name(m.Type), ErrUnsupported)
	case m.Dropout != 0:
		return fmt.Errorf("model dropout %g %w: encoding would be random", m.Dropout, ErrUnsupported)
	case m.SubwordPrefix != "":
		return fmt.Errorf("model continuing_subword_prefix %s %w", quote.Name(m.SubwordPrefix), ErrUnsupported)
	case m.WordSuffix != "":
		return fmt.Errorf("model end_of_word_suffix %s %w", quote.Name(m.WordSuffix), ErrUnsupported)
	}
	return nil
}

// vocabulary lists the texts and kinds of the model's and the added tokens by id.
func (f *jsonFile) vocabulary() ([]string, []kind, error) {
	vocab := map[string]int32{}
	if err := json.Unmarshal(f.Model.Vocab, &vocab); err != nil {
		return nil, nil, fmt.Errorf("model vocab: %w", quote.ErrorUpTo(err, shownBytes))
	}
	// Ids may have gaps, but a few bytes of file must not ask for gigabytes.
	limit := int32(min(2*(len(vocab)+len(f.AddedTokens))+1<<16, maxVocab))
	size := int32(0)
	reserve := func(text string, id int32) error {
		if id < 0 || id >= limit {
			return fmt.Errorf("token %s has id %d, outside 0…%d", quote.Name(text), id, limit-1)
		}
		size = max(size, id+1)
		return nil
	}
	for text, id := range vocab {
		if err := reserve(text, id); err != nil {
			return nil, nil, err
		}
	}
	for i, a := range f.AddedTokens {
		if id, ok := vocab[a.Content]; ok {
			f.AddedTokens[i].ID, a.ID = id, id // the model's id counts, whatever is listed
		}
		if err := reserve(a.Content, a.ID); err != nil {
			return nil, nil, err
		}
	}
	if size == 0 {
		return nil, nil, errors.New("vocabulary is empty")
	}
	tokens, kinds := make([]string, size), make([]kind, size)
	taken := make([]bool, size)
	for text, id := range vocab {
		if taken[id] {
			return nil, nil, fmt.Errorf("tokens %s and %s share the id %d", quote.Name(tokens[id]), quote.Name(text), id)
		}
		tokens[id], taken[id] = text, true
	}
	for _, a := range f.AddedTokens {
		if taken[a.ID] && tokens[a.ID] != a.Content {
			return nil, nil, fmt.Errorf("tokens %s and %s share the id %d", quote.Name(tokens[a.ID]), quote.Name(a.Content), a.ID)
		}
		tokens[a.ID], taken[a.ID], kinds[a.ID] = a.Content, true, kindLiteral
		if a.Special {
			kinds[a.ID] = kindSpecial
		}
	}
	return tokens, kinds, nil
}

// readAdded makes the splitters: tokens marked as normalised are sought, normalised themselves, in normalised text.
func (t *Tokenizer) readAdded(added []jsonAdded) {
	var raw, normalised []addedToken
	for _, a := range added {
		tok := addedToken{a.ID, a.Content, a.Special, a.LStrip, a.RStrip, a.SingleWord}
		if a.Normalized {
			tok.text = t.norm.apply(tok.text)
			normalised = append(normalised, tok)
		} else {
			raw = append(raw, tok)
		}
	}
	t.added, t.addedNorm = newSplitter(raw), newSplitter(normalised)
}

func (t *Tokenizer) readConfig(c *jsonConfig, modelUnk string) error {
	if c.UNK == "" {
		c.UNK = jsonToken(modelUnk)
	}
	for _, s := range []struct {
		text jsonToken
		id   *int32
		name string
	}{{c.BOS, &t.bos, "bos_token"}, {c.EOS, &t.eos, "eos_token"}, {c.PAD, &t.pad, "pad_token"}} {
		if s.text == "" {
			continue
		}
		if *s.id = t.texts.get(string(s.text)); *s.id < 0 {
			return fmt.Errorf("%s %s is not in the vocabulary", s.name, quote.Name(string(s.text)))
		}
	}
	if modelUnk != "" {
		// The model emits its own unknown token, whatever tokenizer_config.json calls so.
		if t.unk = t.texts.get(modelUnk); t.unk < 0 {
			return fmt.Errorf("unk_token %s is not in the vocabulary", quote.Name(modelUnk))
		}
	}
	if err := override(&t.prefix, c.AddBOS, t.bos, "bos"); err != nil {
		return err
	}
	return override(&t.suffix, c.AddEOS, t.eos, "eos")
}

// override applies add_bos_token or add_eos_token, which outrank the post-processor when stated.
func override(list *[]int32, add *bool, id int32, name string) error {
	switch {
	case add == nil:
	case *add && id < 0:
		return fmt.Errorf("add_%s_token is set, but there is no %s_token", name, name)
	case *add && !slices.Contains(*list, id):
		*list = append(*list, id)
	case !*add:
		*list = slices.DeleteFunc(*list, func(x int32) bool { return x == id })
	}
	return nil
}
