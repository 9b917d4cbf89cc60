package tiny

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
)

//go:embed filler.txt
var filler string

// A Needle is a prompt that plants a fact, goes on about other things, and asks for the fact.
type Needle struct {
	Prompt   string // ends in "Answer:", without a space; no special tokens
	Fact     string // the planted sentence, with which the model answers
	Question string
	Answer   string // its five digits
	Distance int    // tokens from the start of the fact to the answer
	Others   int    // facts of the same kind that stand in between
}

// recallHead opens every document of the kind the model was trained to recall from. Without it the model
// takes the text for a novel.
const recallHead = "Read this and remember the facts.\n\n"

// maxOthers is the number of distractors where there is room; "the latest number" is then a wrong answer.
const maxOthers = 8

// minStretch is the least filler, in tokens, worth a distractor.
const minStretch = 40

// NewNeedle returns a prompt whose fact stands distance tokens before its answer. seed chooses the fact,
// the distractors and where the filler starts; count is the tokenizer's number of tokens of a text. Token
// counts do not quite add up over joins, so the distance is met to about 2 %; Distance says what it is. The
// filler, the opening of Pride and Prejudice, repeats after some 28,000 tokens.
func NewNeedle(distance int, seed uint64, count func(text string) int) (Needle, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	facts := newFacts(r)
	planted := facts.next()
	others := make([]fact, maxOthers)
	ask := "Question: " + planted.question() + "\nAnswer:"
	room := distance - count(planted.sentence()+"\n\n") - count(ask)
	if room < minStretch {
		return Needle{}, fmt.Errorf("tiny: a needle at %d tokens: want at least %d, the fact and its question take %d",
			distance, distance-room+minStretch, distance-room)
	}
	for i := range others {
		others[i] = facts.next()
	}
	each := count(others[0].sentence() + "\n\n")
	n := min(maxOthers, max(0, room/(each+minStretch)-1))
	hay := haystack{paragraphs: strings.Split(strings.TrimSpace(filler), "\n\n"), count: count}
	hay.at = r.IntN(len(hay.paragraphs))

	var b strings.Builder
	for i := range n + 1 {
		hay.write(&b, (room-n*each)/(n+1))
		if i < n {
			b.WriteString(others[i].sentence() + "\n\n")
		}
	}
	body := planted.sentence() + "\n\n" + b.String() + ask
	return Needle{
		Prompt:   recallHead + body,
		Fact:     planted.sentence(),
		Question: planted.question(),
		Answer:   planted.number,
		Distance: count(body),
		Others:   n,
	}, nil
}

// Found reports whether text, generated after the prompt, starts with the fact.
func (n Needle) Found(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " "), n.Fact)
}

// haystack hands out consecutive paragraphs, round and round.
type haystack struct {
	paragraphs []string
	at         int
	count      func(string) int
}

// write appends paragraphs of about tokens tokens, the last one cut between words.
func (h *haystack) write(b *strings.Builder, tokens int) {
	for tokens > 2 {
		p := h.paragraphs[h.at]
		h.at = (h.at + 1) % len(h.paragraphs)
		n := h.count(p + "\n\n")
		if n > tokens {
			p = h.cut(p, tokens)
			n = tokens
		}
		b.WriteString(p + "\n\n")
		tokens -= n
	}
}

// cut returns the longest run of p's first words that is no longer than tokens with its line ends.
func (h *haystack) cut(p string, tokens int) string {
	words := strings.Split(p, " ")
	lo, hi := 0, len(words)
	for lo+1 < hi {
		mid := (lo + hi) / 2
		if h.count(strings.Join(words[:mid], " ")+"\n\n") <= tokens {
			lo = mid
		} else {
			hi = mid
		}
	}
	return strings.Join(words[:max(lo, 1)], " ")
}

// The words of a fact; train/storygen.py has the same.
var (
	colours = strings.Fields("red blue green yellow white black brown purple orange pink silver golden gray")
	things  = strings.Fields(`ball kite hat boat drum bell lamp book basket scarf button key ring cup doll box coin
		whistle blanket spoon feather mirror ribbon stone shell flag candle map bottle wagon`)
)

type fact struct{ thing, number string }

func (f fact) opening() string  { return "The secret number of the " + f.thing + " is" }
func (f fact) sentence() string { return f.opening() + " " + f.number + "." }
func (f fact) question() string { return "What is the secret number of the " + f.thing + "?" }

// facts hands out facts about different things with different numbers, so a question has one answer.
type facts struct {
	r    *rand.Rand
	used map[string]bool
}

func newFacts(r *rand.Rand) *facts { return &facts{r, map[string]bool{}} }

func (f *facts) next() fact {
	for {
		n := fact{
			thing:  colours[f.r.IntN(len(colours))] + " " + things[f.r.IntN(len(things))],
			number: fmt.Sprintf("%05d", f.r.IntN(100000)),
		}
		if !f.used[n.thing] && !f.used[n.number] {
			f.used[n.thing], f.used[n.number] = true, true
			return n
		}
	}
}
