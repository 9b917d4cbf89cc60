package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is U+034F, which x/text/unicode/norm puts into runs of more than 30 marks (Unicode TR15 §13, "Stream-Safe Text
// Format"). Tokenizers are trained on the plain normal forms.
const joiner = "\u034f"

// normalForm is f.String(s) without the joiners that it inserts.
func normalForm(f norm.Form, s string) string {
	out := f.String(s)
	if strings.Count(out, joiner) == strings.Count(s, joiner) {
		return out
	}
	decompose := norm.NFD
	if f == norm.NFKC || f == norm.NFKD {
		decompose = norm.NFKD
	}
	runes := orderMarks(decomposed(decompose, s))
	if f == norm.NFC || f == norm.NFKC {
		runes = composed(runes)
	}
	return string(runes)
}

type markedRune struct {
	r   rune
	ccc uint8 // canonical combining class
}

func decomposed(f norm.Form, s string) []markedRune {
	var out []markedRune
	for i, n := 0, 0; i < len(s); i += n {
		_, n = utf8.DecodeRuneInString(s[i:])
		for _, r := range f.String(s[i : i+n]) {
			out = append(out, markedRune{r, f.PropertiesString(string(r)).CCC()})
		}
	}
	return out
}

// orderMarks sorts each run of marks by class (Unicode §3.11, canonical ordering).
func orderMarks(in []markedRune) []rune {
	for i := 0; i < len(in); i++ {
		start := i
		for i < len(in) && in[i].ccc != 0 {
			i++
		}
		slices.SortStableFunc(in[start:i], func(a, b markedRune) int { return int(a.ccc) - int(b.ccc) })
	}
	out := make([]rune, len(in))
	for i, m := range in {
		out[i] = m.r
	}
	return out
}

// composed joins each starter with the later characters that nothing blocks from it (Unicode §3.11, canonical
// composition).
func composed(in []rune) []rune {
	out := in[:0]
	starter, last := -1, -1 // index of the starter; class of the last character kept behind it, -1 for none
	for _, r := range in {
		ccc := int(norm.NFC.PropertiesString(string(r)).CCC())
		if starter >= 0 && (last < 0 || last < ccc) {
			if pair := []rune(norm.NFC.String(string(out[starter]) + string(r))); len(pair) == 1 {
				out[starter] = pair[0]
				continue
			}
		}
		out = append(out, r)
		last = ccc
		if ccc == 0 {
			starter, last = len(out)-1, -1
		}
	}
	return out
}
