package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/flashdecode/flashdecode/internal/quote"
)

// jsonPart is any component of tokenizer.json: the union of the fields of those that this package implements.
type jsonPart struct {
	Type string `json:"type"`

	Normalizers   []json.RawMessage `json:"normalizers"`
	Pretokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`

	Pattern  jsonPattern     `json:"pattern"`
	Content  string          `json:"content"`
	Prepend  string          `json:"prepend"`
	Behavior string          `json:"behavior"`
	Invert   bool            `json:"invert"`
	Left     bool            `json:"strip_left"`
	Right    bool            `json:"strip_right"`
	Start    int             `json:"start"`
	Single   []jsonPiece     `json:"single"`
	Special  json.RawMessage `json:"special_tokens"`

	UseRegex         *bool  `json:"use_regex"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	IndividualDigits bool   `json:"individual_digits"`
	Replacement      string `json:"replacement"`
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool  `json:"split"`
}

type jsonPattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

type jsonPiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
}

// maxNesting bounds the depth of Sequence in Sequence.
const maxNesting = 8

// maxGrowth bounds how many times longer a file's normalizer can make a text.
const maxGrowth = 64

// eachPart calls visit for a component and, if it is a Sequence, for its members instead.
func eachPart(raw json.RawMessage, role string, depth int, visit func(p *jsonPart) error) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var p jsonPart
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("%s: %w", role, quote.ErrorUpTo(err, shownBytes))
	}
	if p.Type != "Sequence" {
		return visit(&p)
	}
	if depth == maxNesting {
		return fmt.Errorf("%s: more than %d nested sequences", role, maxNesting)
	}
	for _, member := range slices.Concat(p.Normalizers, p.Pretokenizers, p.Processors, p.Decoders) {
		if err := eachPart(member, role, depth+1, visit); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) readNormalizer(raw json.RawMessage) error {
	growth := 1
	return eachPart(raw, "normalizer", 0, func(p *jsonPart) error {
		op := normOp{}
		if len(t.norm) == 2*maxNesting {
			return fmt.Errorf("normalizer of more than %d steps %w", len(t.norm), ErrUnsupported)
		}
		switch p.Type {
		case "NFC":
			op.op = normNFC
		case "NFD":
			op.op = normNFD
		case "NFKC":
			op.op = normNFKC
		case "NFKD":
			op.op = normNFKD
		case "Prepend":
			op = normOp{op: normPrepend, to: p.Prepend}
			if p.Prepend == metaspace || p.Prepend == " " {
				t.prefixSpace = prefixAlways
			}
		case "Replace":
			if p.Pattern.String == nil || *p.Pattern.String == "" {
				return fmt.Errorf("normalizer Replace without a String pattern %w", ErrUnsupported)
			}
			op = normOp{op: normReplace, from: *p.Pattern.String, to: p.Content}
			if growth *= max(1, (len(op.to)+len(op.from)-1)/len(op.from)); growth > maxGrowth {
				return fmt.Errorf("normalizer Replace of %s by %d bytes %w: text could grow %d times", quote.Name(op.from), len(op.to),
					ErrUnsupported, growth)
			}
		case "Strip":
			op.op = normStrip
			if p.Left {
				op.from = " "
			}
			if p.Right {
				op.to = " "
			}
		default:
			return fmt.Errorf("normalizer %s %w (supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip)",
				quote.Name(p.Type), ErrUnsupported)
		}
		t.norm = append(t.norm, op)
		return nil
	})
}

