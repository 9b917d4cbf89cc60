package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mistakes are command lines with the exit code and the words on standard error that they must give.
var mistakes = []struct {
	line string // arguments
	code int
	want string
}{
	{"rum", 2, `unknown command "rum": did you mean run?`},
	{"xyzzy", 2, `unknown command "xyzzy": want one of bench, completion, doctor`},
	{"help xyzzy", 2, `unknown command "xyzzy": want one of bench, completion, doctor`},
	{"help rum", 2, `did you mean run?`},
	{"help bench xyzzy", 2, `unknown command "xyzzy" of bench: want one of attn`},
	{"help run xyzzy", 2, `unknown command "xyzzy" of run`},
	{"completion xyzzy", 2, `unknown command "xyzzy" of completion: want one of bash, fish`},
	{"completion bash xyzzy", 2, `unknown command "xyzzy"`},
	{"--bogus", 2, "unknown flag: --bogus"},
	{"run --bogus", 2, "unknown flag: --bogus: see flashdecode run --help"},
	{"run a b", 2, "accepts at most 1 arg(s), received 2"},
	{"run --temperature -1", 2, "--temperature is -1: want"},
	{"run --temperature hot", 2, `--temperature: "hot" is not a number: see flashdecode run --help`},
	{"run --top-k -1", 2, "--top-k is -1: want"},
	{"run --top-p 1.5", 2, "--top-p is 1.5: want"},
	{"run --top-p NaN", 2, "--top-p is NaN: want"},
	{"run --min-p 2", 2, "--min-p is 2: want"},
	{"run --repeat-penalty 0", 2, "--repeat-penalty is 0: want"},
	{"run --seed -1", 2, `--seed: "-1" is not a whole number of at least 0`},
	{"run --max-tokens 1e9", 2, `--max-tokens: "1e9" is not a whole number`},
	{"run --ctx 99999999999999999999", 2, "--ctx: 99999999999999999999 is too large"},
	{"run --json=maybe", 2, `--json: "maybe" is not true or false`},
	{"bench --batch 1,x", 2, `--batch: "1,x" is not a whole number, or several`},
	{"run --max-tokens -5", 2, "--max-tokens is -5"},
	{"run --ctx -5", 2, "--ctx: "},
	{"run --threads -5", 2, "--threads is -5: want 1 to "},
	{"run --kv q3", 2, `--kv: KV format "q3" is not one of f16`},
	{"run --split half", 2, `--split: unknown policy "half": want auto, none`},
	{"run --split fixed:0", 2, "--split: fixed:0: want"},
	{"run --repack maybe", 2, `--repack: repack "maybe" is not one of auto, on, off`},
	{"run --chat --raw hi", 2, "--chat and --raw exclude each other"},
	{"run --raw --system x hi", 2, "--system needs the chat template"},
	{"run --file x hi", 2, "give one"},
	{"run --chat", 2, "no prompt"},
	{"run -m nowhere.gguf", 1, "nowhere.gguf: no such file"},
	{"tokenize -m nowhere.gguf", 1, "nowhere.gguf: no such file"},
	{"perplexity -m nowhere.gguf", 1, "nowhere.gguf: no such file"},
	{"run --needle 0", 2, "--needle is 0: want how many tokens back the fact is to stand, such as 12000"},
	{"run --needle 10", 2, "--needle: a needle at 10 tokens: want at least"},
	{"run --needle 500 --file x", 2, "leave out --file"},
	{"run --needle 500 hi", 2, "leave out the argument"},
	{"run --needle 30000", 2, "the context has 16384"},
	{"run -m nowhere.gguf hi", 1, "nowhere.gguf: no such file"},
	{"run --file nowhere.txt", 1, "nowhere.txt: no such file"},
	{"run -m testdata hi", 1, "testdata"},
	{"plan --lens 8q", 2, `--lens: "8q" is not a number of tokens`},
	{"plan --lens 8x0", 2, "how many of it"},
	{"plan --lens 8x99999999999999999999", 2, `"8x99999999999999999999" are more than 65536 sequences`},
	{"plan --lens 99999999999999999999", 2, "--lens: 99999999999999999999 tokens are too many: want at most 1073741824"},
	{"plan --lens 4000m", 2, "--lens: 4000m tokens are too many: want at most 1073741824"},
	{"plan --lens -99999999999999999999", 2, "is not a number of tokens"},
	{"plan --lens 0,4 --q-len 8", 2, "--q-len is 8: a sequence of 4 tokens has no room for them"},
	{"plan --device tpu", 2, `--device: unknown device "tpu"`},
	{"plan --policy never", 2, "--policy: unknown policy"},
	{"plan --q-heads 7", 2, "7 query heads are not a multiple of 8"},
	{"plan --head-dim 100 --kv q8_0", 2, "--kv: Q8_0 stores blocks of 32, which heads of 100 don't fill"},
	{"plan --head-dim 0", 2, "--head-dim is 0: want at least 1"},
	{"plan --kv q4_0", 2, `--kv: "q4_0" is not one of`},
	{"plan --q-len 0", 2, "--q-len is 0"},
	{"plan --batch 0", 2, "--batch is 0"},
	{"plan extra", 2, `unknown command "extra"`},
	{"inspect nowhere", 1, "nowhere: no such file"},
	{"inspect command_test.go", 1, "not a GGUF file"},
	{"inspect --ctx -1", 2, "--ctx is -1"},
	{"tokenize", 2, "no text"},
	{"tokenize --ids 4096", 2, `--ids: "4096" is not a token id from 0 to 4095`},
	{"tokenize --ids one", 2, `--ids: "one"`},
	{"perplexity", 2, "no text: give it with --file, or on standard input"},
	{"perplexity words", 2, "perplexity takes no argument: give the text with --file, or on standard input"},
	{"run --system x", 2, "no prompt"},
	{"run --split fixed:99999999999999999999", 2, "--split: fixed:99999999999999999999: want 1 to 1073741824 tokens"},
	{"plan --policy splits:99999999999999999999", 2, "--policy: splits:99999999999999999999: want 1 to 1073741824 splits"},
	{"run -m ../../model/testdata/llama --chat hi", 2, "--chat: llama has no chat template: leave --chat out"},
	{"run -m ../../model/testdata/llama --system x hi", 2, "--system: llama has no chat template to put it in: leave --system out"},
	{"run -m ../../model/testdata/llama --chat --system x hi", 2, "--chat: llama has no chat template"},
	{"perplexity --file command_test.go --ctx 3", 2, "--ctx is 3"},
	{"perplexity --file command_test.go --ctx 16000", 1, "tokens, which are less than two chunks of 16000: give a longer text or a smaller --ctx"},
	{"perplexity --file command_test.go --ctx 20000", 2, "--ctx is 20000: tiny-stories-recall was trained for 16384 tokens"},
	{"perplexity --file command_test.go --ctx 512 --chunks 999", 2, "--chunks is 999: command_test.go has "},
	{"perplexity --file command_test.go --chunks 1", 2, "--chunks is 1: want at least 2"},
	{"bench --reps 0", 2, "--reps is 0"},
	{"bench -o xml", 2, `--output: unknown format "xml": want one of md`},
	{"bench -p 0 -n 0", 2, "nothing to measure"},
	{"bench -d 1,x", 2, `--depth: "x" is not a number`},
	{"bench -b 0", 2, "--batch is [0]"},
	{"bench --split none,most", 2, "--split: unknown policy"},
	{"bench attn -o csv", 2, `--output: "csv" is not one of md, json, jsonl`},
	{"bench attn --q-heads 7 --kv-heads 2", 2, "7 query heads are not a multiple of 2 KV heads"},
	{"bench attn --device cuda --q-heads 7 --kv-heads 2", 2, "7 query heads are not a multiple of 2 KV heads"},
	{"bench attn --q-heads 0", 2, "--q-heads is 0: want 1 to 65536"},
	{"bench attn --kv-heads 0", 2, "--kv-heads is 0: want 1 to 32"},
	{"bench attn --kv-heads -8", 2, "--kv-heads is -8: want 1 to 32"},
	{"plan --kv-heads 0", 2, "--kv-heads is 0: want 1 to 32"},
	{"plan --q-heads 65537", 2, "--q-heads is 65537: want 1 to 65536"},
	{"bench attn --lens 0", 2, "--lens: \"0\" has a length of 0"},
	{"bench attn --head-dim 100", 2, "--head-dim is 100: the CPU's attention takes multiples of 8 up to 512"},
	{"bench --plot nowhere/x.svg", 2, "--plot: open nowhere/x.svg: no such file"},
}

