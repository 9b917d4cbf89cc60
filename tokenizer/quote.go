package tokenizer

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// Most bytes that an error shows of a name out of a file, and of a longer text such as an expression.
const (
	quotedBytes = 64
	shownBytes  = 300
)

// quote is strconv.Quote of a name out of a file: the end of a long one is cut.
func quote(name string) string { return quoteUpTo(name, quotedBytes) }

func quoteUpTo(text string, n int) string {
	if len(text) <= n {
		return strconv.Quote(text)
	}
	return strconv.Quote(clip(text, n)) + "…"
}

// short is err, cut if it repeats much of what could not be read; then it wraps nothing.
func short(err error) error {
	if err == nil || len(err.Error()) <= shownBytes {
		return err
	}
	return errors.New(clip(err.Error(), shownBytes) + "…")
}

// clip is the beginning of text, up to n bytes, without half a character.
func clip(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
