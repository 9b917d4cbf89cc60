package flashdecode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/mem"
	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/gguf"
	"github.com/flashdecode/flashdecode/weights/safetensors"
)

// Model is an open model with its own engine. It is safe for concurrent use.
type Model struct {
	name   string
	config model.Config
	vocab  vocabulary
	kv     ops.KV
	be     ops.Backend
	engine *engine.Engine
	file   modelFile
	opts   config

	closing  sync.Once
	closeErr error
}

// modelFile is an open model file, of either kind.
type modelFile interface {
	weights.Source
	weights.Mapped
	io.Closer
	Evict(data []byte)
	Check() error
}

// Open opens a GGUF file, or a directory with config.json, tokenizer.json and safetensors files. It maps the file and
// reads no weights: those are touched when first used.
func Open(path string, opts ...Option) (*Model, error) {
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("flashdecode: %w", err)
	}
	name := filepath.Base(filepath.Clean(path))
	if info.IsDir() {
		return openDir(name, path, c)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("flashdecode: %w", err)
	}
	return openGGUF(name, f, c)
}

// Embedded opens the small story model that this package carries.
func Embedded(opts ...Option) (*Model, error) {
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	f, err := gguf.Parse(tiny.Data())
	if err != nil {
		return nil, fmt.Errorf("flashdecode: embedded model: %w", err)
	}
	return openGGUF(tiny.Name, f, c)
}

func configure(opts []Option) (config, error) {
	c := defaults()
	for _, o := range opts {
		if err := o(&c); err != nil {
			return c, err
		}
	}
	if c.maxSeqs > c.chunk {
		return c, fmt.Errorf("flashdecode: %d sequences can't decode in steps of %d tokens: raise PrefillChunk or lower MaxSequences", c.maxSeqs, c.chunk)
	}
	return c, nil
}

func openGGUF(name string, f *gguf.File, c config) (*Model, error) {
	mc, err := model.ConfigFromGGUF(f.Meta, f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("flashdecode: %s: %w", name, err)
	}
	v, err := ggufVocabulary(f.Meta)
	if err != nil {
		f.Close()
		return nil, err
	}
	return start(&Model{name: name, config: mc, vocab: v, file: f, opts: c})
}

func openDir(name, path string, c config) (*Model, error) {
	d, err := safetensors.OpenDir(path)
	if err != nil {
		return nil, fmt.Errorf("flashdecode: %w", err)
	}
	mc, err := model.ConfigFromHF(d.Config)
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("flashdecode: %s: %w", name, err)
	}
	v, err := hfVocabulary(d)
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("flashdecode: %s: %w", name, err)
	}
	return start(&Model{name: name, config: mc, vocab: v, file: d, opts: c})
}

// start loads the weights onto a CPU backend and starts an engine. It closes m on an error.
func start(m *Model) (*Model, error) {
	err := m.start()
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("flashdecode: %s: %w", m.name, err)
	}
	return m, nil
}

func (m *Model) start() error {
	c := &m.opts
	if m.vocab.VocabSize() > m.config.Vocab {
		return fmt.Errorf("tokenizer of %d tokens for an embedding of %d", m.vocab.VocabSize(), m.config.Vocab)
	}
	if c.context == 0 {
		c.context = m.config.Context
	}
	w := &watched{file: m.file}
	be, err := cpu.New(cpu.Options{
		Workers: c.workers, Level: c.level, FileOrder: c.fileOrder, Evict: w.evict,
		Fault: func(v any) error { return weights.Fault(v, m.file) },
	})
	if err != nil {
		return err
	}
	m.be = be
	load := func() error {
		w.model, err = model.Load(be, m.file, m.config, model.Options{MaxRows: c.chunk, MaxLogits: c.maxSeqs, ToFloat: c.float32})
		if err != nil {
			return err
		}
		return m.startEngine(w)
	}
	return weights.Guard(load, m.file)
}

// startEngine makes the cache and the engine.
func (m *Model) startEngine(lm engine.Model) error {
	c := &m.opts
	l := m.config.KVLayout()
	l.PageSize, l.Type = c.pageSize, c.kvType
	l.Pages = 1
	probe, err := m.be.NewKV(l)
	if err != nil {
		return err
	}
	l.Pages = c.cachePages(probe.PageBytes())
	if err := probe.Close(); err != nil {
		return err
	}
	if total := mem.Physical(); total > 0 && int64(l.Pages)*probe.PageBytes() > total {
		return fmt.Errorf("a KV cache of %d tokens takes %d MB, this machine has %d MB", l.Pages*l.PageSize, int64(l.Pages)*probe.PageBytes()>>20, total>>20)
	}
	if c.flat {
		l.Ranges, l.RangePages = c.maxSeqs, (c.context+c.pageSize-1)/c.pageSize
	}
	if m.kv, err = m.be.NewKV(l); err != nil {
		return err
	}
	m.engine, err = engine.New(lm, m.kv, engine.Options{
		Vocab: m.config.Vocab, Context: c.context, MaxRows: c.chunk, MaxSeqs: c.maxSeqs, Policy: c.policy,
		NoPrefixCache: !c.prefixCache,
	})
	return err
}

// maxDefaultPages bounds what is set up for each page, some 30 bytes, for a model that claims a context of millions.
const maxDefaultPages = 1 << 20

// cachePages is the number of pages asked for, or what the sequences can use, within half of the machine's memory:
// the cache takes memory only as it fills, but then must not take it all.
func (c *config) cachePages(pageBytes int64) int {
	if c.pages > 0 {
		return c.pages
	}
	one := (c.context + c.pageSize - 1) / c.pageSize
	pages := min(int64(one)*int64(c.maxSeqs), maxDefaultPages)
	if total := mem.Physical(); total > 0 {
		pages = min(pages, max(total/2/pageBytes, 1))
	}
	return int(max(pages, 1))
}

// Close ends all generation under way and gives everything back. Further generation fails, with engine.ErrClosed.
func (m *Model) Close() error {
	m.closing.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *Model) close() error {
	if m.engine != nil {
		m.engine.Close()
	}
	var errs []error
	if m.be != nil {
		errs = append(errs, m.be.Close())
	}
	return errors.Join(append(errs, m.file.Close())...)
}

// Info describes an open model.
type Info struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	Layers       int    `json:"layers"`
	QHeads       int    `json:"q_heads"`
	KVHeads      int    `json:"kv_heads"`
	HeadDim      int    `json:"head_dim"`
	Vocabulary   int    `json:"vocabulary"`
	Context      int    `json:"context"` // most tokens of a sequence
	KVType       string `json:"kv_type"`
	KVTokens     int    `json:"kv_tokens"`      // room of the cache
	KVTokenBytes int64  `json:"kv_bytes_token"` // of one token, all layers
	Backend      string `json:"backend"`
	Split        string `json:"split"`
}

// Info returns what is known about the model.
func (m *Model) Info() Info {
	l := m.kv.Layout()
	return Info{
		Name: m.name, Architecture: m.config.Arch, Layers: m.config.Layers, QHeads: m.config.QHeads,
		KVHeads: m.config.KVHeads, HeadDim: m.config.HeadDim, Vocabulary: m.config.Vocab, Context: m.opts.context,
		KVType: l.Type.String(), KVTokens: l.Pages * l.PageSize, KVTokenBytes: m.kv.PageBytes() / int64(l.PageSize),
		Backend: m.be.Limits().Name, Split: m.opts.policy.String(),
	}
}

// Stats returns what the engine has done so far.
func (m *Model) Stats() engine.Stats { return m.engine.Stats() }

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.vocab.Tokenizer }
