package tokenizer

import "unicode/utf8"

// Decode returns the text of ids, special tokens by their own text; ids outside the vocabulary add nothing. It takes back
// the space that Encode puts before a text, so Decode(Encode(text)) is text where the vocabulary covers it and no
// normalisation changed it. The result is valid UTF-8 only if the tokens spell valid UTF-8.
func (t *Tokenizer) Decode(ids []int32) string {
	var out []byte
	fresh := t.prefixSpace != prefixNever
	for _, id := range ids {
		if !t.valid(id) {
			continue
		}
		p := t.Piece(id)
		if t.special[id] {
			fresh = t.prefixSpace == prefixAlways || fresh
		} else if len(p) > 0 {
			if fresh && p[0] == ' ' {
				p = p[1:]
			}
			fresh = false
		}
		out = append(out, p...)
	}
	return string(out)
}

// Decoder turns a stream of tokens, such as a model's output, into text that ends between characters. It continues a
// text: unlike Decode it keeps the first token's leading space. The zero Decoder is of no use: call NewDecoder.
type Decoder struct {
	t       *Tokenizer
	pending []byte // the beginning of a character, at most 3 bytes
}

// NewDecoder returns a Decoder; each stream needs its own.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Next returns the text that id completes, "" while a character is incomplete. Bytes that cannot begin or continue a
// character are passed on as they are.
func (d *Decoder) Next(id int32) string {
	d.pending = append(d.pending, d.t.Piece(id)...)
	n := len(d.pending) - incomplete(d.pending)
	text := string(d.pending[:n])
	d.pending = append(d.pending[:0], d.pending[n:]...)
	return text
}

// Flush returns the bytes held back and forgets them.
func (d *Decoder) Flush() string {
	text := string(d.pending)
	d.pending = d.pending[:0]
	return text
}

// incomplete returns the length of the unfinished character that b ends in, 0 to 3.
func incomplete(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
