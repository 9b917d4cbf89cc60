package chat

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
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

// grown are templates that begin with a large string x, made of a character in an allowed way, or with a list y of many values.
var grown = map[string]string{
	"replace":        "{{ x.replace('a', x) }}",
	"replace filter": "{{ x|replace('', x) }}",
	"replace chain":  "{{ x" + strings.Repeat(".replace('a', 'aa')", 60) + " }}",
	"join":           "{{ y|join(x) }}",
	"join chain":     "{{ y|join('" + strings.Repeat("-", 64) + "')|list|join('" + strings.Repeat("-", 64) + "') }}",
	"chain":          "{% for i in range(9999) %}{% set z = x" + strings.Repeat(" ~ x", 60) + " %}{% endfor %}",
	"long chain":     "{{ x" + strings.Repeat(" ~ x", 900) + " }}",
	"grouped":        "{{ " + strings.Repeat("(", 40) + "x" + strings.Repeat(" ~ x ~ x)", 40) + " }}",
	"list of x":      "{{ [x" + strings.Repeat(", x", 900) + "] }}",
	"list of json":   "{{ [x" + strings.Repeat(", x", 900) + "]|tojson }}",
	"list of lists":  "{% for i in range(9999) %}{% set z = [x, x, x, x]|string %}{% endfor %}",
	"json":           "{% set q = x.replace('a', '\\\\\\\\')[:200000] %}{{ q" + strings.Repeat("|tojson", 60) + " }}",
	"escape":         "{% set q = x.replace('a', '&')[:200000] %}{{ q" + strings.Repeat("|e", 60) + " }}",
	"characters":     "{{ x|list }}",
	"characters for": "{% for i in range(9999) %}{% for c in x %}{% break %}{% endfor %}{% endfor %}",
	"split":          "{{ x.split('') }}",
	"split a":        "{% for i in range(9999) %}{% set z = x.split('a')|length %}{% endfor %}",
	"indent":         "{{ x.replace('a', 'a\n')|indent(9) }}",
	"json indent":    "{% for i in range(9999) %}{{ y|tojson(indent=9) }}{% endfor %}",
	"output":         "{% for i in range(9999) %}{{ x }}{% endfor %}",
	"output macro":   "{% macro f(n) %}{{ x }}{% if n %}{% call f(n - 1) %}{% endcall %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
	"output calls":   "{% macro f(n) %}{{ caller() }}{% if n %}{% call f(n - 1) %}{{ x }}{{ caller() }}{% endcall %}{% endif %}{% endmacro %}{% call f(40) %}{{ x }}{% endcall %}",
	"output text":    "{% for i in range(99999) %}" + strings.Repeat("text ", 40000) + "{% endfor %}",
	"output literal": "{% for i in range(9999) %}{% for i in range(9999) %}" + strings.Repeat("{{ 1 }}{{ 'a' * 99 }}{{ true }}", 5000) + "{% endfor %}{% endfor %}",
	"blocks":         strings.Repeat("{% set x %}{{ x }}{{ x }}{% endset %}", 40),
	"filter blocks":  strings.Repeat("{% filter tojson %}", 60) + "\"{{ x }}" + strings.Repeat("{% endfilter %}", 60),
	"keep":           "{% set k = namespace(x=[]) %}{% for i in range(9999) %}{% set k.x = k.x + [x ~ i] %}{% endfor %}",
	"keep names":     numbered(9000, "{% set zN = x ~ 'N' %}"),
	"keep names ns":  numbered(9000, "{% set ns.zN = x ~ 'N' %}") + "{{ ns }}",
	"keep dicts":     "{% set k = namespace(x=[]) %}{% for i in range(99999) %}{% set k.x = [k.x, {i: i}]|last %}{% endfor %}" + "{% set k.x = [] %}{% for i in range(9999) %}{% set k.x = k.x + [{i: i}, namespace(a=1)] %}{% endfor %}",
	"later":          "{% macro f() %}{% set ns.x = [x, x] %}{% endmacro %}{% set z = [ns, ns] %}{{ z ~ f() ~ z }}",
	"later cycle":    "{% macro f() %}{% set ns.x = [ns] %}{% endmacro %}{{ ns ~ f() }}{{ ns }}",
	"append":         "{% set z = [] %}{{ z ~ z.append(z) ~ z }}",
	"append alias":   "{% set z = [] %}{% set f = z.append %}{{ f(z) }}{{ z }}",
	"update":         "{% set z = {} %}{{ z.update({'z': z}) }}{{ z }}",
	"cycler":         "{% set z = cycler(1, x) %}{% set k = [[z, z], [z, z]] %}{{ k ~ z.next() ~ k }}",
	"format":         "{{ ('{0}'.replace('0', '0}{0') ~ x).format(x) }}",
	"strip":          "{{ x.strip(x) }}",
	"trim":           "{{ x|trim(x) }}",
	"strip loop":     "{% for i in range(99999) %}{% set z = x.strip() %}{% endfor %}",
	"scan":           "{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
	"scans":          "{% for i in range(99999) %}{% if 'b' in x" + strings.Repeat(" or 'b' in x", 200) + " %}{% endif %}{% endfor %}",
	"numbers":        "{% set q = x.replace('a', '1') %}{% for i in range(99999) %}{% if q < q" + strings.Repeat(" or q < q", 200) + " %}{% endif %}{{ q|int }}{{ q|float }}{% endfor %}",
	"sort":           "{% for i in range(99999) %}{% set z = y|sort %}{% endfor %}",
	"sort strings":   "{% set q = x.replace('a', '1 ').split(' ') %}{{ q|sort }}",
	"unique":         "{% for i in range(99999) %}{% set z = y|unique %}{% endfor %}",
	"slice start":    "{{ y[0 - 9000000000000000000::2] }}",
	"slice down":     "{{ y[9000000000000000000::-1] }}{{ 'aü'[9000000000000000000::0 - 1] }}",
	"slice runes":    "{% for i in range(99999) %}{% set z = 'aü'[0 - 9000000000000000000:9000000000000000000] %}{% endfor %}",
	"slice nested":   "{{ x" + strings.Repeat("[x", 400) + strings.Repeat("|length:]", 400) + " }}",
	"select in":      "{% set t = 'in' %}{{ y|select(t, y)|list|length }}",
	"selectattr in":  "{{ y|selectattr('a', 'in', y)|list|length }}",
	"sort many":      "{% set q = x.replace('a', '7 ')[:30000].split(' ') %}{% for i in range(9999) %}{% set z = q|sort %}{% endfor %}",
	"json objects":   "{% for i in range(9999) %}{% set z = ('[' ~ x[:60000].replace('a', '{\"\":0},') ~ '1]')|from_json %}{% endfor %}",
	"unary":          "{% macro f(n) %}{{ " + strings.Repeat("not ", 900) + strings.Repeat("- ", 900) + "f(n) }}{% endmacro %}{{ f(0) }}",
	"slice loop":     "{% for i in range(99999) %}{% set z = y[i % 7:] %}{% endfor %}",
	"index":          "{% set q = x.replace('a', 'ü') %}{% for i in range(99999) %}{% set z = q[-1] %}{% endfor %}",
	"titles":         "{% set q = x.replace('a', 'ⱥ') %}{% for i in range(99999) %}{% set z = q|upper|title %}{% endfor %}",
	"json parse":     "{{ x.replace('a', '[')|from_json }}",
	"json numbers":   "{% for i in range(99999) %}{% set z = ('[' ~ x.replace('a', '1,') ~ '1]')|from_json %}{% endfor %}",
	"macros":         "{% macro f(n) %}{% if n %}{{ " + strings.Repeat("f(n - 1) ~ ", 60) + "x }}{% endif %}{% endmacro %}{{ f(40) }}",
	"deep calls":     "{% macro f(n) %}" + strings.Repeat("{% if [n] %}", 90) + "{{ " + strings.Repeat("[f(n + 1), ", 20) + "1" + strings.Repeat("]", 20) + " }}" + strings.Repeat("{% endif %}", 90) + "{% endmacro %}{{ f(0) }}",
	"deep operators": "{% macro f(n) %}{% if f(n)" + strings.Repeat(" or 1 == 2", 490) + " %}{% endif %}{% endmacro %}{{ f(0) }}",
	"loop values":    "{% set k = namespace(x=0) %}{% for i in y %}{% set k.x = [k.x, loop] %}{% endfor %}{{ k.x }}",
	"loop filter":    "{% for i in range(9999) if y|sum + y|sum < 0 and x in x %}{% endfor %}",
	"map":            "{% for i in range(99999) %}{% set z = y|map(attribute='a')|list|select('in', y)|list|length %}{% endfor %}",
	"in lists":       "{% for i in range(99999) %}{% if y in [y, [y], [[y]]] %}{% endif %}{% endfor %}",
	"dictsort":       "{% for i in range(99999) %}{% set z = {x: 1, 'b': x, 'c': y}|dictsort %}{% endfor %}",
	"message":        "{% for i in range(99999) %}{% set messages = messages + messages %}{% set k = messages|tojson %}{% endfor %}",
	"endraws":        "{% raw %}" + strings.Repeat("{%", 100000),
	"stray ends":     strings.Repeat("{% endset ", 20000),
}

