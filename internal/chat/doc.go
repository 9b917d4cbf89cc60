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
// Templates are run by an interpreter of this package's own: a template is a program out of a file, so what it may cost in
// steps, memory, depth and time is counted at every step, which no library for Jinja does. It knows the part of Jinja that
// chat templates use, and names what it does not know. Differences to Jinja: integers have 64 bits, keys of dictionaries are
// strings.
//
// The environment is that of Hugging Face transformers' apply_chat_template: blocks trimmed, loop controls, tojson,
// raise_exception and strftime_now. The rendered text has the model's control tokens in it, so it is to be encoded with
// tokenizer.EncodeOptions.ParseSpecial and without AddSpecial.
package chat
