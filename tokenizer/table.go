package tokenizer

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

// textTable finds a token by its text. It holds ids only and compares against the tokens, which makes it five times
// smaller than a map[string]int32; the seed is random, so a file cannot be built to make it slow.
type textTable struct {
	seed   maphash.Seed
	slots  []int32 // id+1, 0 is free; a power of two, at most half full
	tokens []string
}

func newTextTable(tokens []string, capacity int) textTable {
	return textTable{maphash.MakeSeed(), make([]int32, tableSize(capacity)), tokens}
}

func tableSize(n int) int { return 1 << bits.Len(uint(2*n)) }

// add enters tokens[id] unless its text is there already.
func (t *textTable) add(id int32) {
	mask := uint64(len(t.slots) - 1)
	for h := maphash.String(t.seed, t.tokens[id]); ; h++ {
		switch slot := &t.slots[h&mask]; {
		case *slot == 0:
			*slot = id + 1
			return
		case t.tokens[*slot-1] == t.tokens[id]:
			return
		}
	}
}

// get returns the id of the token with this text, or None.
func (t *textTable) get(text string) int32 {
	mask := uint64(len(t.slots) - 1)
	for h := maphash.String(t.seed, text); ; h++ {
		id := t.slots[h&mask] - 1
		if id < 0 || t.tokens[id] == text {
			return id
		}
	}
}

// pairTable maps a pair of ids to the rank of their merge and the merged id.
type pairTable struct {
	seed  uint64
	shift uint
	slots []pairSlot // a power of two, at most half full
}

type pairSlot struct {
	key  uint64 // pairKey+1, 0 is free
	rank uint32
	id   int32
}

// noRank is the rank of a pair that does not merge.
const noRank = ^uint32(0)

func newPairTable(capacity int) pairTable {
	size := tableSize(capacity)
	return pairTable{rand.Uint64(), uint(64 - bits.TrailingZeros(uint(size))), make([]pairSlot, size)}
}

func (t *pairTable) slot(left, right int32) (*pairSlot, uint64) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right)) + 1
	hi, lo := bits.Mul64(key^t.seed, 0x9e3779b97f4a7c15)
	for h := (hi ^ lo) >> t.shift; ; h++ {
		s := &t.slots[h&uint64(len(t.slots)-1)]
		if s.key == key || s.key == 0 {
			return s, key
		}
	}
}

func (t *pairTable) set(left, right int32, rank uint32, id int32) {
	s, key := t.slot(left, right)
	*s = pairSlot{key, rank, id}
}

// get returns noRank if the pair does not merge.
func (t *pairTable) get(left, right int32) (rank uint32, id int32) {
	if left < 0 || right < 0 {
		return noRank, None
	}
	if s, _ := t.slot(left, right); s.key != 0 {
		return s.rank, s.id
	}
	return noRank, None
}