// TestMistakes: exit codes, one line on standard error, which names what is wrong.
func TestMistakes(t *testing.T) {
	for _, c := range mistakes {
		code, out, errs := call(t, "", strings.Fields(c.line)...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s\nexit code %d, want %d\nstderr %q, want %q\nstdout %q", c.line, code, c.code, errs, c.want, out)
		}
		for _, leak := range []string{"strconv", "flashdecode: bench: ", "kvdot", "engine: ", "plan: ", "invalid argument"} {
			if strings.Contains(errs, leak) {
				t.Errorf("%s: %q leaks %q", c.line, errs, leak)
			}
		}
		if strings.Count(errs, "flashdecode: ") != 1 || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "flashdecode: ") {
			t.Errorf("%s: %q is not one line", c.line, errs)
		}
	}
}

// TestEmptyPaths: a path that is given but empty, as an unset variable makes it, is a mistake of every command that
// takes one, and nothing else is used in its place.
func TestEmptyPaths(t *testing.T) {
	paths := []string{"model", "file", "plot", "save"}
	tried := map[string]int{}
	var walk func(c *cobra.Command, line []string)
	walk = func(c *cobra.Command, line []string) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(paths, f.Name) {
				return
			}
			tried[f.Name]++
			for _, given := range [][]string{{"--" + f.Name, ""}, {"--" + f.Name + "="}, {"-" + f.Shorthand, ""}} {
				if given[0] == "-" {
					continue
				}
				code, out, errs := call(t, "text", slices.Concat(line, given)...)
				want := fmt.Sprintf("flashdecode: --%s is empty: give a path, or ", f.Name)
				if code != exitUsage || out != "" || !strings.HasPrefix(errs, want) || strings.Count(errs, "\n") != 1 {
					t.Errorf("%q %q: exit code %d: %s%s", line, given, code, out, errs)
				}
			}
		})
		for _, sub := range c.Commands() {
			walk(sub, append(line[:len(line):len(line)], sub.Name()))
		}
	}
	walk((&app{}).rootCommand(io.Discard), nil)
	for name, least := range map[string]int{"model": 6, "file": 3, "plot": 2, "save": 1} {
		if tried[name] < least {
			t.Errorf("--%s of %d commands, want %d", name, tried[name], least)
		}
	}
	if code, out, errs := call(t, "", "inspect", ""); code != exitUsage || out != "" || !strings.Contains(errs, "the path is empty") {
		t.Errorf("inspect: exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := call(t, "", "run", "--system", "Be brief."); code != exitUsage || !strings.Contains(errs, "no prompt") {
		t.Errorf("a system message without a prompt: exit code %d: %s", code, errs)
	}
}

// TestBeyondContext: bench warns of tests longer than what the model was trained for, and of those only. A picture that
// can't be opened ends it before anything is measured.
func TestBeyondContext(t *testing.T) {
	for line, want := range map[string]string{
		"-p 0 -n 1 -d 16384":     "16385 tokens, beyond the 16384 that tiny-stories-recall",
		"-p 0 -n 1 -d 16383":     "",
		"-p 512 -n 8 -d 0,16000": "16512 tokens",
		"-p 16385 -n 0":          "16385 tokens",
		"-p 0 -n 20k":            "20480 tokens",
		"":                       "",
	} {
		code, out, errs := call(t, "", slices.Concat([]string{"bench", "--plot", "nowhere/x.svg"}, strings.Fields(line))...)
		warning, _, found := strings.Cut(errs, "flashdecode: ")
		if code != exitUsage || out != "" || !found || !strings.Contains(warning, want) || (want != "") != strings.HasPrefix(warning, "warning: ") {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
	}
}
