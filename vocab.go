package flashdecode

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/safetensors"
)

// vocabulary is a tokenizer and the chat template that comes with it.
type vocabulary struct {
	*tokenizer.Tokenizer
	template string
}

// ggufVocabulary reads the tokenizer.* keys of a GGUF file.
func ggufVocabulary(m *gguf.Meta) (vocabulary, error) {
	r := vocabReader{meta: m}
	c := tokenizer.Defaults(r.string("tokenizer.ggml.model", ""), r.string("tokenizer.ggml.pre", ""))
	c.Model, c.Pre = r.string("tokenizer.ggml.model", ""), r.string("tokenizer.ggml.pre", "")
	c.Tokens = optional(&r, m.Strings, "tokenizer.ggml.tokens")
	c.Scores = optional(&r, m.Float32s, "tokenizer.ggml.scores")
	c.Types = optional(&r, m.Int32s, "tokenizer.ggml.token_type")
	c.Merges = optional(&r, m.Strings, "tokenizer.ggml.merges")
	r.id(&c.BOS, "tokenizer.ggml.bos_token_id")
	r.id(&c.EOS, "tokenizer.ggml.eos_token_id")
	r.id(&c.EOT, "tokenizer.ggml.eot_token_id")
	r.id(&c.UNK, "tokenizer.ggml.unknown_token_id")
	r.id(&c.PAD, "tokenizer.ggml.padding_token_id")
	r.flag(&c.AddBOS, "tokenizer.ggml.add_bos_token")
	r.flag(&c.AddEOS, "tokenizer.ggml.add_eos_token")
	r.flag(&c.AddSpacePrefix, "tokenizer.ggml.add_space_prefix")
	r.flag(&c.RemoveExtraWhitespaces, "tokenizer.ggml.remove_extra_whitespaces")
	template := r.string("tokenizer.chat_template", "")
	if r.err != nil {
		return vocabulary{}, fmt.Errorf("flashdecode: %w", r.err)
	}
	t, err := tokenizer.New(c)
	if err != nil {
		return vocabulary{}, fmt.Errorf("flashdecode: %w", err)
	}
	return vocabulary{t, template}, nil
}

// hfVocabulary reads the tokenizer files of a Hugging Face directory.
func hfVocabulary(d *safetensors.File) (vocabulary, error) {
	t, err := tokenizer.FromJSON(d.Tokenizer, d.TokenizerConfig)
	if err != nil {
		return vocabulary{}, err
	}
	if len(d.ChatTemplate) > 0 {
		return vocabulary{t, string(d.ChatTemplate)}, nil
	}
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	v := vocabulary{Tokenizer: t}
	if len(d.TokenizerConfig) > 0 {
		if err := json.Unmarshal(d.TokenizerConfig, &c); err != nil {
			return v, fmt.Errorf("tokenizer_config.json: %w", quote.Error(err))
		}
		_ = json.Unmarshal(c.Template, &v.template) // a list of named templates is left to the caller's own
	}
	return v, nil
}

// vocabReader keeps the first error.
type vocabReader struct {
	meta *gguf.Meta
	err  error
}

func (r *vocabReader) note(err error) {
	if err != nil && r.err == nil && !errors.Is(err, weights.ErrNotFound) {
		r.err = err
	}
}

func (r *vocabReader) string(key, def string) string {
	v, err := r.meta.StringOr(key, def)
	r.note(err)
	return v
}

func optional[T any](r *vocabReader, read func(string) (T, error), key string) T {
	v, err := read(key)
	r.note(err)
	return v
}

// id reads a token number where the file has one.
func (r *vocabReader) id(dst *int32, key string) {
	if !r.meta.Has(key) {
		return
	}
	v, err := r.meta.Int(key)
	r.note(err)
	*dst = int32(v)
	if int(*dst) != v { // some files say 4294967295 for none
		*dst = tokenizer.None
	}
}

func (r *vocabReader) flag(dst *bool, key string) {
	v, err := r.meta.BoolOr(key, *dst)
	r.note(err)
	*dst = v
}
