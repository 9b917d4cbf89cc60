package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/flashdecode/flashdecode/tokenizer"
	"github.com/spf13/cobra"
)

type tokenizeFlags struct {
	model, file        string
	ids, json          bool
	noSpecial, literal bool
}

func (a *app) tokenizeCommand() *cobra.Command {
	f := &tokenizeFlags{}
	cmd := &cobra.Command{
		Use:   "tokenize [text]",
		Short: "Show the tokens of a text, or the text of tokens",
		Long: `Prints the id and the piece of every token of a text: the argument, --file, or standard input. With --ids the
input is token ids, separated by spaces or commas, and the output their text.`,
		Example: `  flashdecode tokenize "Once upon a time"
  flashdecode tokenize -m model.gguf --json < report.txt
  flashdecode tokenize --ids "311, 447 12"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.tokenize(f, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	modelFlag(fs, &f.model)
	fs.StringVarP(&f.file, "file", "f", "", "read the text from this file; - is standard input")
	fs.BoolVar(&f.ids, "ids", false, "the input is token ids: print their text")
	fs.BoolVar(&f.noSpecial, "no-special", false, "add no token that begins or ends a text")
	fs.BoolVar(&f.literal, "literal", false, "take special tokens written in the text for plain text")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// tokenJSON is one token of tokenize --json.
type tokenJSON struct {
	ID    int32  `json:"id"`
	Piece string `json:"piece"`
	Bytes []byte `json:"bytes"` // base64: a piece need not be valid UTF-8
}

func (a *app) tokenize(f *tokenizeFlags, args []string) error {
	if err := checkModel(f.model); err != nil {
		return err
	}
	text, err := a.input(f.file, args)
	if err != nil {
		return err
	}
	vocab, err := vocabulary(f.model)
	if err != nil {
		return err
	}
	var ids []int32
	if f.ids {
		if ids, err = parseIDs(text, vocab.VocabSize()); err != nil {
			return err
		}
		text = vocab.Decode(ids)
		if !f.json {
			return a.print(text + "\n")
		}
	} else {
		ids = vocab.Encode(nil, text, tokenizer.EncodeOptions{AddSpecial: !f.noSpecial, ParseSpecial: !f.literal})
	}
	list := make([]tokenJSON, len(ids))
	for i, id := range ids {
		list[i] = tokenJSON{id, string(vocab.Piece(id)), vocab.Piece(id)}
	}
	if f.json {
		return a.printJSON(struct {
			Count  int         `json:"count"`
			Text   string      `json:"text"`
			Tokens []tokenJSON `json:"tokens"`
		}{len(ids), text, list})
	}
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, "%8d  %q\n", t.ID, t.Piece)
	}
	if err := a.print(b.String()); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%d tokens, %d bytes, %d characters\n", len(ids), len(text), len([]rune(text)))
	return nil
}

// input returns the text that a command works on: the argument, a file, or standard input.
func (a *app) input(file string, args []string) (string, error) {
	switch {
	case len(args) > 0 && file != "":
		return "", usagef("the text is both an argument and in --file %s: give one", file)
	case len(args) > 0 && args[0] != "-":
		return args[0], nil
	case file != "":
		return a.readText(file)
	case len(args) > 0 || a.piped:
		return a.readText("-")
	}
	return "", usagef("no text: give it as the argument, with --file, or on standard input")
}

func parseIDs(text string, vocab int) ([]int32, error) {
	var ids []int32
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\t\r\n[]", r) }) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 || n >= vocab {
			return nil, usagef("--ids: %q is not a token id from 0 to %d", w, vocab-1)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}
