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
	"github.com/spf13/pflag"
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
	help := &sticky{a: a} // cobra does not look at what writing help or completions returns
	root := a.rootCommand(help)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
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

// sticky is standard output that keeps its first error.
type sticky struct {
	a   *app
	err error
}

func (s *sticky) Write(b []byte) (int, error) {
	if s.err == nil {
		s.err = s.a.print(string(b))
	}
	return len(b), s.err
}

// rootCommand has all commands; help and completions go to out.
func (a *app) rootCommand(out io.Writer) *cobra.Command {
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
		Args:              knownCommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkPaths(cmd.Flags()) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s: see %s --help", flagMessage(err), cmd.CommandPath())
	})
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.runCommand(), a.planCommand(), a.inspectCommand(), a.tokenizeCommand(), a.perplexityCommand(),
		a.benchCommand(), a.doctorCommand(), a.versionCommand())
	root.SetOut(out)
	root.InitDefaultCompletionCmd() // it writes to what is set by then
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = knownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Example = "  source <(flashdecode completion bash)"
		}
		wrapArgs(c)
	}
	return root
}

// knownCommand is the check of a command that has subcommands: what reaches it as an argument is none of them.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	unknown := fmt.Sprintf("unknown command %q", args[0])
	if cmd.HasParent() {
		unknown += " of " + cmd.Name()
	}
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return usagef("%s: did you mean %s?", unknown, s[0])
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("%s: want one of %s", unknown, strings.Join(names, ", "))
}

// helpCommand is cobra's, but a command that does not exist is a mistake.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Help about any command",
		Long:    "Shows the help of a command, as its --help does.",
		Example: "  flashdecode help run\n  flashdecode help bench attn",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if found == nil || err != nil {
				found, rest = cmd.Root(), args
			}
			if err := knownCommand(found, rest); err != nil {
				return err
			}
			found.InitDefaultHelpFlag() // as cobra does before it runs a command
			return found.Help()
		},
	}
}

// wrapArgs makes every complaint about arguments a usage error.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil || errors.As(err, new(usageError)) {
				return err
			}
			return usagef("%w: see %s --help", err, cmd.CommandPath())
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// checkPaths refuses flags for files that are given but empty, as an unset variable of the shell makes them: the command
// would do something else without a word.
func checkPaths(fs *pflag.FlagSet) (err error) {
	remedies := map[string]string{
		"model": "give a path, or leave -m out for the default", "file": "give a path, or - for standard input",
		"plot": "give a path, or leave it out", "save": "give a path, or leave it out",
	}
	fs.Visit(func(f *pflag.Flag) { // those that were given
		if remedy, is := remedies[f.Name]; is && f.Value.String() == "" && err == nil {
			err = usagef("--%s is empty: %s", f.Name, remedy)
		}
	})
	return err
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

// checkModel complains about a model that is not there before anything else is asked for. "" is the embedded one.
func checkModel(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Stat(path)
	return err
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
