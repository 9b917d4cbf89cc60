package flashdecode

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/chat"
	"github.com/flashdecode/flashdecode/sample"
	"github.com/flashdecode/flashdecode/tokenizer"
)

// Token is one generated token.
type Token struct {
	ID      int32
	Text    string    // the text that has become certain with this token; empty while a character is incomplete
	LogProb float32   // natural log of the model's probability, if Sampling asks for LogProbs
	Time    time.Time // when it was chosen
}

// Message is one turn of a conversation.
type Message = chat.Message

// GenerateOption changes how text is generated.
type GenerateOption func(*generation)

type generation struct {
	maxTokens int
	params    sample.Params
	stop      []string
	raw       bool
	ignoreEnd bool
	salt      string
	progress  func(computed, reused, total int)
	done      func(Result)
}

// Result describes a generation that has ended.
type Result struct {
	PromptTokens, ReusedTokens, Tokens int
	Reason                             string // stop, length, context, cancelled or error
}

// MaxTokens ends generation after n tokens. Without it, generation goes on until the model ends its turn or the
// context is full.
func MaxTokens(n int) GenerateOption { return func(g *generation) { g.maxTokens = n } }

// Sampling sets how tokens are chosen. The default is greedy.
func Sampling(p sample.Params) GenerateOption { return func(g *generation) { g.params = p } }

// Stop ends generation before any of these texts would appear.
func Stop(texts ...string) GenerateOption {
	return func(g *generation) { g.stop = append(g.stop, texts...) }
}

// RawPrompt takes the prompt as it is: no token is put before it, and special tokens written in it are text.
func RawPrompt() GenerateOption { return func(g *generation) { g.raw = true } }

// IgnoreEnd goes on after the model has ended its turn: for measuring.
func IgnoreEnd() GenerateOption { return func(g *generation) { g.ignoreEnd = true } }

// Salt keeps the prompt's pages in the prefix cache apart from those of other salts, so that one tenant's timing
// tells nothing about another's prompts.
func Salt(s string) GenerateOption { return func(g *generation) { g.salt = s } }

// OnProgress is called until the first token arrives, some ten times a second, with the number of tokens of the
// prompt that are computed, how many of those the cache had, and how many there are.
func OnProgress(f func(computed, reused, total int)) GenerateOption {
	return func(g *generation) { g.progress = f }
}

// OnDone is called once for every loop over a generation, when it has ended for whatever reason: also when the prompt was
// refused, with "error" as the reason, and when the loop was left early, with "cancelled".
func OnDone(f func(Result)) GenerateOption { return func(g *generation) { g.done = f } }

// Generate continues prompt. An error is the last thing it yields: ctx's own, with its cause, as soon as ctx is done.
// Leaving the loop early ends the generation. A loop that is slower than the model holds up nobody, the model included:
// tokens wait for it, up to MaxTokens or a context full.
func (m *Model) Generate(ctx context.Context, prompt string, opts ...GenerateOption) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		g := newGeneration(opts)
		enc := tokenizer.EncodeOptions{AddSpecial: !g.raw, ParseSpecial: !g.raw}
		m.run(ctx, g, m.vocab.Encode(nil, prompt, enc), yield)
	}
}

// GenerateTokens continues a prompt that is tokens already.
func (m *Model) GenerateTokens(ctx context.Context, prompt []int32, opts ...GenerateOption) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) { m.run(ctx, newGeneration(opts), prompt, yield) }
}

// Chat answers the last message of a conversation, which is written out by the model's chat template.
func (m *Model) Chat(ctx context.Context, messages []Message, opts ...GenerateOption) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		g := newGeneration(opts)
		text, err := m.ChatPrompt(messages)
		if err != nil {
			g.refuse(0, err, yield)
			return
		}
		// Templates write the beginning-of-text token themselves, if the model wants one.
		prompt := m.vocab.Encode(nil, text, tokenizer.EncodeOptions{ParseSpecial: true})
		m.run(ctx, g, prompt, yield)
	}
}

// ChatPrompt returns the text that Chat gives to the model.
func (m *Model) ChatPrompt(messages []Message) (string, error) {
	if m.vocab.template == "" {
		return "", fmt.Errorf("flashdecode: %s has no chat template: use Generate", m.name)
	}
	text, err := chat.Render(m.vocab.template, messages, chat.Options{
		BOS: m.specialText(m.vocab.BOS()), EOS: m.specialText(m.vocab.EOS()), AddGenerationPrompt: true,
	})
	if err != nil {
		return "", fmt.Errorf("flashdecode: %s: %w", m.name, err)
	}
	return text, nil
}

func (m *Model) specialText(id int32) string {
	if id == tokenizer.None {
		return ""
	}
	return m.vocab.Token(id)
}

func newGeneration(opts []GenerateOption) *generation {
	g := &generation{params: sample.Greedy()}
	for _, o := range opts {
		o(g)
	}
	return g
}

// run submits the prompt and hands out its tokens.
func (m *Model) run(ctx context.Context, g *generation, prompt []int32, yield func(Token, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // leaving the loop ends the sequence
	req := engine.Request{Prompt: prompt, MaxTokens: g.maxTokens, Params: g.params, Salt: g.salt}
	if !g.ignoreEnd {
		req.Stop = m.vocab.EOG()
	}
	s, err := m.engine.Submit(ctx, req)
	if err != nil {
		g.refuse(len(prompt), fmt.Errorf("flashdecode: %w", err), yield)
		return
	}
	g.end(m.deliver(s, g, yield))
}

// refuse ends a generation that did not begin.
func (g *generation) refuse(prompt int, err error, yield func(Token, error) bool) {
	yield(Token{}, err)
	g.end(Result{PromptTokens: prompt, Reason: engine.Failed.String()})
}

func (g *generation) end(r Result) {
	if g.done != nil {
		g.done(r)
	}
}

// deliver yields the tokens of s as their text becomes certain.
func (m *Model) deliver(s *engine.Stream, g *generation, yield func(Token, error) bool) (r Result) {
	defer func() { _, r.ReusedTokens, r.PromptTokens = s.Progress() }()
	text := newTextStream(m.vocab.NewDecoder(), g.stop)
	for {
		t, ok := next(s, g, r.Tokens == 0)
		if !ok {
			break
		}
		r.Tokens++
		piece, stopped := text.next(t.ID)
		switch {
		case !yield(Token{t.ID, piece, t.LogProb, t.Time}, nil):
			r.Reason = engine.Cancelled.String()
			return r
		case stopped:
			r.Reason = engine.Stopped.String()
			return r
		}
	}
	r.Reason = s.Reason().String()
	if rest := text.flush(); rest != "" && !yield(Token{ID: tokenizer.None, Text: rest}, nil) {
		return r
	}
	if err := s.Err(); err != nil {
		yield(Token{}, fmt.Errorf("flashdecode: %w", err))
	}
	return r
}

// next waits for a token, reporting progress until the first one is there.
func next(s *engine.Stream, g *generation, first bool) (engine.Token, bool) {
	if !first || g.progress == nil {
		return s.Next()
	}
	for {
		t, ok, waited := s.Poll(100 * time.Millisecond)
		g.progress(s.Progress())
		if !waited {
			return t, ok
		}
	}
}
