package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// packages are the names that the library's errors begin with. Who runs the command knows none of them.
var packages = []string{
	"flashdecode", "attn", "bench", "chat", "cpu", "engine", "filemap", "gguf", "host", "kvcache", "flat", "kvdot", "model",
	"ops", "plan", "plot", "pool", "qgemm", "quant", "ref", "safetensors", "sample", "simd", "tiny", "tokenizer", "vec", "weights",
}

// message is the error as one line, without the names of packages.
func message(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	var b strings.Builder
	path := false // the readers of files put a path behind their name, and a file may be called like a package
	for part := range strings.SplitAfterSeq(text, ": ") {
		name, found := strings.CutSuffix(part, ": ")
		if !found || path || !slices.Contains(packages, name) {
			b.WriteString(part)
		}
		path = !path && (name == "gguf" || name == "safetensors")
	}
	return b.String()
}

// flagMessage words a mistake in a flag: what was given, and what is wanted.
func flagMessage(err error) string {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	f := bad.GetFlag()
	want := map[string]string{
		"int": "a whole number", "ints": "a whole number, or several separated by commas", "intSlice": "a whole number, or several separated by commas",
		"uint": "a whole number of at least 0", "uint64": "a whole number of at least 0",
		"float32": "a number", "bool": "true or false", "stringSlice": "a list separated by commas",
	}[f.Value.Type()]
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Sprintf("--%s: %s is too large", f.Name, bad.GetValue())
	case want == "":
		return fmt.Sprintf("--%s: %q is not a %s", f.Name, bad.GetValue(), f.Value.Type())
	}
	return fmt.Sprintf("--%s: %q is not %s", f.Name, bad.GetValue(), want)
}
