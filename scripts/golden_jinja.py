"""Writes internal/chat/testdata/jinja.json: what Jinja makes of small templates, in the environment that transformers
renders chat templates in.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python scripts/golden_jinja.py
"""
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

OUT = pathlib.Path(__file__).parent.parent / "internal" / "chat" / "testdata" / "jinja.json"

EXPRESSIONS = r"""
1 + 2 * 3 - 4|7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3|7 / 2|2 ** 3 ** 2|2 ** -1|-2 ** 2|1.5 + 1|10 // 3.0|1e16|1e15|0.0001|0.00001|1_000
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'b', none] ~ {'k': 'it\'s'}|'a' + 'b' ~ 'c'|'ab' * 3|2 * 'ab'|[1, 2] * 2|'ab' * -1|[1] + [2, 3]|'%s is %d, %5.2f%%' % ('x', 3, 1.5)
'%05d' % 42|'%x' % 255|"%s" % none|'%r' % 'a\'b'|'{} {x}'.format(1, x=3)|'{1}{0}'.format(1, 2)|'{{}}'.format()
1 < 2 < 3|1 < 2 > 3|1 == 1.0|'1' == 1|true == 1|none == false|[1, [2]] == [1, [2]]|{'a': 1} == {'a': 1}|'a' < 'b'|[1, 2] < [1, 3]
1 in [1, 2]|'a' in 'cat'|'k' in {'k': 1}|1 not in [1]|not 1 in [1]|not (true and false) or false|0 or 'x'|'' and 1|none or false
1 if true else 2|1 if false|'a' if x is defined else 'b'|(1 if false else 2) + 1|[1 if false else 2, 3]
[1, 2, 3][0]|[1, 2, 3][-1]|[1, 2, 3][5]|[1, 2, 3][1:]|[1, 2, 3][:-1]|[1, 2, 3][::-1]|[1, 2, 3, 4, 5][4:0:-2]|[1, 2, 3][-100:100]|'héllo'[1]|'héllo'[-1]|'héllo'[1:3]|'héllo'[::-1]|'hello'[::2]|'hello'[3:1]|'hello'[-3:]
{'a': 1}.a|{'a': 1}['a']|{'a': 1}.b|{'a': 1}.get('b')|{'a': 1}.get('b', 2)|list({'a': 1})|{'a': {'b': 3}}.a.b|{'items': 1}['items']
' a b '.strip()|'xxaxx'.strip('x')|'xxaxx'.lstrip('x')|'xxaxx'.rstrip('x')|'a,b,,c'.split(',')|' a  b c '.split()|'a b c'.split(' ', 1)|'a b c'.rsplit(' ', 1)|'a\nb\n'.splitlines()|' a b  c '.split(none, 1)
'abc'.startswith('ab')|'abc'.startswith(('x', 'a'))|'abc'.endswith('bc')|'aXbX'.replace('X', '--')|'aXbX'.replace('X', '--', 1)|'ab'.replace('', '.')|'abc'.upper()|'ABC'.lower()|'hello wORLD'.title()|'hello wORLD'.capitalize()|'banana'.count('an')|'banana'.find('n')|'banana'.rfind('n')|'banana'.find('x')|'-'.join(['a', 'b'])|'12'.isdigit()|'1a'.isalnum()|'ab'.isalpha()|''.isdigit()|' '.isspace()|'AB'.isupper()|'a-b-c'.partition('-')|'abc'.removeprefix('a')|'abc'.removesuffix('c')
x is defined|x is undefined|none is none|1 is number|true is number|1.0 is float|1 is integer|true is integer|'a' is string|[1] is sequence|'a' is sequence|{} is sequence|{} is mapping|x is iterable|1 is iterable|[] is iterable|2 is even|3 is odd|9 is divisibleby 3|1 is eq 1|1 is ne 2|1 is lt 2|1 in [1] is true|true is boolean|1 is true|x is not defined|'a' is in ['a']|range is callable|'AB' is upper|'ab' is lower
"""
FILTERED = r"""
'a,b'|upper;;'ABC'|lower;;'hello wORLD'|title;;'hello wORLD'|capitalize;;'  x '|trim;;'xxaxx'|trim('x');;[1,2,3]|length;;'héllo'|length;;{'a':1}|length;;x|length;;x|default('d');;''|default('d');;''|default('d', true);;none|default('d')
[1,2,3]|first;;[1,2,3]|last;;'abc'|first;;[]|first;;[3,1,2]|sort;;['b','A','c']|sort;;['b','A','c']|sort(case_sensitive=true);;[3,1,2]|sort(reverse=true);;[{'a':2},{'a':1}]|sort(attribute='a');;{'b':1,'A':2}|dictsort;;{'b':1,'A':2}|dictsort(true);;{'b':1,'a':2}|dictsort(by='value')
['a','b']|join(', ');;[{'n':'x'},{'n':'y'}]|join('-', attribute='n');;[1,none,'a']|join;;'abc'|join('.');;[1,2,3]|reverse|list;;'abc'|reverse;;'abc'|list;;{'a':1}|list;;[1,2,2,1]|unique|list;;['a','A']|unique|list
[1,2,3]|sum;;[{'v':1},{'v':2}]|sum(attribute='v');;[1,2]|sum(start=10);;[3,1]|max;;[3,1]|min;;['b','a']|min;;-3|abs;;2.5|round;;2.567|round(2);;2.1|round(0,'ceil');;2.9|round(method='floor');;'42'|int;;'4.9'|int;;'x'|int;;'x'|int(7);;'ff'|int(base=16);;4.9|int;;'1.5'|float;;'x'|float;;3|float;;3|string;;none|string
[1,'a',none,true,1.0,{'k':[1]}]|tojson;;'<é"\n\t&>'|tojson;;{'b':1,'a':[]}|tojson;;{'b':1,'a':{'c':[1,2]},'d':[],'e':{}}|tojson(indent=2);;{'b':1,'a':2}|tojson(sort_keys=true);;[1,2]|tojson(separators=(',',':'));;'é😀'|tojson(ensure_ascii=true)
['a','b']|map('upper')|list;;[{'n':1},{'n':2}]|map(attribute='n')|list;;[{'n':1},{}]|map(attribute='n',default=0)|list;;[0,1,2]|select|list;;[0,1,2,3]|select('odd')|list;;[0,1,2]|reject|list;;[{'n':1},{'n':0}]|selectattr('n')|list;;[{'n':1},{'n':2}]|selectattr('n','equalto',2)|list;;[{'n':1},{}]|rejectattr('n','defined')|list;;['a','b']|map('replace','a','x')|list
'a\nb\n\nc'|indent;;'a\nb'|indent(2,true);;'a\n\nb'|indent(2,blank=true);;'a\nb'|indent('> ');;'<a&"\'>'|escape;;'<'|safe;;'a b  c'|wordcount;;'aXb'|replace('X','-');;'%s-%s'|format('a',1);;{'a':1}|items|list;;x|items|list;;-1|abs|string ~ 'x';;(1,2)|length;;'x'|string|length + 1
"""
TEMPLATES = r"""
{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }},{% endfor %}
{% for i in [1,2] %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %}
{% for a, b in [(1,2),(3,4)] %}{{ a }}{{ b }};{% endfor %}
{% for k, v in {'a':1,'b':2}.items() %}{{ k }}{{ v }}{% endfor %}
{% for k in {'a':1,'b':2} %}{{ k }}{% endfor %}
{% for c in 'hé' %}{{ c }}.{% endfor %}
{% for i in range(10) if i % 2 %}{{ i }}{{ loop.last }}{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}
{% if false %}{% set x = 1 %}{% endif %}{{ x is defined }}{% if true %}{% set y = 2 %}{% endif %}{{ y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}
{% set x %}a{{ 1 }}b{% endset %}{{ x|upper }}{% set y | upper | replace('A', 'x') %}abc{% endset %}{{ y }}
{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}{{ f() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}
{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) f() %}{{ a + b }}{% endcall %}
{% filter upper %}a{{ 'b' }}{% endfilter %}{% filter trim|replace('b', 'x') %} abc {% endfilter %}
{% for i in [1,[2,[3]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{{ loop.depth }}{% endif %}{% endfor %}
{% for i in [1,1,2] %}{{ loop.changed(i) }}{{ loop.cycle('a','b') }}{% endfor %}
{% set j = joiner(', ') %}{% for i in [1,2] %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ dict(a=1, b=2) }}{{ dict({'c': 3}, d=4) }}
{{ 'a' 'b' }}{{ "tab\there \u00e9 \x41 \q" }}{{ 'it''s' }}
{{ x }}{{ x|default(none) }}{{ none }}{{ true }}{{ [x] }}
{{ "{{ a }}" }}{{ '%}' }}{# {{ x }} #}|{% raw %}{{ y }}{% endraw %}
{%- if 1 -%} a {%- elif 2 -%} b {%- else -%} c {%- endif -%} d
{% for m in [{'role':'u','content':'x'}] %}{{ '<' + m['role'] + '>' + m.content }}{% endfor %}
{{ x.y }}
{{ x.y.z }}
{{ x + 1 }}
{{ 'a' + 1 }}
{{ none + 1 }}
{{ [1] < 'a' }}
{{ 1 in 1 }}
{{ 'a'|frob }}
{{ f() }}
{{ [].append(1) }}
{% for a, b in [(1,2,3)] %}{% endfor %}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{{ [1,2]|tojson|length }}{{ [1, 2,]|length }}{{ (1,)|length }}{{ {}|length }}
{% for i in range(3) %}{% set last = loop.last %}{% endfor %}{{ last is defined }}
{{ 1 if x else 2 if y else 3 }}{{ not x and 1 }}
{{ 'é'|upper ~ 'ÉCOLE'|lower ~ 'éa'|title }}
{{ "a" ~ "b" == "ab" }}{{ 1 + 1 == 2 and 2 * 2 != 5 }}
{{ (1,) }}{{ () }}{{ (1, 'a') == (1, 'a') }}{{ {'a': 1}.items()|list }}
"""


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            n = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(n)

        def _body(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    return env


def main():
    env = environment()
    templates = ["{{ " + e + " }}" for line in EXPRESSIONS.strip().splitlines() for e in line.split("|")]
    templates += ["{{ " + e + " }}" for line in FILTERED.strip().splitlines() for e in line.split(";;")]
    templates += TEMPLATES.strip().splitlines()
    goldens = []
    for t in templates:
        try:
            goldens.append({"template": t, "text": env.from_string(t).render()})
        except Exception as e:
            goldens.append({"template": t, "error": f"{type(e).__name__}: {e}"})
    lines = ",\n".join(json.dumps(g, ensure_ascii=False) for g in goldens)
    OUT.write_text("[\n" + lines + "\n]\n")
    print(f"{len(goldens)} templates, {sum('error' in g for g in goldens)} of them errors")


if __name__ == "__main__":
    main()
