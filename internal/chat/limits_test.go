package chat

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var hi = []Message{{"user", "hi"}}

func TestChatML(t *testing.T) {
	got, err := Render("chatml", append([]Message{{"system", "s"}}, hi...), Options{AddGenerationPrompt: true})
	want := "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Render("chatml", nil, Options{}); got != "" || err != nil {
		t.Errorf("no messages: %q, %v", got, err)
	}
}

// TestWhitespace has what the Jinja documentation, "Whitespace Control", and CPython's jinja2 3.1.6 give for each.
func TestWhitespace(t *testing.T) {
	for template, want := range map[string]string{
		"a\n":                                    "a",
		"a\n\n":                                  "a\n",
		"a\r\nb\rc":                              "a\nb\nc",
		"  {% if true %}\n  x\n  {% endif %}\ny": "  x\ny",
		"x  {% if true %} y {% endif %}z":        "x   y z",
		"  {%+ if true %}x{% endif +%}\ny":       "  x\ny",
		"A: {{ 1 }}{%- if true %} b{% endif %}":  "A: 1 b",
		"a  {{- 1 -}}  \n b":                     "a1b",
		"a {#- c -#} b":                          "ab",
		"  {# c #}\nx":                           "x",
		"{% if true %}\n  {% if true %}x{% endif %}{% endif %}": "x",
		"{{ {'a': {}}}}":                              "{'a': {}}",
		"{{ '}}' }}{{ \"%}\" }}":                      "}}%}",
		`a\n"b"{{ '\n"\\' }}`:                         "a\\n\"b\"\n\"\\",
		"{% raw %}\n {{ x }} {% if %}{% endraw %}\nb": "\n {{ x }} {% if %}b",
		"{%- raw -%} a {%- endraw -%} b":              "ab",
		"{{ '{{' }} {":                                "{{ {",
		"{{ 1 }}  {% if true %}x{% endif %}":          "1  x",
		"{% generation %}x{% endgeneration %}":        "x",
		"{% filter upper %}a{% filter trim|replace('b', 'c') %} b {% endfilter %}{% endfilter %}": "AC",
		"{% set x|upper %}a{% endset %}{{ x }}":                                                   "A",
		"{% macro f() %}[{{ caller(1) }}]{% endmacro %}{% call(a) f() %}{{ a }}{% endcall %}":     "[1]",
	} {
		if got, err := Render(template, hi, Options{}); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", template, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for template, want := range map[string]string{
		"{{ raise_exception('no ' ~ messages[0].role) }}": "rejects the conversation: no user",
		"{{ raise_exception() }}":                         "no reason given",
		"{{ x":                                            `no "}}"`,
		"{% if true %}x":                                  "chat: ",
		"{% raw %}x":                                      "no endraw",
		"{{ nothing() }}":                                 "nothing is not callable",
		"{{ range('a') }}":                                "range wants integers",
		"{{ range(1, 2, 0) }}":                            "step of 0",
		"{% set x, y = (1, 2) %}":                         "set of other than one name",
		"{% set x.y = 1 %}":                               "no namespace",
		"a\nb {{ [1].append(2) }}":                        "the method append with these arguments, in line 2",
		"{{ 'a' * x }}":                                   "arithmetic with 'a'",
		"{{ x * 2 }}":                                     "arithmetic with Undefined",
		"{{ '%s' % 1 }}":                                  "arithmetic with '%s'",
		"{{ 99999999999999999999 }}":                      "more than 64 bits",
		"\n\n{{ x | frob }}":                              "the filter frob, in line 3",
		"{{ x is frob }}":                                 `test "frob"`,
		"{% frob %}":                                      `tag "frob"`,
		"{% include 'x' %}":                               `tag "include"`,
		"{% endfor %}":                                    "without its beginning",
		"{% for x in y %}{% endif %}":                     `"endif" without its beginning`,
		"{% for x in y recursive %}{% endfor %}":          "recursive loop",
		"{% break %}":                                     "chat: break",
		"{{ 1 2 }}":                                       "chat: ",
		"{{ [1, }}":                                       "chat: ",
		"{{ 'a }}":                                        `no "}}"`,
		"{{ a @ b }}":                                     "no Jinja",
		"{{ [1](2] }}":                                    `"]" without its beginning`,
		"{{ x|join(y) }}":                                 "the filter join with these arguments",
		"{{ x|indent(99) }}":                              "the filter indent with these arguments",
		"{{ x.strip(y) }}":                                "the method strip with these arguments",
		"{{ 'a'.format(y) }}":                             "the method format with these arguments",
		"{{ 'abc'[::2] }}":                                "a slice with a step",
		"{{ 'abc'['a':] }}":                               "a slice to 'a'",
		"{{ [namespace()] }}":                             "a namespace in another value",
		"{{ dict(a=1) }}{{ cycler(1) }}":                  "dict()",
		"{% macro f(a=g()) %}{% endmacro %}":              "a call in a default of a macro",
		"{% call f %}{% endcall %}":                       "call of other than a macro",
		"{{ _fd_of }}":                                    "reserved",
		"{% filter upper %}x":                             "no endfilter",
		"{{ strftime_now(1) }}":                           "one format",
	} {
		_, err := Render(template, hi, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", template, err, want)
		}
		var raised *RaisedError
		if errors.As(err, &raised) != strings.Contains(template, "raise_exception") {
			t.Errorf("%q: %v is of the wrong type", template, err)
		}
	}
}

func TestStrftime(t *testing.T) { // as CPython 3.11's datetime.strftime
	early := time.Date(2025, 3, 7, 4, 5, 9, 1000, time.UTC)
	for format, want := range map[string]string{
		"%d %b %Y": "07 Mar 2025", "%-d %B %y": "7 March 25", "%A %a %j %p %I": "Friday Fri 066 AM 04", "%H:%M:%S.%f": "04:05:09.000001",
		"%u %w %%": "5 5 %", "%e|%-H|%-j": " 7|4|66", "%Q %-Q %": "%Q %-Q %", "é %F %T": "é 2025-03-07 04:05:09",
	} {
		if got := strftime(early, format); got != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
}

func TestStrftimeSunday(t *testing.T) {
	if got := strftime(time.Date(2025, 3, 9, 0, 0, 0, 0, time.UTC), "%u %w"); got != "7 0" {
		t.Errorf("Sunday is %q", got)
	}
}

func FuzzRender(f *testing.F) {
	f.Add("chatml", "hi")
	f.Add("{%- for m in messages -%}{{ m.content|trim }}{% break %}{%- endfor +%}\n x", " a ")
	f.Add("{% macro f(x) %}{{ x|tojson }}{% endmacro %}{{ f({'a': [1]}) }}{% raw %}{{{% endraw %}", "b")
	f.Add("{% set a = 1 %}{% set x %}y{% endset %}{# c #}{{ 'a'[::-1] ~ x }}", "")
	f.Fuzz(func(t *testing.T, template, content string) {
		text, err := Render(template, []Message{{"user", content}}, Options{BOS: "<s>", Now: now})
		if err != nil && text != "" {
			t.Fatalf("%q with error %v", text, err)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl, err := Parse("chatml")
	if err != nil {
		b.Fatal(err)
	}
	messages := []Message{{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello!"}, {"user", strings.Repeat("long ", 1000)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(messages, Options{AddGenerationPrompt: true}); err != nil {
			b.Fatal(err)
		}
	}
}
