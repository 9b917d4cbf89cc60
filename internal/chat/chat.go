package chat

import (
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// Limits on what a template may cost; meter says what bytes are counted. Published templates have at most 50 KB and render in
// milliseconds.
const (
	maxTemplateBytes = 256 << 10
	maxTokens        = 2000 // of a tag
	maxBrackets      = 50   // in each other
	maxBlocks        = 100  // in each other
	maxCalls         = 50   // of macros in each other
	maxDepth         = 100  // of lists and dictionaries in each other
	maxRange         = 100_000
	maxShort         = 64 // bytes of a literal that separates or pads
)

// ChatML is the template of models that name none but know <|im_start|> and <|im_end|>.
const ChatML = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

// ErrLimit is wrapped by the errors for a template that loops, calls or allocates without measure.
var ErrLimit = errors.New("chat: template exceeds its limits")

// ErrRefused is wrapped by the errors for what Jinja knows but templates out of files may not do here, because what it costs
// is not in sight or because the library does something else.
var ErrRefused = errors.New("flashdecode does not evaluate this in templates from files")

// RaisedError is what a template itself rejects a conversation with, by raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return "chat: template rejects the conversation: " + e.Message }

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

// Options are the variables of a template besides the messages.
type Options struct {
	BOS, EOS            string         // texts of these tokens
	AddGenerationPrompt bool           // end with the opening of an assistant turn
	Now                 time.Time      // for strftime_now; zero: the current time
	Vars                map[string]any // further variables, such as enable_thinking
}

// Template is a parsed template, safe for concurrent use.
type Template struct{ t *jinja.Template }

// Parse reads a template. The name "chatml" stands for ChatML.
func Parse(text string) (_ *Template, err error) {
	if text == "chatml" {
		text = ChatML
	}
	if len(text) > maxTemplateBytes {
		return nil, fmt.Errorf("%w: %d bytes of source, at most %d", ErrLimit, len(text), maxTemplateBytes)
	}
	text, err = rewrite(text)
	if err != nil {
		return nil, err
	}
	defer recoverInto(&err)
	t, err := jinja.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	return &Template{t}, nil
}

// Render parses and renders a template.
func Render(template string, messages []Message, opts Options) (string, error) {
	t, err := Parse(template)
	if err != nil {
		return "", err
	}
	return t.Render(messages, opts)
}

// Render writes a conversation. An error wraps *RaisedError if the template rejects the conversation, ErrLimit if it costs too
// much and ErrRefused if it came to a construct that is not evaluated: a template is a program out of a file.
func (t *Template) Render(messages []Message, opts Options) (text string, err error) {
	defer recoverInto(&err)
	vars := make(map[string]jinja.Value, len(opts.Vars)+20)
	for k, v := range opts.Vars {
		vars[k] = jinja.FromGoValue(v)
	}
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = jinja.NewDict()
		list[i].AsDict().Set("role", jinja.NewString(m.Role))
		list[i].AsDict().Set("content", jinja.NewString(m.Content))
	}
	vars["messages"] = jinja.NewList(list)
	vars["add_generation_prompt"] = jinja.NewBool(opts.AddGenerationPrompt)
	vars["bos_token"], vars["eos_token"] = jinja.NewString(opts.BOS), jinja.NewString(opts.EOS)
	for _, absent := range []string{"tools", "documents"} { // apply_chat_template defines them
		if _, ok := vars[absent]; !ok {
			vars[absent] = jinja.None()
		}
	}
	m := newMeter(vars)
	now := opts.Now
	if now.IsZero() {
		now = time.Now()
	}
	m.define(vars, now)
	text, err = t.t.RenderValues(vars)
	switch {
	case m.err != nil: // the library may have swallowed it, or wrapped its text
		return "", m.err
	case err != nil:
		return "", fmt.Errorf("chat: %w", err)
	}
	return text, nil
}

// recoverInto makes an error of a panic in the library, which does not expect every hostile template.
func recoverInto(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("chat: template fails: %v", r)
	}
}
