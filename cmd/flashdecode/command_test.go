package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/engine"
	"github.com/flashdecode/flashdecode/internal/testkit"
	"github.com/spf13/cobra"
)

// call runs a command line in this process.
func call(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{in: strings.NewReader(stdin), out: &o, err: &e, piped: stdin != ""}
	code = a.execute(t.Context(), args)
	return code, o.String(), e.String()
}

// must is call for what has to work.
func must(t *testing.T, stdin string, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := call(t, stdin, args...)
	if code != exitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, errs)
	}
	return out, errs
}

// unmarshal fails unless text is one JSON value.
func unmarshal[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %.200q", err, text)
	}
	return v
}

// lines reads a JSON value from every line.
func lines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, unmarshal[T](t, line))
	}
	return all
}

// TestHelp: every command's help is a golden, and has an example.
func TestHelp(t *testing.T) {
	var b strings.Builder
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		out, _ := must(t, "", append(path, "--help")...)
		fmt.Fprintf(&b, "==== %s\n%s\n", strings.Join(append([]string{"flashdecode"}, path...), " "), out)
		if c.Example == "" {
			t.Errorf("%v has no example", path)
		}
		for _, sub := range c.Commands() {
			if c.Name() == "completion" {
				break // cobra's own text
			}
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk((&app{}).rootCommand(io.Discard), nil)
	testkit.Golden(t, "help.txt", []byte(b.String()))
}

func TestStory(t *testing.T) {
	out, errs := must(t, "", "run", "--max-tokens", "20", "--threads", "1")
	if len(out) < 40 || strings.Contains(out, "tok/s") {
		t.Errorf("story %q", out)
	}
	for _, want := range []string{"Once upon a time", "20 tokens", "tok/s", "ended by length", "KV cache", "F16", "split auto", "--needle 12000"} {
		if !strings.Contains(errs, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errs)
		}
	}
	// The same tokens as lines of JSON, from standard input; an empty pipe is no prompt.
	js, errs := must(t, "Once upon a time, there was a", "run", "-n", "20", "--json")
	all := lines[map[string]any](t, js)
	text := ""
	for _, l := range all[:len(all)-1] {
		text += l["text"].(string)
	}
	if text+"\n" != out || errs != "" {
		t.Errorf("JSON spells %q, not %q; standard error %q", text, out, errs)
	}
	s := all[len(all)-1]["statistics"].(map[string]any)
	if s["tokens"] != 20.0 || s["prompt_tokens"] != 9.0 || s["computed_tokens"] != 9.0 || s["kv_tokens"] != 28.0 || s["kv_bytes"] != 28*3072.0 || s["reason"] != "length" {
		t.Errorf("statistics %v", s)
	}
}

func TestSampling(t *testing.T) {
	draw := func(seed string) string {
		out, errs := must(t, "", "run", "-n", "30", "--temperature", "1.5", "--top-k", "50", "--seed", seed, "The")
		if !strings.Contains(errs, "seed "+seed) {
			t.Errorf("the seed is not reported:\n%s", errs)
		}
		return out
	}
	if a, b, c := draw("1"), draw("1"), draw("2"); a != b || a == c {
		t.Errorf("seed 1: %q and %q, seed 2: %q", a, b, c)
	}
	out, errs := must(t, "", "run", "--stop", "Grace", "--stop", ".", "Once upon a time, there was a")
	if strings.ContainsAny(out, ".") || strings.Contains(out, "Grace") || !strings.Contains(errs, "ended by stop") {
		t.Errorf("stop: %q %s", out, errs)
	}
}

func TestChat(t *testing.T) {
	plain, _ := must(t, "", "run", "-n", "12", "Tell me a story about a brave fox named Ruby.")
	chat, _ := must(t, "", "run", "-n", "12", "--chat", "Tell me a story about a brave fox named Ruby.")
	if plain == chat || !strings.Contains(chat, "Ruby") && !strings.Contains(chat, "fox") {
		t.Errorf("plain %q, chat %q", plain, chat)
	}
}

