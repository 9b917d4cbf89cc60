package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/flashdecode/flashdecode/internal/quote"
	"github.com/flashdecode/flashdecode/weights"
	"github.com/flashdecode/flashdecode/weights/internal/filemap"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// File is an open GGUF model. All methods but Close are safe for concurrent use.
type File struct {
	Meta    *Meta
	Tensors []Info // in the order of the file, shard after shard

	byName map[string]int // index into Tensors
	shards filemap.Set
}

// Info describes a tensor without reading it.
type Info struct {
	Name  string
	Type  string // the format's name in ggml, such as "Q4_K" or "IQ2_XS"
	Shape []int  // row-major, last dimension contiguous
	Bytes int64  // 0 if the format's size is not known
	// Offset is where the tensor begins in its file.
	Offset int64
	// Shard is the number of that file, from 0.
	Shard int

	kind ggmlType
	at   int // offset of the tensor's entry in the list, for errors
}

// Quant returns the number format, and whether it is supported: whether File.Tensor returns the tensor.
func (i Info) Quant() (quant.Type, bool) { return i.kind.typ, i.kind.supported }

// Open maps the GGUF file at path and, if it is the first shard of several, the others beside it.
func Open(path string) (*File, error) {
	m, err := filemap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f := &File{shards: filemap.Set{m}}
	if err := weights.Guard(f.open, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Parse reads a GGUF file that is already in memory. Tensors are views of data, which must not change.
func Parse(data []byte) (*File, error) {
	f := &File{shards: filemap.Set{filemap.Bytes("memory", data)}}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// open parses the first shard, then maps and parses the others.
func (f *File) open() error {
	f.Meta = &Meta{file: f, values: make(map[string]value)}
	f.byName = make(map[string]int)
	if err := f.parse(0, f.Meta); err != nil {
		return err
	}
	count, err := f.Meta.IntOr(keySplitCount, 1)
	if err != nil {
		return err
	}
	if count > 1 {
		return f.openShards(count)
	}
	return nil
}

// parse reads the structure of shard n into meta and appends its tensors.
func (f *File) parse(n int, meta *Meta) error {
	s := f.shards[n]
	r := &reader{data: s.Data}
	tensors, kvs := r.header()
	for range kvs {
		at := r.off
		key := r.name("key")
		v := r.value(key)
		if _, dup := meta.values[key]; dup {
			r.fail(at, "key %s: appears twice", quote.Name(key))
		}
		if r.err != nil {
			return fmt.Errorf("gguf: %s: %w", s.Path(), r.err)
		}
		meta.values[key] = v
		meta.keys = append(meta.keys, key)
	}
	align, err := alignment(meta)
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", s.Path(), err)
	}
	first := len(f.Tensors)
	for range tensors {
		info := r.info(n)
		if _, dup := f.byName[info.Name]; dup {
			r.fail(info.at, "tensor %s: appears twice", quote.Name(info.Name))
		}
		if r.err != nil {
			return fmt.Errorf("gguf: %s: %w", s.Path(), r.err)
		}
		f.byName[info.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, info)
	}
	if r.err == nil && tensors > 0 {
		r.place(f.Tensors[first:], align)
	}
	if r.err != nil {
		return fmt.Errorf("gguf: %s: %w", s.Path(), r.err)
	}
	return nil
}

// alignment returns the alignment that meta asks for.
func alignment(meta *Meta) (uint64, error) {
	align, err := meta.UintOr("general.alignment", 32)
	if err == nil && (bits.OnesCount64(align) != 1 || align > maxAlign) {
		err = fmt.Errorf("general.alignment is %d, want a power of two up to %d", align, maxAlign)
	}
	return align, err
}

// info reads an entry of the list of tensors of shard n. Its Offset is still relative.
func (r *reader) info(n int) Info {
	info := Info{at: r.off, Shard: n}
	info.Name = r.name("tensor name")
	dims := r.u32("number of dimensions")
	if r.err == nil && dims > maxDims {
		r.fail(info.at, "tensor %s: %d dimensions (at most %d are possible)", quote.Name(info.Name), dims, maxDims)
	}
	if r.err != nil {
		return info
	}
	info.Shape = make([]int, max(dims, 1))
	info.Shape[0] = 1 // no dimensions: a scalar
	elems := uint64(1)
	for d := range int(dims) {
		size := r.u64("dimension")
		over, product := bits.Mul64(elems, size)
		if size > math.MaxInt || over != 0 || product > math.MaxInt {
			r.fail(info.at, "tensor %s: dimension %d of %d makes it too large", quote.Name(info.Name), d, size)
		}
		info.Shape[int(dims)-1-d], elems = int(size), product
	}
	info.kind = lookup(r.u32("tensor type"))
	info.Type = info.kind.name
	offset := r.u64("tensor offset")
	if offset > math.MaxInt {
		r.fail(info.at, "tensor %s: offset %d is too large", quote.Name(info.Name), offset)
	}
	if r.err != nil {
		return info
	}
	info.Offset = int64(offset)
	info.Bytes = r.bytes(info, elems)
	return info
}

// bytes returns the size of a tensor of elems weights.
func (r *reader) bytes(info Info, elems uint64) int64 {
	k := info.kind
	if k.weights == 0 {
		return 0 // unknown format
	}
	if cols := uint64(info.Shape[len(info.Shape)-1]); cols%k.weights != 0 {
		r.fail(info.at, "tensor %s: rows of %d weights are not whole %s blocks of %d", quote.Name(info.Name), cols, k.name, k.weights)
	}
	over, size := bits.Mul64(elems/k.weights, k.bytes)
	if over != 0 || size > math.MaxInt {
		r.fail(info.at, "tensor %s: %d weights of %s are too large", quote.Name(info.Name), elems, k.name)
		return 0
	}
	return int64(size)
}

// place makes the offsets of infos, whose list has just been read, relative to the file and checks that
// every tensor is aligned, inside the file and apart from the others. Gaps are allowed.
func (r *reader) place(infos []Info, align uint64) {
	start := (uint64(r.off) + align - 1) &^ (align - 1)
	size := uint64(len(r.data))
	for i := range infos {
		t := &infos[i]
		if uint64(t.Offset)%align != 0 {
			r.fail(t.at, "tensor %s: its offset %d is not a multiple of the alignment %d", quote.Name(t.Name), t.Offset, align)
			return
		}
		// No sum here overflows 64 bits: each term is below 2^63.
		begin := start + uint64(t.Offset)
		if begin > size || uint64(t.Bytes) > size-begin {
			r.fail(t.at, "tensor %s: its %d bytes at %d reach beyond the end of the file at %d: the file is truncated or damaged",
				quote.Name(t.Name), t.Bytes, begin, size)
			return
		}
		t.Offset = int64(begin)
	}
	order := slices.Clone(infos)
	slices.SortFunc(order, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	for i := 1; i < len(order); i++ {
		if prev, t := order[i-1], order[i]; t.Offset < prev.Offset+prev.Bytes {
			r.fail(t.at, "tensor %s: its bytes at %d overlap those of %s", quote.Name(t.Name), t.Offset, quote.Name(prev.Name))
			return
		}
	}
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
		return weights.Tensor{}, fmt.Errorf("gguf: %s: tensor %s: %w", f.shards[0].Path(), quote.Name(name), weights.ErrNotFound)
	}
	s := f.shards[info.Shard]
	typ, ok := info.Quant()
	if !ok {
		return weights.Tensor{}, fmt.Errorf("gguf: %s: tensor %s: %w %s (supported: %s)",
			s.Path(), quote.Name(name), quant.ErrType, info.Type, quant.Supported())
	}
	if s.Data == nil {
		return weights.Tensor{}, fmt.Errorf("gguf: %s: file is closed", s.Path())
	}
	end := info.Offset + info.Bytes
	return weights.Tensor{
		Name:  name,
		Type:  typ,
		Shape: slices.Clone(info.Shape),
		Data:  s.Data[info.Offset:end:end],
	}, nil
}

// read calls use with the bytes of an array of the first shard, guarded.
func (f *File) read(v value, use func(data []byte) error) error {
	s := f.shards[0]
	if s.Data == nil {
		return fmt.Errorf("%s: file is closed", s.Path())
	}
	return weights.Guard(func() error { return use(s.Data[v.start:v.end]) }, f)
}

// Check returns an error that wraps weights.ErrChanged if a mapped file was truncated or written to
// since it was opened. It asks the system, so it costs some microseconds.
func (f *File) Check() error { return prefix(f.shards.Check()) }

// FaultAt implements weights.Mapped.
func (f *File) FaultAt(addr uintptr) error { return prefix(f.shards.FaultAt(addr)) }

// Evict lets the system take back the memory of data, a part of a Tensor's Data. It can still be read,
// from the file anew.
func (f *File) Evict(data []byte) { f.shards.Evict(data) }

// Close unmaps the file. Tensors obtained from it must no longer be read: that would crash.
func (f *File) Close() error { return prefix(f.shards.Close()) }

func prefix(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("gguf: %w", err)
}