// jsonStages are the expressions that published tokenizer.json files split by, with line breaks spelt \r and \n.
var jsonStages = map[string]matcher{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: matchGPT2,

	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: matchCL100K3,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      matchCL100K1,

	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`: matchO200K,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                matchTekken,

	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+": matchDeepSeekV3,

	`\p{N}{1,3}`: matchDigits3, `\p{N}`: matchDigit, `\p{N}+`: matchNumber, `[0-9][0-9][0-9]`: matchASCIIDigits3,
	`[\r\n]`: matchNewline, `\s?\p{L}+`: matchSpacedLetters, `\s?\p{P}+`: matchSpacedP, `\s+$`: matchTrailingSpace,
	"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+": matchCJK, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+": matchHanKana,
	"\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+": matchSpacedPunctuation, `[\p{P}\$\+<=>\^~\|]+`: matchPunctuation,
	deepseekCasedRegex: matchSpacedCased,
}

func (t *Tokenizer) readPreTokenizer(raw json.RawMessage) error {
	return eachPart(raw, "pre_tokenizer", 0, func(p *jsonPart) error {
		if len(t.stages) == 2*maxNesting {
			return fmt.Errorf("pre_tokenizer of more than %d stages %w", len(t.stages), ErrUnsupported)
		}
		switch p.Type {
		case "ByteLevel":
			t.byteLevel = true
			t.addPrefix = p.AddPrefixSpace == nil || *p.AddPrefixSpace
			if p.UseRegex == nil || *p.UseRegex {
				t.stages = append(t.stages, matchGPT2)
			}
			if t.addPrefix {
				t.prefixSpace = prefixAlways
			}
		case "Digits":
			if p.IndividualDigits {
				t.stages = append(t.stages, matchDigit)
			} else {
				t.stages = append(t.stages, matchNumber)
			}
		case "Metaspace":
			return t.readMetaspace(p)
		case "Split":
			m, err := splitStage(p)
			if err != nil {
				return err
			}
			t.stages = append(t.stages, m)
		default:
			return fmt.Errorf("pre_tokenizer %s %w (supported: ByteLevel, Digits, Metaspace, Sequence, Split)",
				quote.Name(p.Type), ErrUnsupported)
		}
		return nil
	})
}

func (t *Tokenizer) readMetaspace(p *jsonPart) error {
	if p.Replacement != metaspace || len(t.stages) > 0 || t.byteLevel || t.meta != nil {
		return fmt.Errorf("pre_tokenizer Metaspace with %s or behind another pre-tokeniser %w", quote.Name(p.Replacement), ErrUnsupported)
	}
	t.meta = &metaspaceStage{mark: p.Replacement, split: p.Split == nil || *p.Split}
	var err error
	t.meta.prefix, err = metaspacePrefix(p)
	t.prefixSpace = t.meta.prefix
	return err
}

func metaspacePrefix(p *jsonPart) (prefixMode, error) {
	switch p.PrependScheme {
	case "first":
		return prefixFirst, nil
	case "never":
		return prefixNever, nil
	case "always":
		return prefixAlways, nil
	case "": // files of before prepend_scheme
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			return prefixNever, nil
		}
		return prefixAlways, nil
	}
	return prefixNever, fmt.Errorf("prepend_scheme %s of Metaspace %w", quote.Name(p.PrependScheme), ErrUnsupported)
}

// splitStage recognises a Split by its pattern.
func splitStage(p *jsonPart) (matcher, error) {
	if s := p.Pattern.String; s != nil {
		if *s != "" && p.Behavior == "MergedWithPrevious" && !p.Invert {
			return matchThrough(*s), nil
		}
		return nil, fmt.Errorf("pre_tokenizer Split by the string %s, behavior %s %w", quote.Name(*s), quote.Name(p.Behavior), ErrUnsupported)
	}
	if p.Pattern.Regex == nil {
		return nil, fmt.Errorf("pre_tokenizer Split without a pattern %w", ErrUnsupported)
	}
	regex := strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(*p.Pattern.Regex)
	m, ok := jsonStages[regex]
	if !ok {
		return nil, fmt.Errorf("pre_tokenizer Split by the expression %s %w", quote.UpTo(*p.Pattern.Regex, shownBytes), ErrUnsupported)
	}
	// These expressions match every character of any text, so removing what is between matches removes nothing.
	whole := strings.HasSuffix(regex, `\s+(?!\S)|\s+`) && !strings.Contains(regex, `[\p{P}\p{S}]`)
	if p.Behavior == "Isolated" && !p.Invert || p.Behavior == "Removed" && p.Invert && whole {
		return m, nil
	}
	return nil, fmt.Errorf("pre_tokenizer Split with behavior %s, invert %t %w", quote.Name(p.Behavior), p.Invert, ErrUnsupported)
}

// matchThrough matches up to and including the next sep, so that sep stays with what precedes it.
func matchThrough(sep string) matcher {
	return func(s string, i int) int {
		k := strings.Index(s[i:], sep)
		if k < 0 {
			return len(s)
		}
		return i + k + len(sep)
	}
}

func (t *Tokenizer) readDecoder(raw json.RawMessage) error {
	return eachPart(raw, "decoder", 0, func(p *jsonPart) error {
		switch p.Type {
		case "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Strip":
		case "Replace":
			if p.Pattern.String == nil || *p.Pattern.String != metaspace || p.Content != " " {
				return fmt.Errorf("decoder Replace other than %q by a space %w", metaspace, ErrUnsupported)
			}
		default:
			return fmt.Errorf("decoder %s %w (supported: ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip)",
				quote.Name(p.Type), ErrUnsupported)
		}
		return nil
	})
}

// readPostProcessor takes the tokens that a TemplateProcessing puts around a single text.
func (t *Tokenizer) readPostProcessor(raw json.RawMessage) error {
	return eachPart(raw, "post_processor", 0, func(p *jsonPart) error {
		switch p.Type {
		case "ByteLevel": // changes offsets only
			return nil
		case "TemplateProcessing":
		default:
			return fmt.Errorf("post_processor %s %w (supported: ByteLevel, Sequence, TemplateProcessing)", quote.Name(p.Type), ErrUnsupported)
		}
		var special map[string]struct {
			IDs []int32 `json:"ids"`
		}
		if len(p.Special) > 0 {
			if err := json.Unmarshal(p.Special, &special); err != nil {
				return fmt.Errorf("post_processor special_tokens: %w", quote.ErrorUpTo(err, shownBytes))
			}
		}
		list := &t.prefix
		for _, piece := range p.Single {
			if piece.SpecialToken == nil {
				list = &t.suffix
				continue
			}
			s, ok := special[piece.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("post_processor names the special token %s but does not define it", quote.Name(piece.SpecialToken.ID))
			}
			for _, id := range s.IDs {
				if !t.valid(id) {
					return fmt.Errorf("post_processor's %s has id %d, outside the vocabulary", quote.Name(piece.SpecialToken.ID), id)
				}
			}
			*list = append(*list, s.IDs...)
		}
		return nil
	})
}
