package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// EncodeOptions says how text is to be read.
type EncodeOptions struct {
	AddSpecial   bool // put BOS before and EOS after the text if the vocabulary asks for them
	ParseSpecial bool // find control tokens in the text; for trusted text such as a rendered chat template
}

// Encode appends the tokens of text to dst.
func (t *Tokenizer) Encode(dst []int32, text string, opts EncodeOptions) []int32 {
	if opts.AddSpecial {
		dst = append(dst, t.prefix...)
	}
	sc := t.scratch.Get().(*scratch)
	word := func(w string) { dst = t.encodeWord(dst, w, sc) }
	token := func(id int32) { dst = append(dst, id) }
	t.added.each(text, opts.ParseSpecial, func(fragment string, at int) {
		fragment = t.norm.apply(fragment)
		t.addedNorm.each(fragment, opts.ParseSpecial, func(part string, partAt int) {
			t.eachWord(part, at == 0 && partAt == 0, word)
		}, token)
	}, token)
	sc.trim()
	t.scratch.Put(sc)
	if opts.AddSpecial {
		dst = append(dst, t.suffix...)
	}
	return dst
}

// eachWord cuts a fragment into the words that are merged by themselves.
func (t *Tokenizer) eachWord(part string, first bool, word func(string)) {
	if t.meta != nil {
		part = t.meta.escape(part, first)
	}
	if t.byteLevel {
		if t.addPrefix && !strings.HasPrefix(part, " ") {
			part = " " + part
		}
		t.stages.each(part, word)
		return
	}
	t.stages.each(part, func(w string) {
		switch {
		case t.meta != nil && t.meta.split:
			eachBefore(w, metaspace, word)
		case t.cutAtSpace:
			eachSpaced(w, word)
		default:
			word(w)
		}
	})
}

// eachBefore cuts s before every occurrence of sep.
func eachBefore(s, sep string, word func(string)) {
	for len(s) > len(sep) {
		k := strings.Index(s[len(sep):], sep)
		if k < 0 {
			break
		}
		word(s[:k+len(sep)])
		s = s[k+len(sep):]
	}
	if s != "" {
		word(s)
	}
}

// eachSpaced cuts s before every run of metaspaces. Merging the parts by themselves gives the same tokens as merging s,
// if no token has a metaspace behind another character, and keeps the merger in its fast case.
func eachSpaced(s string, word func(string)) {
	for s != "" {
		run := 0
		for strings.HasPrefix(s[run:], metaspace) {
			run += len(metaspace)
		}
		k := strings.Index(s[run:], metaspace)
		if k < 0 {
			word(s)
			return
		}
		word(s[:run+k])
		s = s[run+k:]
	}
}

// encodeWord appends the tokens of one word.
func (t *Tokenizer) encodeWord(dst []int32, word string, sc *scratch) []int32 {
	for len(word) > maxWordBytes {
		k := maxWordBytes
		for k > 0 && !utf8.RuneStart(word[k]) {
			k--
		}
		if k == 0 {
			k = maxWordBytes
		}
		dst = t.encodeWord(dst, word[:k], sc)
		word = word[k:]
	}
	if t.ignoreMerges {
		if id := t.words.get(word); id >= 0 {
			return append(dst, id)
		}
	}
	syms := sc.syms[:0]
	if t.byteLevel {
		for i := range len(word) {
			syms = append(syms, sym{start: int32(i), end: int32(i + 1), id: t.byteID[word[i]]})
		}
	} else {
		for i := 0; i < len(word); {
			_, n := utf8.DecodeRuneInString(word[i:])
			syms = append(syms, sym{start: int32(i), end: int32(i + n), id: t.words.get(word[i : i+n])})
			i += n
		}
	}
	sc.syms = syms
	if len(syms) <= smallWord {
		syms = t.mergeSmall(word, syms)
	} else {
		syms = t.mergeLarge(word, syms, sc)
	}
	return t.emit(dst, word, syms)
}

// emit appends the merged symbols' ids and resolves those that have none.
func (t *Tokenizer) emit(dst []int32, word string, syms []sym) []int32 {
	unknown := false
	for _, s := range syms {
		if s.id >= 0 {
			dst = append(dst, s.id)
			unknown = false
			continue
		}
		if t.byteFallback && t.hasBytes(word[s.start:s.end]) {
			for _, b := range []byte(word[s.start:s.end]) {
				dst = append(dst, t.byteID[b])
			}
			unknown = false
			continue
		}
		if t.unk >= 0 && !(unknown && t.fuseUnknown) {
			dst = append(dst, t.unk)
		}
		unknown = true
	}
	return dst
}

func (t *Tokenizer) hasBytes(s string) bool {
	for _, b := range []byte(s) {
		if t.byteID[b] < 0 {
			return false
		}
	}
	return true
}
