package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flashdecode/flashdecode/internal/quote"
)

// maxVocab bounds what a hostile file can make New allocate beyond its own size; the largest published vocabularies
// have 262,144 tokens.
const maxVocab = 1 << 24

// metaspace stands for a space in SentencePiece vocabularies.
const metaspace = "▁"

// kind says how a token's text becomes its piece and whether ordinary text may become the token.
type kind uint8

const (
	kindNormal  kind = iota // byte-level text or text with metaspaces
	kindLiteral             // the text itself (metaspaces are spaces in SentencePiece): user-defined tokens
	kindSpecial             // the text itself, never the result of merging
	kindByte                // <0xXX>, never the result of merging
)

type prefixMode uint8

const (
	prefixNever  prefixMode = iota
	prefixFirst             // at the start of the text
	prefixAlways            // and after every control token
)

// Tokenizer is an immutable vocabulary with its algorithm, safe for concurrent use.
type Tokenizer struct {
	tokens   []string // text, by id
	special  []bool   // control and unknown tokens, by id
	pieces   []byte   // all pieces, end to end
	pieceOff []uint32 // [len(tokens)+1]
	texts    textTable

	bos, eos, eot, unk, pad int32
	eog                     []int32
	prefix, suffix          []int32 // put around the text by AddSpecial

	added     *splitter // found in raw text
	addedNorm *splitter // found in normalised text
	norm      normalizer
	meta      *metaspaceStage // tokenizer.json's Metaspace pre-tokeniser, before stages
	stages    stages

	byteLevel    bool
	addPrefix    bool // byte level: a fragment that has no leading space gets one
	ignoreMerges bool
	byteFallback bool
	fuseUnknown  bool
	cutAtSpace   bool       // no token has a metaspace behind another character: words can be merged one by one
	prefixSpace  prefixMode // which fragments Encode gives a leading space, and Decode takes it from
	byScore      bool       // merges are found by text and score, not by pair

	byteID    [256]int32 // byte level: token of each byte; else: the fallback token of each byte
	words     textTable  // byte level with ignoreMerges: pieces; else: mergeable texts
	pairs     pairTable
	scoreRank []uint32 // byScore: rank of each token, equal for equal scores

	scratch sync.Pool // *scratch
}

func newTokenizer(tokens []string) *Tokenizer {
	t := &Tokenizer{tokens: tokens, bos: None, eos: None, eot: None, unk: None, pad: None}
	t.texts = newTextTable(tokens, len(tokens))
	for id := range tokens {
		t.texts.add(int32(id))
	}
	t.scratch.New = func() any { return new(scratch) }
	return t
}

// setPieces computes every token's piece, the byte tokens and the table of words.
func (t *Tokenizer) setPieces(kinds []kind) {
	n := len(t.tokens)
	t.pieceOff = make([]uint32, n+1)
	t.special = make([]bool, n)
	for b := range t.byteID {
		t.byteID[b] = None
	}
	mergeable := make([]bool, n)
	t.cutAtSpace = true
	for id, text := range t.tokens {
		start := len(t.pieces)
		k := kinds[id]
		t.special[id] = k == kindSpecial
		b, isByte := parseByteToken(text)
		switch {
		case k == kindNormal && t.byteLevel:
			t.pieces, mergeable[id] = appendFromByteText(t.pieces, text)
			if p := t.pieces[start:]; mergeable[id] && len(p) == 1 {
				t.byteID[p[0]] = int32(id)
			}
		case !t.byteLevel && isByte && (k == kindByte || k == kindNormal):
			t.pieces = append(t.pieces, b)
			t.byteID[b] = int32(id)
		case !t.byteLevel && (k == kindNormal || k == kindLiteral):
			for rest := text; rest != ""; {
				var part string
				var found bool
				if part, rest, found = strings.Cut(rest, metaspace); part != "" {
					t.cutAtSpace = t.cutAtSpace && !found
					t.pieces = append(t.pieces, part...)
				}
				if found {
					t.pieces = append(t.pieces, ' ')
				}
			}
			mergeable[id] = true
		default:
			t.pieces = append(t.pieces, text...)
		}
		t.pieceOff[id+1] = uint32(len(t.pieces))
	}
	if t.byteLevel && !t.ignoreMerges {
		return // words are not looked up
	}
	words := t.tokens
	if t.byteLevel {
		all := string(t.pieces)
		words = make([]string, n)
		for id := range words {
			words[id] = all[t.pieceOff[id]:t.pieceOff[id+1]]
		}
	}
	t.words = newTextTable(words, n)
	for id := range words {
		if mergeable[id] {
			t.words.add(int32(id))
		}
	}
}

