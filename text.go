package flashdecode

import (
	"strings"

	"github.com/flashdecode/flashdecode/tokenizer"
)

// textStream turns tokens into text and withholds what may be the beginning of a stop text.
type textStream struct {
	decoder *tokenizer.Decoder
	stop    []string
	held    string
}

func newTextStream(d *tokenizer.Decoder, stop []string) *textStream {
	return &textStream{decoder: d, stop: stop}
}

// next returns the text that is certain after one more token, and whether a stop text was reached.
func (t *textStream) next(id int32) (text string, stopped bool) {
	t.held += t.decoder.Next(id)
	if i := t.find(); i >= 0 {
		text, t.held = t.held[:i], ""
		return text, true
	}
	n := len(t.held) - t.pending()
	text, t.held = t.held[:n], t.held[n:]
	return text, false
}

// flush returns what is left when no more tokens come.
func (t *textStream) flush() string {
	rest := t.held + t.decoder.Flush()
	t.held = ""
	return rest
}

// find returns where the first stop text begins in what is held, -1 if nowhere.
func (t *textStream) find() int {
	first := -1
	for _, s := range t.stop {
		if i := strings.Index(t.held, s); s != "" && i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// pending is the length of the longest end of what is held that a stop text begins with.
func (t *textStream) pending() int {
	longest := 0
	for _, s := range t.stop {
		for n := min(len(s)-1, len(t.held)); n > longest; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}
