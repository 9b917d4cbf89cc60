package ops

import "fmt"

// Check reports what is inconsistent in b for a cache of the given layout. Backends call it in Begin, so that an
// index never reaches a kernel unchecked.
func (b *Batch) Check(kv KVLayout) error {
	n := b.Seqs()
	if len(b.Positions) != len(b.Tokens) {
		return fmt.Errorf("ops: batch has %d tokens and %d positions", len(b.Tokens), len(b.Positions))
	}
	if len(b.QIndptr) != n+1 || len(b.PageIndptr) != n+1 {
		return fmt.Errorf("ops: batch of %d sequences has %d row and %d page offsets, want %d", n, len(b.QIndptr), len(b.PageIndptr), n+1)
	}
	if b.QIndptr[0] != 0 || int(b.QIndptr[n]) != len(b.Tokens) || b.PageIndptr[0] != 0 || int(b.PageIndptr[n]) > len(b.PageIndices) {
		return fmt.Errorf("ops: batch offsets do not span its %d rows and %d pages", len(b.Tokens), len(b.PageIndices))
	}
	if kv.Ranges > 0 && len(b.Ranges) != n {
		return fmt.Errorf("ops: batch of %d sequences names %d address ranges", n, len(b.Ranges))
	}
	for s := range n {
		if err := b.checkSeq(s, kv); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) checkSeq(s int, kv KVLayout) error {
	q, l := b.QLen(s), int(b.KVLens[s])
	if q < 0 || l < q {
		return fmt.Errorf("ops: sequence %d has %d new rows and %d tokens", s, q, l)
	}
	if b.PageIndptr[s+1] < b.PageIndptr[s] {
		return fmt.Errorf("ops: sequence %d has a negative number of pages", s)
	}
	need := (l + kv.PageSize - 1) / kv.PageSize
	table := b.Table(s)
	if len(table) < need {
		return fmt.Errorf("ops: sequence %d has %d pages for %d tokens, needs %d", s, len(table), l, need)
	}
	if kv.Ranges > 0 && (b.Ranges[s] < 0 || int(b.Ranges[s]) >= kv.Ranges || need > kv.RangePages) {
		return fmt.Errorf("ops: sequence %d of %d pages in range %d, the cache has %d of %d pages", s, need, b.Ranges[s], kv.Ranges, kv.RangePages)
	}
	for _, p := range table[:need] {
		if p < 0 || int(p) >= kv.Pages {
			return fmt.Errorf("ops: sequence %d uses page %d of a cache of %d", s, p, kv.Pages)
		}
	}
	for i := range q {
		if got, want := int(b.Positions[int(b.QIndptr[s])+i]), l-q+i; got != want {
			return fmt.Errorf("ops: row %d of sequence %d is at position %d, want %d", i, s, got, want)
		}
	}
	return nil
}
