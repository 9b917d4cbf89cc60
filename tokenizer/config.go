package tokenizer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flashdecode/flashdecode/internal/quote"
)

// Values of Config.Types, numbered as in GGUF's tokenizer.ggml.token_type.
const (
	TypeNormal      = 1
	TypeUnknown     = 2
	TypeControl     = 3
	TypeUserDefined = 4
	TypeUnused      = 5
	TypeByte        = 6
)

// None is the id of a special token that a vocabulary lacks.
const None = -1

// ErrUnsupported is wrapped by the errors that name a model, pre-tokeniser or component this package does not implement.
var ErrUnsupported = errors.New("not supported")

// Config describes a vocabulary in the terms of GGUF's tokenizer.ggml.* keys, whatever file it came from.
// Start from Defaults, which also sets the absent ids to None.
type Config struct {
	Model  string    // "gpt2": byte-level BPE; "llama": SentencePiece BPE
	Pre    string    // pre-tokeniser of a "gpt2" model; "" means "default"
	Tokens []string  // text of each token, by id
	Scores []float32 // "llama": merge priority of each token, higher first
	Types  []int32   // Type* of each token; nil: all normal
	Merges []string  // "gpt2": "left right" in order of rank

	BOS, EOS, EOT, UNK, PAD int32 // ids, or None

	AddBOS, AddEOS         bool // EncodeOptions.AddSpecial puts them around the text
	AddSpacePrefix         bool // "llama": text gets a leading space at its start and after a control token
	RemoveExtraWhitespaces bool // "llama": runs of spaces become one, those at both ends go
	ByteFallback           bool // "llama": a character without a token becomes its bytes' tokens, not UNK
	IgnoreMerges           bool // "gpt2": a word that is a token is that token, whatever the merges say
}

// Defaults returns a Config with the flags that a GGUF file of this model and pre-tokeniser means when it does not
// state them, and every id None.
func Defaults(model, pre string) Config {
	c := Config{Model: model, Pre: pre, BOS: None, EOS: None, EOT: None, UNK: None, PAD: None}
	switch model {
	case "llama":
		c.AddBOS, c.AddSpacePrefix, c.ByteFallback = true, true, true
	case "gpt2":
		p := preTokenizers[pre]
		c.AddBOS, c.IgnoreMerges = p.addBOS, p.ignoreMerges
	}
	return c
}

func (c *Config) validate() error {
	n := len(c.Tokens)
	switch {
	case c.Model != "gpt2" && c.Model != "llama":
		return fmt.Errorf("tokenizer: model %s %w (supported: gpt2, llama)", quote.Name(c.Model), ErrUnsupported)
	case n == 0:
		return errors.New("tokenizer: vocabulary is empty")
	case n > maxVocab:
		return fmt.Errorf("tokenizer: vocabulary of %d tokens is above the limit of %d", n, maxVocab)
	case c.Types != nil && len(c.Types) != n:
		return fmt.Errorf("tokenizer: %d token types for %d tokens", len(c.Types), n)
	case c.Model == "llama" && len(c.Scores) != n:
		return fmt.Errorf("tokenizer: %d scores for %d tokens (model llama needs one each)", len(c.Scores), n)
	}
	for i, s := range c.Scores {
		if s != s {
			return fmt.Errorf("tokenizer: score of token %d is NaN", i)
		}
	}
	for _, s := range []struct {
		name string
		id   int32
	}{{"bos", c.BOS}, {"eos", c.EOS}, {"eot", c.EOT}, {"unk", c.UNK}, {"pad", c.PAD}} {
		if s.id < None || int(s.id) >= n {
			return fmt.Errorf("tokenizer: %s id %d is outside the vocabulary of %d tokens", s.name, s.id, n)
		}
	}
	if c.AddBOS && c.BOS == None || c.AddEOS && c.EOS == None {
		return errors.New("tokenizer: bos or eos is to be added, but the vocabulary names none")
	}
	return nil
}

// New builds a tokenizer. It keeps c's Tokens.
func New(c Config) (*Tokenizer, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	t := newTokenizer(c.Tokens)
	t.bos, t.eos, t.eot, t.unk, t.pad = c.BOS, c.EOS, c.EOT, c.UNK, c.PAD
	if c.AddBOS {
		t.prefix = []int32{c.BOS}
	}
	if c.AddEOS {
		t.suffix = []int32{c.EOS}
	}
	kinds := make([]kind, len(c.Tokens))
	var added, escaped []addedToken
	for i, text := range c.Tokens {
		typ := int32(TypeNormal)
		if c.Types != nil {
			typ = c.Types[i]
		}
		switch typ {
		case TypeControl, TypeUnknown:
			kinds[i] = kindSpecial
			added = append(added, addedToken{id: int32(i), text: text, special: true})
		case TypeUserDefined:
			kinds[i] = kindLiteral
			if c.Model == "llama" {
				// sentencepiece seeks these in normalised text; GGUF stores their spaces as spaces.
				escaped = append(escaped, addedToken{id: int32(i), text: strings.ReplaceAll(text, " ", metaspace)})
			} else {
				added = append(added, addedToken{id: int32(i), text: text})
			}
		case TypeByte:
			kinds[i] = kindByte
		}
	}
	t.added, t.addedNorm = newSplitter(added), newSplitter(escaped)
	var err error
	if c.Model == "gpt2" {
		err = t.initByteLevel(&c, kinds)
	} else {
		err = t.initSentencePiece(&c, kinds)
	}
	if err != nil {
		return nil, err
	}
	t.findEOG()
	return t, nil
}

func (t *Tokenizer) initByteLevel(c *Config, kinds []kind) error {
	pre := c.Pre
	if pre == "" {
		pre = "default"
	}
	p, ok := preTokenizers[pre]
	if !ok {
		return fmt.Errorf("tokenizer: pre-tokeniser %s %w (supported: %s)", quote.Name(pre), ErrUnsupported,
			strings.Join(PreTokenizers(), ", "))
	}
	t.byteLevel, t.stages = true, p.stages
	if p.nfc {
		t.norm = normalizer{{op: normNFC}}
	}
	t.ignoreMerges = c.IgnoreMerges || p.ignoreMerges
	t.setPieces(kinds)
	merges := make([][2]string, len(c.Merges))
	for i, m := range c.Merges {
		// A part may begin with a space in files that store it raw, so the separator is sought behind the first byte.
		k := -1
		if len(m) > 1 {
			k = strings.IndexByte(m[1:], ' ') + 1
		}
		if k < 1 {
			return fmt.Errorf("tokenizer: merge %d %s is not two parts separated by a space", i, quote.Name(m))
		}
		merges[i] = [2]string{m[:k], m[k+1:]}
	}
	return t.setMerges(merges)
}

func (t *Tokenizer) initSentencePiece(c *Config, kinds []kind) error {
	if c.RemoveExtraWhitespaces {
		t.norm = append(t.norm, normOp{op: normSqueeze, from: " "})
	}
	t.norm = append(t.norm, normOp{op: normReplace, from: " ", to: metaspace})
	if c.AddSpacePrefix {
		t.norm = append(t.norm, normOp{op: normPrepend, to: metaspace})
		t.prefixSpace = prefixAlways
	}
	if c.RemoveExtraWhitespaces {
		t.norm = append(t.norm, normOp{op: normTrimEnd, from: metaspace}) // a metaspace written out counts only here
	}
	t.byteFallback = c.ByteFallback
	t.setPieces(kinds)
	t.setScores(c.Scores)
	return nil
}
