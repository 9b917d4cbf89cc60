// Command flashdecode runs language models at long context on this machine, and measures and explains how.
//
//	flashdecode run                        a story by the embedded model
//	flashdecode run --needle 12000         a fact found 12,000 tokens back, with and without split attention
//	flashdecode run -m model.gguf "Why is the sky blue?"
//	flashdecode bench -m model.gguf -d 0,8192 --split none,auto
//
// Only what was asked for goes to standard output; statistics, progress and errors go to standard error. The exit
// code is 0, 1 for an error, 2 for wrong usage, 130 after an interrupt.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal kills
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, piped: piped(os.Stdin), live: terminal(os.Stderr)}
	os.Exit(a.execute(ctx, os.Args[1:]))
}

// piped reports whether there is text to read: a file or a pipe, not a terminal or /dev/null.
func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && f.Name() != os.DevNull &&
		isTerminal(f.Fd())
}
