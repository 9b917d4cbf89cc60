package chat

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostile are templates that would not end, overflow the stack or exhaust memory. In each, N stands for a large number.
var hostile = map[string]string{
	// One expression that makes a large value.
	"repeat":         "{{ 'a' * N }}",
	"repeat swapped": "{{ N * 'a' }}",
	"repeat list":    "{{ [1] * N }}",
	"repeat twice":   "{% set x = 'a' * 60000 %}{{ x * 60000 }}",
	"repeat message": "{{ (messages[0].content * 1000) * N }}",
	"repeat unused":  "{% if ('a' * N)|length %}{% endif %}",
	"repeat filter":  "{{ ['a' * N]|length }}",
	"repeat macro":   "{% macro f(x='a' * N) %}{% endmacro %}{{ f() }}",
	"replace":        "{% set x = 'a' * 60000 %}{{ x.replace('a', x) }}",
	"replace empty":  "{% set x = 'a' * 60000 %}{{ x|replace('', x) }}",
	"join":           "{% set x = 'a' * 60000 %}{{ x|join(x) }}",
	"join method":    "{% set x = 'a' * 60000 %}{{ x.join(x|list) }}",
	"indent":         "{{ 'a\\nb'|indent(N) }}",
	"indent string":  "{% set x = 'a' * 60000 %}{{ ('\\n' * 60000)|indent(x) }}",
	"tojson indent":  "{{ [1]|tojson(indent=N) }}",
	"tojson lines":   "{% set ns = namespace(x=[1]) %}{% for i in range(120) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson(indent=999) }}",
	"width":          "{{ '%Nd' % 1 }}",
	"width filter":   "{{ '%Ns'|format('a') }}",
	"precision":      "{{ '%.Nf' % 1.5 }}",
	"formats":        "{% set x = 'a' * 9000000 %}{{ ('{0}' * 1000).format(x) }}",
	"formats old":    "{% set x = 'a' * 9000000 %}{{ ('%s' * 1000) % ([x] * 1000) }}",
	"split":          "{{ ('a,' * 9000000).split(',') }}",
	"characters":     "{{ ('a' * 15000000)|list }}",
	"titles":         "{% set x = 'ⱥ' * 9000000 %}{% for i in range(1000) %}{% set y = x|upper %}{% endfor %}",
	"chain":          "{% set x = 'a' * 15000000 %}{{ x" + strings.Repeat(" ~ x", 900) + " }}",
	"sum":            "{% set x = 'a' * 15000000 %}{{ x" + strings.Repeat(" + x", 900) + " }}",
	"sum filter":     "{{ ([['a'] * 100000] * 1000)|sum(start=[]) }}",
	"same":           "{% set x = 'a' * 15000000 %}{% for i in range(1000) %}{% set y = x ~ '' %}{% endfor %}",

	// Values that grow step by step.
	"doubling":   "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
	"plus":       "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"block":      "{% set x = 'xx' %}" + strings.Repeat("{% set x %}{{ x }}{{ x }}{{ x }}{{ x }}{% endset %}", 40),
	"list":       "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"output":     "{% set x = 'x' * 1000000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
	"keep":       "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = ns.x + ['x' * (9000000 + i)] %}{% endfor %}",
	"attributes": "{% for j in range(9999) %}{% for i in range(9999) %}{{ namespace(a=i, b=i, c=i) }}{% endfor %}{% endfor %}",

	// Values that contain one another, or one many times.
	"shared print":   "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
	"shared json":    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x|tojson }}",
	"shared equal":   "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
	"shared order":   "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x < ns.y }}",
	"shared in":      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x in [ns.y] }}",
	"deep":           "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
	"deep json":      "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
	"deep equal":     "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
	"cycle":          "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
	"cycle json":     "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x|tojson }}",
	"cycle equal":    "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = [a] %}{% set b.x = [b] %}{{ [a.x, a.x] == [a.x, [b.x, b.x]] or a.x|string }}",
	"unique":         "{{ range(99999)|unique }}",
	"sorted strings": "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = ns.x + ['a' * 9000 ~ i] %}{% endfor %}{% for i in range(9999) %}{% set y = ns.x|sort %}{% endfor %}",

	// Loops and calls.
	"loops":       strings.Repeat("{% for i in range(99999) %}", 6) + strings.Repeat("{% endfor %}", 6),
	"loop filter": "{% for i in range(99999) if range(99999)|sum < 0 %}{% endfor %}",
	"range":       "{% for i in range(N) %}x{% endfor %}",
	"range step":  "{{ range(0, N, 2) }}",
	"range down":  "{{ range(N, 0, -1) }}",
	"step":        "{{ 'ab'[::0 - N] }}{% for i in range(99999) %}{% for i in range(99999) %}{{ 'ab'[::N] }}{% endfor %}{% endfor %}",
	"macro":       "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
	"macro tree":  "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
	"alias":       "{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}",
	"default":     "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
	"caller":      "{% macro f() %}{{ caller(caller) }}{% endmacro %}{% call(x) f() %}{{ x(x) }}{% endcall %}",
	"recursive":   "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
	"map":         "{% macro f() %}{{ range(9999)|map('string')|map('length')|sum }}{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}",
	"scan":        "{% set x = 'a' * 15000000 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
	"index":       "{% set x = 'ü' * 9000000 %}{% for i in range(99999) %}{{ x[-1] }}{% endfor %}",
	"count":       "{% set x = 'a' * 15000000 %}{% for i in range(99999) %}{{ x.count('b') }}{{ x|length }}{% endfor %}",
	"strip":       "{% set x = ' ' * 15000000 %}{% for i in range(99999) %}{% set y = x.strip() %}{% endfor %}",

	// Sources that are hard to read.
	"source":                   strings.Repeat("x", maxTemplateBytes+1),
	"brackets":                 "{{ " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000) + " }}",
	"lists":                    "{{ " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + " }}",
	"open lists":               "{{ " + strings.Repeat("[", 200000) + " }}",
	"calls":                    "{{ f" + strings.Repeat("()", 100000) + " }}",
	"attributes of attributes": "{{ f" + strings.Repeat(".a", 100000) + " }}",
	"filters":                  "{{ f" + strings.Repeat("|trim", 50000) + " }}",
	"nots":                     "{{ " + strings.Repeat("not ", 60000) + "1 }}",
	"minuses":                  "{{ " + strings.Repeat("- ", 100000) + "1 }}",
	"choices":                  "{{ " + strings.Repeat("1 if 0 else ", 20000) + "1 }}",
	"ifs":                      strings.Repeat("{% if 1 %}", 20000) + strings.Repeat("{% endif %}", 20000),
	"ors":                      "{{ " + strings.Repeat("(1 or ", 30000) + "1" + strings.Repeat(")", 30000) + " }}",
	"subscripts":               "{{ x" + strings.Repeat("[x", 80000) + strings.Repeat("]", 80000) + " }}",
	"dicts":                    "{{ " + strings.Repeat("{1:", 60000) + "1" + strings.Repeat("}", 60000) + " }}",
	"blocks":                   strings.Repeat("{% set x %}", 20000),
}

