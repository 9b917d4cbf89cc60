// Package quote shows what comes out of files in errors. A damaged file may claim a name of 64 KB, and decoders of JSON repeat
// what they can't read, so the end of what is long is cut, never within a character.
package quote

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// Most bytes of a name, and of the text of an error, that are shown.
const (
	nameBytes  = 64
	errorBytes = 200
)

// Name is strconv.Quote of a name.
func Name(name string) string { return UpTo(name, nameBytes) }

// UpTo is strconv.Quote of at most n bytes.
func UpTo(text string, n int) string {
	if len(text) <= n {
		return strconv.Quote(text)
	}
	return strconv.Quote(clip(text, n)) + "…"
}

// Error is err with at most some 200 bytes of text. The text of one that is longer is cut, and then it wraps nothing.
func Error(err error) error { return ErrorUpTo(err, errorBytes) }

// ErrorUpTo is Error with at most n bytes.
func ErrorUpTo(err error, n int) error {
	if err == nil || len(err.Error()) <= n {
		return err
	}
	return errors.New(clip(err.Error(), n) + "…")
}

// clip is the beginning of text, up to n bytes, without half a character.
func clip(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