// numbered repeats text with the numbers up to n for N.
func numbered(n int, text string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "N", fmt.Sprint(i)))
	}
	return b.String()
}

const growth = "{% set ns = namespace(x='aaaaaaaa', y=[1, 2.5, 'b', [3], none]) %}{% for i in range(15) %}{% set ns.x = ns.x ~ ns.x %}{% if i < 10 %}{% set ns.y = ns.y + ns.y %}{% endif %}{% endfor %}" +
	"{% set x = ns.x %}{% set y = ns.y %}"

// TestHostile: each ends soon with an error, having used little memory. Failures are crashes and hangs, too.
func TestHostile(t *testing.T) {
	run := func(name, template string) {
		t.Run(name, func(t *testing.T) {
			var got string
			var err error
			start := time.Now()
			used := peakMemory(func() { got, err = Render(template, hi, Options{}) })
			took := time.Since(start)
			if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrRefused) && !strings.Contains(fmt.Sprint(err), "chat: ") || got != "" {
				t.Errorf("%d bytes, error %.200v, want a limit or a refusal", len(got), err)
			}
			if used > 512<<20 { // a budget of some 32 MB in values, what lists and strings cost beside, and as much again before it is collected
				t.Errorf("%d MB of memory", used>>20)
			}
			if took > 20*time.Second { // of a deadline of one, on any machine
				t.Errorf("%v", took)
			}
			t.Logf("%v, %d MB: %.150v", took, used>>20, err)
		})
	}
	for name, text := range hostile {
		for _, n := range []int64{1_000_000_000, 1_000_000_000_000, 1<<63 - 1} {
			if template := strings.ReplaceAll(text, "N", fmt.Sprint(n)); n == 1_000_000_000 || template != text {
				run(fmt.Sprintf("%s/n=%d", name, n), template)
			}
		}
	}
	for name, text := range grown {
		run("grown "+name, growth+text)
	}
}

// peakMemory is the most memory in heap and stacks while f runs, looked at every millisecond.
func peakMemory(f func()) uint64 {
	runtime.GC()
	var peak uint64
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		for {
			metrics.Read(samples)
			peak = max(peak, samples[0].Value.Uint64()+samples[1].Value.Uint64())
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return peak
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
