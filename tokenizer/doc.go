// Package tokenizer turns text into token ids and back, for the vocabularies found in GGUF files and in Hugging
// Face tokenizer.json files.
//
// Terms:
//
//   - token: an entry of the vocabulary, an id and a text. Its piece is the raw bytes that it stands for.
//   - byte-level BPE (model "gpt2"): text is cut into words by a pre-tokeniser, each word's UTF-8 bytes are the first
//     symbols, and the adjacent pair of lowest merge rank is merged until no listed pair is left. Every byte has a
//     token, so any byte string, valid UTF-8 or not, comes back from Decode(Encode(s)).
//   - SentencePiece BPE (model "llama"): spaces become U+2581 "▁", the first symbols are characters, and the adjacent
//     pair whose concatenation has the best score is merged first. A character without a token falls back to
//     its bytes' tokens <0x00>…<0xFF>.
//   - pre-tokeniser: the published regular expressions that cut text into words. Go's regexp has no lookahead, and
//     backtracking engines are slow on hostile text, so each expression is a hand-written scanner over Unicode's
//     categories; the expression it implements stands in its comment.
//   - special token: a control token (<|im_start|>, <s>, …), found in text only if EncodeOptions.ParseSpecial is set, so
//     that a user's text cannot forge the structure of a conversation.
//   - user-defined token: a token that is always found whole in text, before any other cutting.
//   - EOG: end of generation, a token after which a model's turn is over.
//
// A Tokenizer is immutable and safe for concurrent use. Encoding n bytes takes O(n log n) time at worst.
package tokenizer
