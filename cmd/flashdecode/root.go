package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as shells count
	exitClosed      = 141 // 128 + SIGPIPE
)

// app is the command's connection to the outside.
type app struct {
	in       io.Reader
	out, err io.Writer
	piped    bool // in has text
	live     bool // err is a terminal that can show progress
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted ends a command that has said all it had to say before it was interrupted.
var errInterrupted = errors.New("interrupted")

// execute runs one command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe):
		return exitClosed // the reader has seen enough
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(a.err, "flashdecode: %s\n", message(err))
		return exitUsage
	}
	fmt.Fprintf(a.err, "flashdecode: %s\n", message(err))
	return exitError
}

// message is the error as one line, without the prefix that the library's errors have anyway.
func message(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(text, "flashdecode: ")
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "flashdecode",
		Short: "Run language models at long context",
		Long: `flashdecode runs large language models on this machine, built for long context: the key/value cache is split, its
pieces are worked on in parallel and merged exactly (Flash-Decoding).

Without -m, commands use a small model that the program carries.`,
		Example: `  flashdecode run
  flashdecode run --needle 12000
  flashdecode run -m model.gguf "Why is the sky blue?"
  flashdecode bench -m model.gguf -d 0,8192 --split none,auto`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := "see flashdecode --help"
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				hint = "did you mean " + s[0] + "?"
			}
			return usagef("unknown command %q: %s", args[0], hint)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.planCommand(), a.inspectCommand(), a.tokenizeCommand(), a.perplexityCommand(),
		a.benchCommand(), a.doctorCommand(), a.versionCommand())
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes every complaint about arguments a usage error.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%w: see %s --help", err, cmd.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// print writes to standard output.
func (a *app) print(text string) error {
	if _, err := io.WriteString(a.out, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printJSON writes v, over several lines.
func (a *app) printJSON(v any) error { return a.encode(v, "  ") }

// printLine writes v as one line of JSON.
func (a *app) printLine(v any) error { return a.encode(v, "") }

func (a *app) encode(v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // tokens are full of <|…|>
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	return a.print(b.String())
}

// readText reads a file, or standard input if it is called "-".
func (a *app) readText(name string) (string, error) {
	var b []byte
	var err error
	if name == "-" {
		if b, err = io.ReadAll(a.in); err != nil {
			return "", fmt.Errorf("read standard input: %w", err)
		}
		return string(b), nil
	}
	if b, err = os.ReadFile(name); err != nil {
		return "", err
	}
	return string(b), nil
}
