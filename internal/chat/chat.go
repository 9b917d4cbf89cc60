package chat

import (
	"errors"
	"fmt"
	"time"
)

// Limits on what a template may cost. Published ones have at most 50 KB and render in milliseconds.
const (
	maxTemplateBytes = 256 << 10
	maxStringBytes   = 16 << 20  // of the output and of each value
	maxMadeBytes     = 256 << 20 // of all values of a rendering, those that are garbage included
	madePerByte      = 256       // and as much more for each byte of the messages, which templates put together
	maxSteps         = 20_000_000
	maxNesting       = 150  // of tags, brackets, calls and values in each other
	maxChain         = 1000 // operators in a row
	maxRange         = 100_000
	maxIndent        = 1000 // bytes of an indent, a width or a set of characters
	maxSpec          = 8    // characters of a format such as %-20.3f
	timeout          = 5 * time.Second
)

// ChatML is the template of models that name none but know <|im_start|> and <|im_end|>.
const ChatML = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

// ErrLimit is wrapped by the errors for a template that loops, calls or allocates without measure.
var ErrLimit = errors.New("chat: template exceeds its limits")

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
type Template struct{ body []node }

// Parse reads a template. The name "chatml" stands for ChatML.
func Parse(text string) (*Template, error) {
	if text == "chatml" {
		text = ChatML
	}
	if len(text) > maxTemplateBytes {
		return nil, fmt.Errorf("%w: %d bytes of source, at most %d", ErrLimit, len(text), maxTemplateBytes)
	}
	body, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Template{body}, nil
}

// Render parses and renders a template.
func Render(template string, messages []Message, opts Options) (string, error) {
	t, err := Parse(template)
	if err != nil {
		return "", err
	}
	return t.Render(messages, opts)
}

// Render writes a conversation. An error wraps *RaisedError if the template rejects the conversation, and ErrLimit if it
// costs too much: a template is a program out of a file.
func (t *Template) Render(messages []Message, opts Options) (string, error) {
	vars := &scope{names: globals()}
	for k, v := range opts.Vars {
		vars.set(k, fromGo(v))
	}
	r := &run{now: opts.Now, deadline: time.Now().Add(timeout), most: maxMadeBytes}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	all := &list{items: make([]value, len(messages))}
	for i, m := range messages {
		d := newDict()
		d.set("role", m.Role)
		d.set("content", m.Content)
		all.items[i] = d
		r.most += madePerByte * len(m.Content)
	}
	vars.set("messages", all)
	vars.set("add_generation_prompt", opts.AddGenerationPrompt)
	vars.set("bos_token", opts.BOS)
	vars.set("eos_token", opts.EOS)
	for _, absent := range []string{"tools", "documents"} { // apply_chat_template defines them
		if isUndefined(vars.get(absent)) {
			vars.set(absent, nil)
		}
	}
	var out output
	if err := r.body(t.body, vars.inner(), &out); err != nil {
		return "", err
	}
	return out.String(), nil
}
