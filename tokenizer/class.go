package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// Character classes of the published expressions: \p{L}, \p{N}, \p{M}, \p{P}, \p{S} are Unicode's general categories,
// \s is the property White_Space. ASCII is answered from a table.

const (
	bitL = 1 << iota
	bitN
	bitSpace
	bitPS    // \p{P} or \p{S}
	bitP     // \p{P}
	bitUpper // \p{Lu}
	bitLower // \p{Ll}
)

var asciiClass = func() (c [utf8.RuneSelf]uint8) {
	for r := range rune(utf8.RuneSelf) {
		for bit, is := range map[uint8]bool{bitL: unicode.IsLetter(r), bitN: unicode.IsNumber(r), bitSpace: unicode.IsSpace(r),
			bitPS: unicode.IsPunct(r) || unicode.IsSymbol(r), bitP: unicode.IsPunct(r),
			bitUpper: unicode.IsUpper(r), bitLower: unicode.IsLower(r)} {
			if is {
				c[r] |= bit
			}
		}
	}
	return c
}()

// eof is what at returns behind the end: in no class, so that callers test only negated classes for it.
const eof = unicode.MaxRune + 1

// at returns the character at s[i] and its length, or eof and 0. An invalid byte is U+FFFD, a symbol.
func at(s string, i int) (rune, int) {
	if i >= len(s) {
		return eof, 0
	}
	if s[i] < utf8.RuneSelf {
		return rune(s[i]), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

func isL(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitL != 0
	}
	return unicode.IsLetter(r)
}

func isN(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitN != 0
	}
	return unicode.IsNumber(r)
}

func isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitSpace != 0
	}
	return unicode.IsSpace(r)
}

func isM(r rune) bool { return r >= utf8.RuneSelf && unicode.IsMark(r) }

func isLM(r rune) bool { return isL(r) || isM(r) }

func isP(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitP != 0
	}
	return unicode.IsPunct(r)
}

func isPS(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitPS != 0
	}
	return unicode.IsPunct(r) || unicode.IsSymbol(r)
}

// isOther is [^\s\p{L}\p{N}].
func isOther(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&(bitL|bitN|bitSpace) == 0
	}
	return r != eof && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsSpace(r)
}

// isUncased is [\p{Lm}\p{Lo}\p{M}].
func isUncased(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.In(r, unicode.Lo, unicode.Lm) || unicode.IsMark(r))
}

// isUpperish is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}].
func isUpperish(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitUpper != 0
	}
	return unicode.In(r, unicode.Lu, unicode.Lt) || isUncased(r)
}

// isLowerish is [\p{Ll}\p{Lm}\p{Lo}\p{M}].
func isLowerish(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&bitLower != 0
	}
	return unicode.Is(unicode.Ll, r) || isUncased(r)
}

// run returns the end of the characters of a class from s[i] on.
func run(s string, i int, is func(rune) bool) int {
	for {
		r, n := at(s, i)
		if n == 0 || !is(r) {
			return i
		}
		i += n
	}
}

// runMax is run with at most limit characters.
func runMax(s string, i, limit int, is func(rune) bool) int {
	for ; limit > 0; limit-- {
		r, n := at(s, i)
		if n == 0 || !is(r) {
			break
		}
		i += n
	}
	return i
}

// orNone makes an empty match none.
func orNone(i, end int) int {
	if end == i {
		return -1
	}
	return end
}
