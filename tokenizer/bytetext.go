package tokenizer

import "unicode/utf8"

// Byte-level vocabularies spell each byte as a printable character: bytes that are printable in Latin-1 stand for
// themselves, the n-th of the others, in order, is U+0100+n (Radford et al., "Language Models are Unsupervised Multitask
// Learners", 2019, §2.2, and its published encoder).

// byteOfRune returns the byte that r spells; ok is false if r spells none.
func byteOfRune(r rune) (b byte, ok bool) {
	switch {
	case r >= 0x21 && r <= 0x7e || r >= 0xa1 && r <= 0xff && r != 0xad:
		return byte(r), true
	case r >= 0x100 && r <= 0x120: // 0x00…0x20
		return byte(r - 0x100), true
	case r >= 0x121 && r <= 0x142: // 0x7f…0xa0
		return byte(r - 0x121 + 0x7f), true
	case r == 0x143:
		return 0xad, true
	}
	return 0, false
}

// appendFromByteText appends the bytes that text spells. A text that is no such spelling is appended as it is, with ok
// false: it cannot come out of merging bytes.
func appendFromByteText(dst []byte, text string) (_ []byte, ok bool) {
	start := len(dst)
	for _, r := range text {
		b, ok := byteOfRune(r)
		if !ok {
			return append(dst[:start], text...), false
		}
		dst = append(dst, b)
	}
	return dst, utf8.ValidString(text) && text != ""
}

// parseByteToken reads <0xXX>.
func parseByteToken(text string) (b byte, ok bool) {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return 0, false
	}
	for _, c := range []byte(text[3:5]) {
		switch {
		case c >= '0' && c <= '9':
			b = b<<4 | (c - '0')
		case c >= 'A' && c <= 'F':
			b = b<<4 | (c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return b, true
}
