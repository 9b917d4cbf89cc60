package main

import (
	"strings"
	"testing"
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
	{"run --needle 0", 2, "--needle is 0"},
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
	{"perplexity", 2, "no text"},
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
