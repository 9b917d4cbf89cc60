package bench

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/flashdecode/flashdecode/weights/safetensors"
)

// Source is an open model file or directory.
type Source struct {
	Name    string
	Config  model.Config
	Weights weights.Source
	Bytes   int64      // of all tensors
	Params  int64      // numbers in them
	Type    quant.Type // the format of most of the bytes

	file file
}

// file is what GGUF files and directories have in common.
type file interface {
	weights.Source
	weights.Mapped
	Evict([]byte)
	Close() error
}

// Open opens the model at path, or the embedded one if path is empty.
func Open(path string) (*Source, error) {
	if path == "" {
		f, err := gguf.Parse(tiny.Data())
		if err != nil {
			return nil, err
		}
		return fromGGUF(tiny.Name, f)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(filepath.Clean(path))
	if !info.IsDir() {
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		return fromGGUF(name, f)
	}
	d, err := safetensors.OpenDir(path)
	if err != nil {
		return nil, err
	}
	c, err := model.ConfigFromHF(d.Config)
	return newSource(name, c, d, err)
}

func fromGGUF(name string, f *gguf.File) (*Source, error) {
	c, err := model.ConfigFromGGUF(f.Meta, f)
	return newSource(name, c, f, err)
}

// newSource closes f on an error, also that of reading c.
func newSource(name string, c model.Config, f file, err error) (*Source, error) {
	s := &Source{Name: name, Config: c, Weights: f, file: f}
	if err == nil {
		err = s.count()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// count adds up the tensors.
func (s *Source) count() error {
	bytes := map[quant.Type]int64{}
	for _, name := range s.Weights.Names() {
		t, err := s.Weights.Tensor(name)
		if err != nil {
			return err
		}
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		s.Params += n
		s.Bytes += int64(len(t.Data))
		bytes[t.Type] += int64(len(t.Data))
		if bytes[t.Type] > bytes[s.Type] || s.Params == n {
			s.Type = t.Type
		}
	}
	return nil
}

// Close closes the file; Runners on it must be closed before.
func (s *Source) Close() error { return s.file.Close() }
