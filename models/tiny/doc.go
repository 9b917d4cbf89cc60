// Package tiny embeds a small language model, so that the command and the examples work with nothing to
// download, and writes the prompts that show what it can do.
//
// The model is of the llama architecture: 6.56 million parameters, 7.1 MB as Q8_0, a context of 16,384
// tokens. It tells simple stories, and it recalls: a fact planted in its context is found again thousands
// of tokens later (a needle in a haystack). README.md says how it was trained and from what.
package tiny