func TestPromptTooLong(t *testing.T) {
	code, out, errs := call(t, strings.Repeat("word ", 100), "run", "--ctx", "64")
	if code != exitError || out != "" || !strings.Contains(errs, "prompt does not fit: 103 tokens in a context of 64") ||
		!strings.Contains(errs, "raise --ctx above 64, or shorten the prompt") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	name := filepath.Join(t.TempDir(), "long.txt")
	if err := os.WriteFile(name, []byte(strings.Repeat("word ", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, errs := call(t, "", "run", "--ctx", "64", "--file", name); !strings.Contains(errs, "or shorten "+name) {
		t.Error(errs)
	}
	err := (&runFlags{}).tooLong(engine.ErrTooLong, flashdecode.Info{Context: 100, KVTokens: 32, KVType: "F16"})
	if !strings.Contains(err.Error(), "memory holds 32 tokens as F16: choose a smaller --kv") {
		t.Error(err)
	}
}

// TestMessage: what the library calls its parts is not for who runs the command.
func TestMessage(t *testing.T) {
	for text, want := range map[string]string{
		"flashdecode: gguf: model: gguf: bad":           "model: bad",
		"bench: text too short":                         "text too short",
		"cpu: cache: kvdot: head dimension 100":         "cache: head dimension 100",
		"open plan: no such file":                       "open plan: no such file",
		"flashdecode: x.gguf: model: unknown: thing\ny": "x.gguf: unknown: thing",
		"plan: 7 query heads: 8":                        "7 query heads: 8",
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNeedle(t *testing.T) {
	if testing.Short() {
		t.Skip("generates the answer ten times")
	}
	js, _ := must(t, "", "run", "--needle", "200", "--seed", "5", "--split", "splits:4", "--json")
	r := unmarshal[needleResult](t, js)
	if !r.Found || r.Answer != r.Fact || len(r.Policies) != 2 || r.Policies[0].Items != 8 || r.Policies[1].Items != 2 ||
		r.SamePlan || r.Policies[1].Ratio != 1 || r.Policies[0].Ratio <= 0 || len(r.OneHead) != 0 {
		t.Errorf("%+v", r)
	}
	var out, errs bytes.Buffer
	if err := (&app{out: &out, err: &errs}).printNeedle(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FOUND", "split splits:4", "split none", "tokens/s", r.Fact} {
		if !strings.Contains(out.String(), want) || strings.Contains(strings.ToLower(out.String()), "not found") {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if !strings.Contains(errs.String(), "KV cache") {
		t.Errorf("standard error: %s", errs.String())
	}
	r.Found, r.Policies[0].Found = false, false
	out.Reset()
	if err := (&app{out: &out, err: &errs}).printNeedle(r); err != nil || !strings.Contains(out.String(), "NOT FOUND") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestNeedleSamePlan: where both policies make the same plan, it is timed once and said so, and what a split is for is
// shown on one KV head, if there is a second thread.
func TestNeedleSamePlan(t *testing.T) {
	if testing.Short() {
		t.Skip("generates the answer five times")
	}
	for threads := 1; threads <= min(runtime.NumCPU(), 2); threads++ {
		args := []string{"run", "--needle", "200", "--seed", "5", "--threads", fmt.Sprint(threads)}
		js, _ := must(t, "", append(args, "--json")...)
		r := unmarshal[needleResult](t, js)
		if !r.SamePlan || len(r.Policies) != 2 || r.Policies[0].Rate != r.Policies[1].Rate || r.Policies[0].Ratio != 1 || len(r.OneHead) != 2*(threads-1) {
			t.Errorf("%d threads: %+v", threads, r)
		}
		if threads == 2 && (r.OneHead[0].Split != "auto" || r.OneHead[1].Split != "none" || r.OneHead[1].Items != 1 || r.OneHead[0].KVHeads != 1) {
			t.Errorf("%+v", r.OneHead)
		}
		var out bytes.Buffer
		if err := (&app{out: &out, err: io.Discard}).printNeedle(r); err != nil {
			t.Fatal(err)
		}
		want := []string{"Both make the same plan: no split: one worker", "Both make the same plan: the KV heads, one an item, keep all 2 threads busy"}[threads-1]
		if s := out.String(); !strings.Contains(s, want) || !strings.Contains(s, "split auto = none") || strings.Count(s, "split none") != threads-1 {
			t.Errorf("%d threads:\n%s", threads, s)
		}
	}
}

// failing is a writer that accepts some bytes.
type failing struct {
	room int
	err  error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, f.err
	}
	return len(b), nil
}

// TestOutputFails: a full disk is reported, a reader that left is not.
func TestOutputFails(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	closed := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
	for _, args := range [][]string{
		{"run"}, {"run", "--json"}, {"--help"}, {"help"}, {"help", "run"}, {"bench", "attn", "--help"}, {}, {"completion"},
		{"completion", "bash"}, {"completion", "zsh"}, {"plan"}, {"inspect"}, {"tokenize", "a b c"}, {"version"},
		{"bench", "-p", "8", "-n", "2", "-r", "1"}, {"bench", "-p", "8", "-n", "2", "-r", "1", "-o", "csv"},
	} {
		for _, c := range []struct {
			err  error
			code int
			want string
		}{{full, exitError, "flashdecode: write output: write /dev/stdout: "}, {closed, exitClosed, ""}, {io.ErrClosedPipe, exitClosed, ""}} {
			var errs bytes.Buffer
			a := &app{in: strings.NewReader(""), out: &failing{10, c.err}, err: &errs}
			code := a.execute(t.Context(), args)
			text := strings.TrimPrefix(errs.String(), "Once upon a time, there was a")
			if code != c.code || !strings.HasPrefix(text, c.want) || c.want == "" && text != "" || strings.Contains(text, "goroutine") {
				t.Errorf("%v, %v: exit code %d: %q", args, c.err, code, text)
			}
		}
	}
}

// cancelling cancels a context once something was written.
type cancelling struct {
	n      int // bytes written
	once   sync.Once
	cancel context.CancelFunc
}

func (c *cancelling) Write(b []byte) (int, error) {
	c.once.Do(c.cancel)
	c.n += len(b)
	return len(b), nil
}

// TestInterrupt: an interrupt ends the text and prints the statistics so far.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelling{cancel: cancel}
	var errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: out, err: &errs}
	if code := a.execute(ctx, []string{"run"}); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if s := errs.String(); !strings.Contains(s, "ended by cancelled") || !strings.Contains(s, "prompt     9 tokens") {
		t.Errorf("standard error: %s", s)
	}
	if out.n > 400 {
		t.Errorf("%d bytes of story after the interrupt", out.n)
	}
	for _, args := range [][]string{{"run", "--needle", "500"}, {"perplexity", "--file", "command_test.go"}, {"bench"}, {"bench", "attn"}} {
		if code := a.execute(ctx, args); code != exitInterrupted {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

func TestReadsFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(name, []byte("Once upon a time, there was a"), 0o666); err != nil {
		t.Fatal(err)
	}
	a, _ := must(t, "", "run", "-n", "5", "--file", name)
	b, _ := must(t, "Once upon a time, there was a", "run", "-n", "5", "-")
	c, _ := must(t, "", "run", "-n", "5")
	if a != b || b != c || len(a) < 5 {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}
