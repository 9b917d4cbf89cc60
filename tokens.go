package flashdecode

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/safetensors"
)

// HasChatTemplate reports whether Chat can be used.
func (m *Model) HasChatTemplate() bool { return m.vocab.template != "" }

// OpenTokenizer reads only the tokenizer of the GGUF file or directory at path. Any architecture will do, and files
// without weights, too.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("flashdecode: %w", err)
	}
	if info.IsDir() {
		v, err := dirVocabulary(path)
		if err != nil {
			return nil, fmt.Errorf("flashdecode: %s: %w", filepath.Base(filepath.Clean(path)), err)
		}
		return v.Tokenizer, nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("flashdecode: %w", err)
	}
	defer f.Close() // a Tokenizer keeps nothing of the file
	v, err := ggufVocabulary(f.Meta)
	return v.Tokenizer, err
}

// dirVocabulary needs no weights: only two files of the directory are read.
func dirVocabulary(path string) (vocabulary, error) {
	d := &safetensors.File{}
	var err error
	if d.Tokenizer, err = os.ReadFile(filepath.Join(path, "tokenizer.json")); err != nil {
		return vocabulary{}, err
	}
	if b, err := os.ReadFile(filepath.Join(path, "tokenizer_config.json")); err == nil {
		d.TokenizerConfig = b
	}
	return hfVocabulary(d)
}
