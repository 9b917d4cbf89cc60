package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// addedToken is a token found in text before any other cutting.
type addedToken struct {
	id         int32
	text       string
	special    bool // found only if EncodeOptions.ParseSpecial
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space after it along
	singleWord bool // not inside a word
}

// splitter finds added tokens, the leftmost first and of those the longest: a trie over bytes.
type splitter struct {
	first  [256]bool // bytes that some token begins with
	edges  pairTable // (node, byte) → node
	accept []int32   // by node: index into tokens, or None
	tokens []addedToken
}

// newSplitter returns nil for no tokens.
func newSplitter(tokens []addedToken) *splitter {
	size := 0
	for _, a := range tokens {
		size += len(a.text)
	}
	if size == 0 {
		return nil
	}
	s := &splitter{edges: newPairTable(size), accept: []int32{None}, tokens: tokens}
	for i, a := range tokens {
		if a.text == "" {
			continue
		}
		s.first[a.text[0]] = true
		node := int32(0)
		for _, b := range []byte(a.text) {
			_, next := s.edges.get(node, int32(b))
			if next < 0 {
				next = int32(len(s.accept))
				s.accept = append(s.accept, None)
				s.edges.set(node, int32(b), 0, next)
			}
			node = next
		}
		s.accept[node] = int32(i)
	}
	return s
}

// at returns the longest token that begins at text[i:], or nil.
func (s *splitter) at(text string, i int) *addedToken {
	var found *addedToken
	for node := int32(0); i < len(text); i++ {
		if _, node = s.edges.get(node, int32(text[i])); node < 0 {
			break
		}
		if k := s.accept[node]; k >= 0 {
			found = &s.tokens[k]
		}
	}
	return found
}

// each calls fragment for the text between added tokens (never empty), with its offset, and token for each of them.
func (s *splitter) each(text string, parseSpecial bool, fragment func(text string, at int), token func(id int32)) {
	done := 0
	if s != nil {
		for i := 0; i < len(text); {
			if !s.first[text[i]] {
				i++
				continue
			}
			a := s.at(text, i)
			if a == nil {
				i++
				continue
			}
			start, end := i, i+len(a.text)
			if a.special && !parseSpecial || a.singleWord && (endsInWord(text[:start]) || startsInWord(text[end:])) {
				i = end // a shorter token within it is not sought either
				continue
			}
			if a.lstrip {
				start = done + len(trimSpaceRight(text[done:start]))
			}
			if a.rstrip {
				end += spaceLen(text[end:])
			}
			if done < start {
				fragment(text[done:start], done)
			}
			token(a.id)
			i, done = end, end
		}
	}
	if done < len(text) {
		fragment(text[done:], done)
	}
}

func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc)
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsInWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

func trimSpaceRight(s string) string {
	for s != "" {
		r, n := utf8.DecodeLastRuneInString(s)
		if !unicode.IsSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

func spaceLen(s string) int {
	n := 0
	for n < len(s) {
		r, w := utf8.DecodeRuneInString(s[n:])
		if !unicode.IsSpace(r) {
			break
		}
		n += w
	}
	return n
}
