package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// matchNewline is [\r\n].
func matchNewline(s string, i int) int {
	if s[i] == '\r' || s[i] == '\n' {
		return i + 1
	}
	return -1
}

// spaced is \s?C+ for a class C. The space may be of C itself: then it is given back if no other of C follows.
func spaced(s string, i int, is func(rune) bool) int {
	if r, n := at(s, i); isSpace(r) {
		if end := run(s, i+n, is); end > i+n {
			return end
		}
	}
	return orNone(i, run(s, i, is))
}

// matchSpacedLetters is \s?\p{L}+.
func matchSpacedLetters(s string, i int) int { return spaced(s, i, isL) }

// matchSpacedP is \s?\p{P}+.
func matchSpacedP(s string, i int) int { return spaced(s, i, isP) }

// matchSpacedCased is \s?[A-Za-zµÀ-Ö…𞤀-𞥃]+, the cased letters that DeepSeek LLM's tokenizer.json lists.
func matchSpacedCased(s string, i int) int {
	return spaced(s, i, func(r rune) bool {
		if r < utf8.RuneSelf {
			return isL(r)
		}
		return unicode.Is(deepseekCased, r)
	})
}

// matchSpacedPunctuation is \s?[!-/:-~！-／：-～‘-‟　-。]+. The class :-~ has the ASCII letters, too.
func matchSpacedPunctuation(s string, i int) int {
	return spaced(s, i, func(r rune) bool {
		return r >= '!' && r <= '/' || r >= ':' && r <= '~' || r >= 0xff01 && r <= 0xff0f || r >= 0xff1a && r <= 0xff5e ||
			r >= 0x2018 && r <= 0x201f || r >= 0x3000 && r <= 0x3002
	})
}

// matchTrailingSpace is \s+$. Only the start of a run of white space is tried, or a long run would be read from each of
// its characters.
func matchTrailingSpace(s string, i int) int {
	if i > 0 {
		if r, _ := utf8.DecodeLastRuneInString(s[:i]); isSpace(r) {
			return -1
		}
	}
	if end := run(s, i, isSpace); end == len(s) {
		return orNone(i, end)
	}
	return -1
}

// matchCJK is [一-龥ࠀ-一가-퟿]+.
func matchCJK(s string, i int) int {
	return orNone(i, run(s, i, func(r rune) bool { return r >= 0x0800 && r <= 0x9fa5 || r >= 0xac00 && r <= 0xd7ff }))
}

// matchHanKana is [一-龥぀-ゟ゠-ヿ]+.
func matchHanKana(s string, i int) int {
	return orNone(i, run(s, i, func(r rune) bool { return r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff }))
}

// matchDeepSeekV3 is the main expression of DeepSeek-V3; numbers and some controls are in none of its branches:
//
//	[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
//	\s*[\r\n]+|\s+(?!\S)|\s+
func matchDeepSeekV3(s string, i int) int {
	r, n := at(s, i)
	if r < utf8.RuneSelf && isPS(r) {
		if end := run(s, i+n, func(r rune) bool { return r < utf8.RuneSelf && isL(r) }); end > i+n {
			return end
		}
	}
	if !isL(r) && !isPS(r) && r != '\r' && r != '\n' {
		if end := run(s, i+n, isLM); end > i+n {
			return end
		}
	}
	if end := run(s, i, isLM); end > i {
		return end
	}
	body := i
	if r == ' ' {
		body = i + n
	}
	if end := run(s, body, isPS); end > body {
		return run(s, end, isLineBreak)
	}
	return matchSpace(s, i, true)
}

