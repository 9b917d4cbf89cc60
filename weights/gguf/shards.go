package gguf

import (
	"fmt"
	"strings"

	"github.com/flashdecode/flashdecode/weights/internal/filemap"
)

// Keys of a model in several files, as the reference's split tool writes them.
const (
	keySplitNo      = "split.no"            // this shard, from 0
	keySplitCount   = "split.count"         // shards in all
	keySplitTensors = "split.tensors.count" // tensors in all shards together
)

const maxShards = 99999 // what the five digits of the name can count

// shardPath returns the path of shard no, from 0, of count.
func shardPath(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// openShards maps and parses shards 1..count-1 beside the first, which says that there are count.
func (f *File) openShards(count int) error {
	first := f.shards[0]
	if !first.IsFile() {
		return fmt.Errorf("gguf: %s: the model is split into %d files: open the first by its path", first.Path(), count)
	}
	no, err := f.Meta.IntOr(keySplitNo, 0)
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", first.Path(), err)
	}
	if count > maxShards {
		return fmt.Errorf("gguf: %s: %s is %d, at most %d are possible", first.Path(), keySplitCount, count, maxShards)
	}
	prefix, ok := strings.CutSuffix(first.Path(), shardPath("", no, count))
	if !ok {
		return fmt.Errorf("gguf: %s: it is shard %d of %d, so its name should end in %q: rename it to find the others",
			first.Path(), no+1, count, shardPath("", no, count))
	}
	if no != 0 {
		return fmt.Errorf("gguf: %s: it is shard %d of %d: open the first, %s", first.Path(), no+1, count, shardPath(prefix, 0, count))
	}
	for n := 1; n < count; n++ {
		if err := f.openShard(shardPath(prefix, n, count), n, count); err != nil {
			return err
		}
	}
	total, err := f.Meta.IntOr(keySplitTensors, len(f.Tensors))
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", first.Path(), err)
	}
	if total != len(f.Tensors) {
		return fmt.Errorf("gguf: %s: %s is %d, the shards hold %d tensors", first.Path(), keySplitTensors, total, len(f.Tensors))
	}
	return nil
}

func (f *File) openShard(path string, n, count int) error {
	m, err := filemap.Open(path)
	if err != nil {
		return fmt.Errorf("gguf: shard %d of %d: %w", n+1, count, err)
	}
	f.shards = append(f.shards, m)
	meta := &Meta{file: f, values: make(map[string]value)}
	if err := f.parse(n, meta); err != nil {
		return err
	}
	no, err1 := meta.Int(keySplitNo)
	of, err2 := meta.Int(keySplitCount)
	if err1 != nil || err2 != nil || no != n || of != count {
		return fmt.Errorf("gguf: %s: it does not say that it is shard %d of %d (%s, %s)", path, n+1, count, keySplitNo, keySplitCount)
	}
	return nil
}