func (t *Tokenizer) setMerges(merges [][2]string) error {
	t.pairs = newPairTable(len(merges))
	id := int32(None)
	for rank, m := range merges {
		left, right := t.texts.get(m[0]), t.texts.get(m[1])
		// Trainers number tokens in the order of merges, so most results are the token behind the last one.
		if id++; !t.valid(id) || len(t.tokens[id]) != len(m[0])+len(m[1]) || t.tokens[id] != m[0]+m[1] {
			id = t.texts.get(m[0] + m[1])
		}
		if left < 0 || right < 0 || id < 0 {
			return fmt.Errorf("tokenizer: merge %d of %s and %s: a part or the result is not in the vocabulary",
				rank, quote.Name(m[0]), quote.Name(m[1]))
		}
		t.pairs.set(left, right, uint32(rank), id)
	}
	return nil
}

func (t *Tokenizer) setScores(scores []float32) {
	t.byScore, t.fuseUnknown = true, true
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	t.scoreRank = make([]uint32, len(scores))
	rank := uint32(0)
	for i, id := range order {
		if i > 0 && scores[id] != scores[order[i-1]] {
			rank++
		}
		t.scoreRank[id] = rank
	}
}

// eogTexts are tokens that end a model's turn by convention; files rarely list more than one of theirs.
var eogTexts = []string{
	"<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>",
	"<end_of_turn>", "<｜end▁of▁sentence｜>", "<EOT>", "_<EOT>", "< EOT >",
}

func (t *Tokenizer) findEOG() {
	add := func(id int32) {
		if id >= 0 && !slices.Contains(t.eog, id) {
			t.eog = append(t.eog, id)
		}
	}
	add(t.eos)
	add(t.eot)
	for _, text := range eogTexts {
		add(t.texts.get(text))
	}
}

// VocabSize returns the number of ids.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// BOS returns the id of the token that begins a text, or None.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS returns the id of the token that ends a text, or None.
func (t *Tokenizer) EOS() int32 { return t.eos }

// EOT returns the id of the token that ends a turn, or None.
func (t *Tokenizer) EOT() int32 { return t.eot }

// PAD returns the id of the padding token, or None.
func (t *Tokenizer) PAD() int32 { return t.pad }

// EOG returns the ids after which generation is over: EOS, EOT and the tokens known as such by convention.
func (t *Tokenizer) EOG() []int32 { return slices.Clone(t.eog) }

// IsEOG tells whether generation is over after id.
func (t *Tokenizer) IsEOG(id int32) bool { return slices.Contains(t.eog, id) }

// IsSpecial tells whether id is a control or unknown token, which a reader is not meant to see.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.valid(id) && t.special[id] }

// Token returns the text of a token as its file spells it, or "" for an id outside the vocabulary.
func (t *Tokenizer) Token(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.tokens[id]
}

// ID returns the id of the token that its file spells so.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id := t.texts.get(token)
	return id, id >= 0
}

// Piece returns the bytes that a token stands for, nil for an id outside the vocabulary. The caller must not modify them.
func (t *Tokenizer) Piece(id int32) []byte {
	if !t.valid(id) {
		return nil
	}
	return t.pieces[t.pieceOff[id]:t.pieceOff[id+1]:t.pieceOff[id+1]]
}

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.tokens) }
