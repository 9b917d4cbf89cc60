package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/internal/filemap"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// Names of the files of a model's directory.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// maxBeside bounds the index and the files beside the weights, in bytes. The largest tokenizer.json in use have some 40 MB.
const maxBeside = 256 << 20

// File is an open model of one or more safetensors files. All methods but Close are safe for concurrent
// use.
type File struct {
	Tensors []Info // in the order of their data, shard after shard
	// Meta is the first file's "__metadata__", often empty.
	Meta map[string]string

	// The files beside the weights, as they are; nil for one that is not there. Only OpenDir reads them.
	Config           []byte // config.json
	Tokenizer        []byte // tokenizer.json
	TokenizerConfig  []byte // tokenizer_config.json
	GenerationConfig []byte // generation_config.json
	ChatTemplate     []byte // chat_template.jinja

	byName map[string]int // index into Tensors
	shards filemap.Set
}

// Open maps the safetensors file at path.
func Open(path string) (*File, error) {
	f := &File{byName: make(map[string]int)}
	return f.opened(f.add(path, nil))
}

// OpenDir opens the model in dir: its weights are in model.safetensors or, without that, in the files
// listed in model.safetensors.index.json.
func OpenDir(dir string) (*File, error) {
	f := &File{byName: make(map[string]int)}
	var err error
	single := filepath.Join(dir, singleFile)
	if _, e := os.Stat(single); errors.Is(e, fs.ErrNotExist) {
		err = f.addIndexed(dir)
	} else {
		err = f.add(single, nil)
	}
	if err == nil {
		err = f.readBeside(dir)
	}
	return f.opened(err)
}

// Parse reads a safetensors file that is already in memory. Tensors are views of data, which must not
// change.
func Parse(data []byte) (*File, error) {
	f := &File{byName: make(map[string]int)}
	return f.opened(f.addMap(filemap.Bytes("memory", data), nil))
}

// opened returns f, or what went wrong when opening it.
func (f *File) opened(err error) (*File, error) {
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", errors.Join(err, f.shards.Close()))
	}
	return f, nil
}

// add maps the file at path and adds its tensors, or only those in wanted if that is not nil.
func (f *File) add(path string, wanted map[string]bool) error {
	m, err := filemap.Open(path)
	if err != nil {
		return err
	}
	return f.addMap(m, wanted)
}

func (f *File) addMap(m *filemap.Map, wanted map[string]bool) error {
	f.shards = append(f.shards, m)
	var infos []Info
	var meta map[string]string
	err := weights.Guard(func() (err error) {
		infos, meta, err = parseHeader(m.Data, len(f.shards)-1)
		return err
	}, m)
	if errors.Is(err, weights.ErrChanged) {
		return err // it names the file
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path(), err)
	}
	if len(f.shards) == 1 {
		f.Meta = meta
	}
	found := 0
	for _, t := range infos {
		if wanted != nil && !wanted[t.Name] {
			continue // the index says that another shard has it, or that nobody needs it
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
		found++
	}
	if found < len(wanted) {
		for name := range wanted {
			if _, ok := f.byName[name]; !ok {
				return fmt.Errorf("%s: tensor %s: %w, though %s says that it is there", m.Path(), quote.Name(name), weights.ErrNotFound, indexFile)
			}
		}
	}
	return nil
}

// addIndexed adds the shards that dir's index lists.
func (f *File) addIndexed(dir string) error {
	path := filepath.Join(dir, indexFile)
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: it has neither %s nor %s: %w", dir, singleFile, indexFile, err)
	}
	if err != nil {
		return err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return fmt.Errorf("%s: %w", path, quote.Error(err))
	}
	if len(index.WeightMap) == 0 {
		return fmt.Errorf("%s: weight_map is missing or empty", path)
	}
	wanted := make(map[string]map[string]bool) // by shard
	for name, shard := range index.WeightMap {
		// A name that leaves the directory could make us read any file.
		if !filepath.IsLocal(shard) || filepath.Base(shard) != shard {
			return fmt.Errorf("%s: tensor %s: %s is not the name of a file beside it", path, quote.Name(name), quote.Name(shard))
		}
		if wanted[shard] == nil {
			wanted[shard] = make(map[string]bool)
		}
		wanted[shard][name] = true
	}
	names := make([]string, 0, len(wanted))
	for shard := range wanted {
		names = append(names, shard)
	}
	slices.Sort(names)
	for _, shard := range names {
		if err := f.add(filepath.Join(dir, shard), wanted[shard]); err != nil {
			return err
		}
	}
	return nil
}

// readBeside reads what lies beside the weights in dir.
func (f *File) readBeside(dir string) error {
	for name, into := range map[string]*[]byte{
		"config.json": &f.Config, "tokenizer.json": &f.Tokenizer, "tokenizer_config.json": &f.TokenizerConfig,
		"generation_config.json": &f.GenerationConfig, "chat_template.jinja": &f.ChatTemplate,
	} {
		data, err := readBounded(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		*into = data
	}
	return nil
}

// readBounded reads a regular file of at most maxBeside bytes.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBeside {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, maxBeside)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Names implements weights.Source.
func (f *File) Names() []string {
	names := make([]string, len(f.Tensors))
	for i, t := range f.Tensors {
		names[i] = t.Name
	}
	return names
}

// Info returns the description of the tensor of that name.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, false
	}
	return f.Tensors[i], true
}

// Tensor implements weights.Source.
func (f *File) Tensor(name string) (weights.Tensor, error) {
	info, ok := f.Info(name)
	if !ok {
		return weights.Tensor{}, fmt.Errorf("safetensors: %s: tensor %s: %w", f.shards[0].Path(), quote.Name(name), weights.ErrNotFound)
	}
	s := f.shards[info.Shard]
	typ, ok := info.Quant()
	if !ok {
		return weights.Tensor{}, fmt.Errorf("safetensors: %s: tensor %s: %w %s (supported: F32, F16, BF16)",
			s.Path(), quote.Name(name), quant.ErrType, info.DType)
	}
	if s.Data == nil {
		return weights.Tensor{}, fmt.Errorf("safetensors: %s: file is closed", s.Path())
	}
	end := info.Offset + info.Bytes
	return weights.Tensor{Name: name, Type: typ, Shape: slices.Clone(info.Shape), Data: s.Data[info.Offset:end:end]}, nil
}

// Check returns an error that wraps weights.ErrChanged if a mapped file was truncated or written to
// since it was opened. It asks the system, so it costs some microseconds.
func (f *File) Check() error { return prefix(f.shards.Check()) }

// FaultAt implements weights.Mapped.
func (f *File) FaultAt(addr uintptr) error { return prefix(f.shards.FaultAt(addr)) }

// Evict lets the system take back the memory of data, a part of a Tensor's Data. It can still be read,
// from the file anew.
func (f *File) Evict(data []byte) { f.shards.Evict(data) }

// Close unmaps the files. Tensors obtained from them must no longer be read: that would crash.
func (f *File) Close() error { return prefix(f.shards.Close()) }

func prefix(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("safetensors: %w", err)
}
