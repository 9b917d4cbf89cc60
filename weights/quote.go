package weights

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// Most bytes of a name or a text out of a file that an error shows. A damaged file may claim a name of 64 KB.
const (
	quotedBytes = 64
	shownBytes  = 200
)

// Quote is strconv.Quote of a name out of a file for an error: the end of a long one is cut.
func Quote(name string) string {
	if len(name) <= quotedBytes {
		return strconv.Quote(name)
	}
	return strconv.Quote(clip(name, quotedBytes)) + "…"
}

// Short is err with at most some 200 bytes of text: decoders of JSON repeat what they can't read. The text of one that
// is longer is cut, and then it wraps nothing.
func Short(err error) error {
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