// deepseekCased is the class of matchSpacedCased: the cased letters of the Unicode version it was written with.
var deepseekCased = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0041, 0x005a, 1}, {0x0061, 0x007a, 1}, {0x00b5, 0x00b5, 1}, {0x00c0, 0x00d6, 1},
		{0x00d8, 0x00f6, 1}, {0x00f8, 0x01ba, 1}, {0x01bc, 0x01bf, 1}, {0x01c4, 0x0293, 1},
		{0x0295, 0x02af, 1}, {0x0370, 0x0373, 1}, {0x0376, 0x0377, 1}, {0x037b, 0x037d, 1},
		{0x037f, 0x037f, 1}, {0x0386, 0x0386, 1}, {0x0388, 0x038a, 1}, {0x038c, 0x038c, 1},
		{0x038e, 0x03a1, 1}, {0x03a3, 0x03f5, 1}, {0x03f7, 0x0481, 1}, {0x048a, 0x052f, 1},
		{0x0531, 0x0556, 1}, {0x10a0, 0x10c5, 1}, {0x13a0, 0x13f5, 1}, {0x13f8, 0x13fd, 1},
		{0x1c90, 0x1cba, 1}, {0x1cbd, 0x1cbf, 1}, {0x1d00, 0x1d2b, 1}, {0x1d6b, 0x1d77, 1},
		{0x1d79, 0x1d9a, 1}, {0x1e00, 0x1f15, 1}, {0x1f18, 0x1f1d, 1}, {0x1f20, 0x1f45, 1},
		{0x1f48, 0x1f4d, 1}, {0x1f50, 0x1f57, 1}, {0x1f59, 0x1f59, 1}, {0x1f5b, 0x1f5b, 1},
		{0x1f5d, 0x1f5d, 1}, {0x1f5f, 0x1f7d, 1}, {0x1f80, 0x1fb4, 1}, {0x1fb6, 0x1fbc, 1},
		{0x1fbe, 0x1fbe, 1}, {0x1fc2, 0x1fc4, 1}, {0x1fc6, 0x1fcc, 1}, {0x1fd0, 0x1fd3, 1},
		{0x1fd6, 0x1fdb, 1}, {0x1fe0, 0x1fec, 1}, {0x1ff2, 0x1ff4, 1}, {0x1ff6, 0x1ffc, 1},
		{0x2102, 0x2102, 1}, {0x2107, 0x2107, 1}, {0x210a, 0x2113, 1}, {0x2115, 0x2115, 1},
		{0x2119, 0x211d, 1}, {0x2124, 0x2124, 1}, {0x2126, 0x2126, 1}, {0x2128, 0x2128, 1},
		{0x212a, 0x212d, 1}, {0x212f, 0x2134, 1}, {0x2139, 0x2139, 1}, {0x213c, 0x213f, 1},
		{0x2145, 0x2149, 1}, {0x214e, 0x214e, 1}, {0x2183, 0x2184, 1}, {0x2c00, 0x2c7b, 1},
		{0x2c7e, 0x2ce4, 1}, {0x2ceb, 0x2cee, 1}, {0x2cf2, 0x2cf3, 1}, {0xa640, 0xa66d, 1},
		{0xa680, 0xa69b, 1}, {0xa722, 0xa76f, 1}, {0xa771, 0xa787, 1}, {0xa78b, 0xa78e, 1},
		{0xab70, 0xabbf, 1}, {0xfb00, 0xfb06, 1}, {0xfb13, 0xfb17, 1}, {0xff21, 0xff3a, 1},
		{0xff41, 0xff5a, 1},
	},
	R32: []unicode.Range32{
		{0x10400, 0x1044f, 1}, {0x104b0, 0x104d3, 1}, {0x104d8, 0x104fb, 1}, {0x10c80, 0x10cb2, 1},
		{0x10cc0, 0x10cf2, 1}, {0x118a0, 0x118df, 1}, {0x1e900, 0x1e943, 1},
	},
	LatinOffset: 5,
}

// deepseekCasedRegex is the same class as tokenizer.json spells it.
const deepseekCasedRegex = "\\s?[" +
	"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-" +
	"\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-" +
	"\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf" +
	"\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-" +
	"\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc" +
	"\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115" +
	"\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e" +
	"\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-" +
	"\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a" +
	"\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-" +
	"\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943" +
	"]+"