// slow are those that end by their number of steps, a second later: not for the race detector and emulators.
var slow = []string{"macro tree", "strip", "map", "attributes", "loop filter", "step", "loops", "index", "count", "scan", "unique", "titles", "sorted strings"}

// TestHostile: each ends soon with ErrLimit, having made no more than the limits allow. Failures are crashes and hangs.
func TestHostile(t *testing.T) {
	for name, text := range hostile {
		for _, n := range []int64{1_000_000_000, 1_000_000_000_000, 1<<63 - 1} {
			template := strings.ReplaceAll(text, "N", fmt.Sprint(n))
			if n != 1_000_000_000 && (template == text || testing.Short()) || testing.Short() && (slices.Contains(slow, name) || strings.HasPrefix(name, "shared")) {
				continue
			}
			t.Run(fmt.Sprintf("%s/n=%d", name, n), func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				got, err := Render(template, hi, Options{})
				runtime.ReadMemStats(&after)
				if !errors.Is(err, ErrLimit) || got != "" {
					t.Errorf("%d bytes, error %.200v after %v, want ErrLimit", len(got), err, time.Since(start))
				}
				if made := after.TotalAlloc - before.TotalAlloc; made > 4*maxMadeBytes {
					t.Errorf("%d MB allocated", made>>20)
				}
				t.Logf("%v, %d MB: %v", time.Since(start), (after.TotalAlloc-before.TotalAlloc)>>20, err)
			})
		}
	}
}

// TestNotHostile: what long conversations need is within the limits.
func TestNotHostile(t *testing.T) {
	var long []Message
	for i := range 1000 {
		long = append(long, Message{[]string{"user", "assistant"}[i%2], strings.Repeat("word ü ", 100)})
	}
	for name, template := range map[string]string{
		"chatml":     ChatML,
		"accumulate": "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x ~ m.content|trim %}{% endfor %}{{ ns.x }}",
		"backwards":  "{% for m in messages[::-1] %}{{ m.content.split(' ')|last }}{{ m.content[1:] }}{% endfor %}",
		"macros":     "{% macro f(m) %}{{ m.role|upper ~ m.content.replace('word', 'long word') }}{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
		"characters": "{% for c in messages[0].content %}{{ messages[0].content[loop.index0] }}{% endfor %}",
	} {
		if got, err := Render(template, long, Options{}); err != nil || len(got) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
