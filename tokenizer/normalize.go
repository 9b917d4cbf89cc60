package tokenizer

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

type normKind uint8

const (
	normPrepend normKind = iota // puts to before a text that is not empty
	normReplace                 // puts to in place of from
	normSqueeze                 // makes runs of from one, drops those at both ends
	normTrimEnd                 // drops every from at the end
	normStrip                   // drops white space: at the start if from is set, at the end if to is set
	normNFC
	normNFD
	normNFKC
	normNFKD
)

type normOp struct {
	op       normKind
	from, to string
}

// normalizer is the list of changes made to text before it is cut into words.
type normalizer []normOp

func (n normalizer) apply(s string) string {
	for _, o := range n {
		switch o.op {
		case normPrepend:
			if s != "" {
				s = o.to + s
			}
		case normReplace:
			s = strings.ReplaceAll(s, o.from, o.to)
		case normSqueeze:
			s = squeeze(s, o.from)
		case normTrimEnd:
			for strings.HasSuffix(s, o.from) {
				s = strings.TrimSuffix(s, o.from)
			}
		case normStrip:
			if o.from != "" {
				s = s[spaceLen(s):]
			}
			if o.to != "" {
				s = trimSpaceRight(s)
			}
		case normNFC:
			s = normalForm(norm.NFC, s)
		case normNFD:
			s = normalForm(norm.NFD, s)
		case normNFKC:
			s = normalForm(norm.NFKC, s)
		case normNFKD:
			s = normalForm(norm.NFKD, s)
		}
	}
	return s
}

// squeeze makes runs of sep one sep and drops those at both ends.
func squeeze(s, sep string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(s, sep) {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(sep)
		}
		b.WriteString(part)
	}
	return b.String()
}

// metaspaceStage is tokenizer.json's Metaspace pre-tokeniser.
type metaspaceStage struct {
	mark   string // replaces a space
	prefix prefixMode
	split  bool // cut before every mark
}

func (m *metaspaceStage) escape(s string, first bool) string {
	s = strings.ReplaceAll(s, " ", m.mark)
	if (m.prefix == prefixAlways || m.prefix == prefixFirst && first) && !strings.HasPrefix(s, m.mark) {
		s = m.mark + s
	}
	return s
}
