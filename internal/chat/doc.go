// Package chat renders the chat templates that model files carry: programs in Jinja that write a conversation the way
// the model was trained to read it.
//
// Terms:
//
//   - message: one turn of a conversation, its role ("system", "user", "assistant") and its content.
//   - template: the text of tokenizer.chat_template in a GGUF file, chat_template in tokenizer_config.json, or
//     chat_template.jinja.
//   - generation prompt: what a template writes last, if asked to, so that the model goes on as the assistant.
//
// A template is a program out of a file. The library github.com/ardanlabs/jinja runs it, which has no limits of its own;
// rewrite therefore puts the filters of a meter behind every operand, pass and call, which count what is evaluated and end a
// rendering with ErrLimit. What costs more than its operands show (format, slices with steps, separators and widths out of
// variables, methods that change values) and what the library would silently do otherwise than Jinja as far as its spelling
// tells (map and sort with arguments that it ignores, % of strings) ends with ErrRefused when a rendering comes to it.
//
// Known differences to Jinja that remain: none prints as nothing, operators and calls that Jinja rejects have some value,
// floats print without ".0", tuples are lists, keys are strings, integers wrap at 64 bits, and a variable set in a loop keeps
// its value in the next pass. testdata/deviations.json has them by example.
//
// The environment is that of Hugging Face transformers' apply_chat_template: blocks trimmed, loop controls, tojson,
// raise_exception and strftime_now. The rendered text has the model's control tokens in it, so it is to be encoded with
// tokenizer.EncodeOptions.ParseSpecial and without AddSpecial.
package chat
