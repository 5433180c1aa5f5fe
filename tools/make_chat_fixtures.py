#!/usr/bin/env python3
"""Writes tests/data/chat/golden.json: what Jinja2, in the environment of Hugging Face's transformers, makes of chat
templates and of small templates that each try one construct.

The tests of src/text/jinja compare with this file and need no Python. Run this again only to add cases (needs Debian's
python3-jinja2, or any Jinja2 3.1):

    python3 tools/make_chat_fixtures.py
"""

import datetime
import json
import pathlib

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "chat"
NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)  # the tests take the same moment, in UTC


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: marks the assistant's text, prints it unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same", []), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = raise_exception
ENVIRONMENT.globals["strftime_now"] = NOW.strftime

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says how the weather is, in \"plain\" words <&>'.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Stadt, 都市, 🌍"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "place": {"type": "object", "properties": {"lat": {"type": "number"}, "Lon": {"type": "number"}},
                          "required": ["lat"]},
            },
            "required": ["city"],
        },
    },
}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}


def call(name, arguments, identity="a1b2c3d4e"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


HELLO = [{"role": "user", "content": "Hello, wörld! 你好 🎉"}]
SYSTEM = [{"role": "system", "content": "  Be \"brief\".\n"}, {"role": "user", "content": " Hi <there> & 'you' \n"}]
TURNS = SYSTEM + [
    {"role": "assistant", "content": "<think>\nShort greeting.\n</think>\n\nHello."},
    {"role": "user", "content": "And now?\n\n"},
]
ENDS_WITH_ASSISTANT = TURNS + [
    {"role": "assistant", "content": "Fine.", "reasoning_content": "\n They ask again.\n"}]
CALLS = [
    {"role": "user", "content": "Weather in Rome, and 2+3?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [
        call("get_weather", {"city": "Rome \"Roma\"", "place": {"lat": 41.9, "Lon": 12.5}, "days": 3, "exact": True,
                             "extra": None, "tags": ["a", 1, False, 1e-7, 1e16, -0.0]})]},
    {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "{\"sky\": \"clear\"}"},
]
PARALLEL = [
    {"role": "user", "content": "Weather in Rome, and 2+3?"},
    {"role": "assistant", "content": "", "tool_calls": [
        call("get_weather", {"city": "Rome"}), call("add", {"a": 2, "b": 3}, "z9y8x7w6v")]},
    {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "clear"},
    {"role": "tool", "tool_call_id": "z9y8x7w6v", "content": "5"},
    {"role": "assistant", "content": "Clear, and 5."},
    {"role": "user", "content": "Thanks"},
]
ODD = [{"role": "user", "content": ""}, {"role": "assistant", "content": "a\r\nb\tc\\n{{ x }}{% y %}"},
       {"role": "user", "content": "\u2028 \u00a0x\u0007\x7f\u3000"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": " two"}]}]

CONVERSATIONS = {
    "hello": {"messages": HELLO, "add_generation_prompt": True},
    "no prompt": {"messages": HELLO, "add_generation_prompt": False},
    "system": {"messages": SYSTEM, "add_generation_prompt": True},
    "turns": {"messages": TURNS, "add_generation_prompt": True},
    "no thinking": {"messages": TURNS, "add_generation_prompt": True, "enable_thinking": False},
    "thinking": {"messages": TURNS, "add_generation_prompt": True, "enable_thinking": True},
    "ends with assistant": {"messages": ENDS_WITH_ASSISTANT, "add_generation_prompt": False},
    "tools": {"messages": SYSTEM, "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "calls": {"messages": CALLS, "tools": [WEATHER], "add_generation_prompt": True},
    "calls after system": {"messages": SYSTEM[:1] + CALLS, "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "parallel": {"messages": PARALLEL, "tools": [WEATHER, ADD], "add_generation_prompt": True},
    "odd texts": {"messages": ODD, "add_generation_prompt": True},
    "parts": {"messages": PARTS, "add_generation_prompt": True},
    "wrong order": {"messages": HELLO + HELLO + SYSTEM, "add_generation_prompt": True},
    "only system": {"messages": SYSTEM[:1], "add_generation_prompt": True},
    "no messages": {"messages": [], "add_generation_prompt": True},
    "tools in system": {"messages": SYSTEM, "tools": [WEATHER], "tools_in_user_message": False, "date_string": "today",
                        "add_generation_prompt": True},
}

DATA = {"a": {"b": [1, 2, {"c": "x"}]}, "s": "Hello World", "u": "héllo wörld ß", "n": 5, "f": 2.5, "z": 0, "none": None,
        "yes": True, "no": False, "l": [3, 1, 2], "words": ["b", "A", "c", "B"], "e": [], "d": {"k2": 1, "K1": 2, "k3": 0},
        "rows": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "z", "v": 1, "w": True}],
        "items": "a key", "multi": "one\ntwo\n\nthree", "dict": {"items": 1, "get": 2, "x": "'\"\\\n\t\u00e9\u200b"}}

SNIPPETS = [
    # white space
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}\n  b\n  {% endif %}  \nc", "x {%- if true -%} y {%- endif -%} z",
    "  {%+ if true %}a{% endif %}", "{% if true +%}\na{% endif %}", "a {# comment #} b\n  {# c #}\nd", "a {#- c -#} b",
    "a\r\nb\rc\n\n", "{{ 1 }}\n{{ 2 }}\n", "  {{ 1 }}  \n  {{- 2 -}}  \n x", "\n{% set x = 1 %}\n\n{{ x }}\n",
    "a{% raw %}{{ x }}\n{% y %}{% endraw %}b", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n  {{ x }}\n  {% endraw %}\nq",
    "{% for i in l %}\n  {{ i }}\n{% endfor %}\n", "\t {% if yes %}x{% endif %}", "a\n{#- x #}\n\nb", "x\n\n  {%- set q = 1 -%}\n\n y",
    "{{ '{{' }}{{ \"}}\" }}{{ '%}' }}", "{ {{ 1 }} } {x} {", "{{ {'a': {'b': 1}}['a']['b'] }}", "a\u00a0{%- if true -%}\u3000b{% endif %}",
    # output of values
    "{{ none }}|{{ true }}|{{ no }}|{{ 1 }}|{{ 1.0 }}|{{ 1e100 }}|{{ 1e15 }}|{{ 1e16 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 1.5e-7 }}",
    "{{ l }}|{{ d }}|{{ a }}|{{ (1,) }}|{{ () }}|{{ (1, 'a', none) }}|{{ [true, 1.5, 'it\\'s'] }}", "{{ dict }}", "{{ missing }}|{{ a.missing }}|{{ l[9] }}",
    "{{ 'a\\tb\\n\\x41\\u00e9\\'\\\"\\q\\101' }}", "{{ \"a\" 'b' \"c\" }}", "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }}", "{{ u }}{{ u|string }}",
    # arithmetic and comparison
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 1 - 2 - 3 }} {{ 1 ~ 2 + 3 }} {{ 1 + 2 ~ 3 }} {{ -n }} {{ +f }} {{ - -3 }}",
    "{{ 'a' * 3 }} {{ [1] * 2 }} {{ 'a' ~ 1 ~ none ~ true ~ l }} {{ 'x' + 'y' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ true + 1 }}",
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ l == [3,1,2] }} {{ d == {'K1': 2, 'k3': 0, 'k2': 1} }} {{ none == false }}",
    "{{ 'b' > 'a' }} {{ 'Z' < 'a' }} {{ [1,2] < [1,3] }} {{ 1 != 2 }} {{ 2 <= 2 }} {{ 2 >= 3 }}", "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}",
    "{{ 'ell' in s }} {{ 'k2' in d }} {{ 3 in l }} {{ 9 not in l }} {{ 'x' in ('x', 'y') }} {{ 'x' in missing }} {{ not 'x' in 'abc' }}",
    "{{ 1 and 0 }} {{ 0 or 'x' }} {{ '' or none }} {{ 1 and 2 and 3 }} {{ not 1 }} {{ not none }} {{ 1 or missing.x }}", "{{ 'a' if yes else 'b' }} {{ 'a' if no }}| {{ 'a' if no else 'b' if no else 'c' }}",
    "{{ '%s is %d and %.2f%%' % ('x', 3, 1.5) }} {{ '%s' % n }} {{ '%05d|%5.1f' % (42, 2.25) }} {{ '%x' % 255 }}",
    # subscripts and slices
    "{{ a.b[2].c }} {{ a['b'][0] }} {{ l.0 }} {{ l[-1] }} {{ s[0] }} {{ s[-1] }} {{ u[1] }} {{ a.b.2.c }}",
    "{{ l[::-1] }} {{ l[1:] }} {{ l[:1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[::2] }} {{ l[2:0:-1] }} {{ s[1:4] }} {{ u[::-1] }} {{ u[-5:] }} {{ s[:-3] }} {{ l[-9:9] }} {{ (1,2,3)[1:] }}",
    "{{ dict.items()|list }} {{ dict['items'] }} {{ dict.x }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('k2') }} {{ d.get('q') }} {{ d.get('q', 7) }}",
    "{{ items }}",
    # statements
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.depth }};{% endfor %}",
    "{% for x in e %}a{% else %}none{% endfor %} {% for x in missing %}a{% else %}none{% endfor %} {% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% endfor %} {% for x in l if x > 5 %}{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}", "{% for x in range(5) %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}",
    "{% for x, y in [(1, 2), [3, 4]] %}{{ x + y }} {% endfor %}",
    "{% for x in [1,2,3] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}",
    "{% if yes %}{% set q = 5 %}{% endif %}{{ q }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set t = 1, 2 %}{{ t }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{% set x | upper %}abc{% endset %}{{ x }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(a=9, b=8) }}{{ m() }}{{ m(1, 2, 3)|length }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}", "{% macro m() %}<{{ caller('q') }}>{% endmacro %}{% call(x) m() %}in {{ x }}{% endcall %}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{% set g = 2 %}{{ g }}{% endmacro %}{{ m() }}{{ g }}{% set g = 3 %}{{ m() }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro a(x=[]) %}{{ x }}{% endmacro %}{{ a() }}{{ a([1]) }}", "{% filter upper %}abc{{ n }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}", "{% with x = 1, y = n %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% generation %}text {{ n }}{% endgeneration %}!", "{% if n > 3 and s is string %}A{% elif n %}B{% else %}C{% endif %}", "{% if none %}{% elif z %}{% else %}C{% endif %}", "{{ namespace({'q': 1}, r=2).q }}",
    # filters
    "{{ '  a b  '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ s|upper }}{{ s|lower }}{{ s|title }}{{ 'heLLo'|capitalize }}{{ u|upper }}{{ u|capitalize }}", "{{ l|length }}{{ s|length }}{{ u|length }}{{ d|length }}{{ missing|length }}{{ l|count }}",
    "{{ l|first }}{{ l|last }}{{ e|first }}{{ l|sort }}{{ l|sort(reverse=true) }}{{ words|sort }}{{ words|sort(case_sensitive=true) }}{{ rows|sort(attribute='v')|map(attribute='n')|join }}", "{{ l|reverse|list }}{{ s|reverse }}{{ words|unique|list }}{{ l|max }}{{ l|min }}{{ l|sum }}{{ rows|sum(attribute='v') }}",
    "{{ l|join }}{{ l|join(', ') }}{{ rows|join('-', attribute='n') }}{{ [none, true]|join('/') }}", "{{ rows|selectattr('v', 'equalto', 1)|map(attribute='n')|list }}{{ rows|rejectattr('w', 'defined')|list|length }}{{ rows|selectattr('w')|list }}{{ l|select('gt', 1)|list }}{{ l|reject('odd')|list }}",
    "{{ words|map('upper')|list }}{{ words|map('replace', 'b', 'q')|join }}{{ rows|map(attribute='w', default='-')|list }}", "{{ missing|default('x') }}{{ none|default('x') }}{{ none|default('x', true) }}{{ ''|d('e', boolean=true) }}{{ z|default(5) }}{{ missing|default }}",
    "{{ d|dictsort }}{{ d|dictsort(true) }}{{ d|dictsort(by='value') }}{{ d|dictsort(reverse=true) }}", "{{ d|items|list }}", "{{ multi|indent }}|{{ multi|indent(2, true) }}|{{ multi|indent('>>', blank=true) }}|{{ 'a\n'|indent }}|{{ ''|indent(2, true) }}",
    "{{ s|replace('l', 'L') }}{{ s|replace('l', 'L', 1) }}{{ n|string + 'x' }}{{ 3.7|int }}{{ '42'|int }}{{ '4x'|int }}{{ '4x'|int(7) }}{{ '3.9'|int }}{{ '1.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ -3|abs }}", "{{ 2.567|round }}{{ 2.567|round(2) }}{{ 2.5|round }}{{ 2.1|round(method='ceil') }}{{ 2.675|round(2) }}{{ 7|round }}",
    "{{ '<a href=\"x\">\\'&'|e }}{{ '<b>'|safe }}{{ l|list }}{{ 'abc'|list }}{{ d|list }}", "{{ '%s-%s'|format(1, 'x') }}", "{{ a|attr('b') }}|{{ rows|map(attribute='v')|sum }}",
    # tojson
    "{{ dict|tojson }}|{{ l|tojson }}|{{ s|tojson }}|{{ none|tojson }}|{{ yes|tojson }}|{{ 1.0|tojson }}|{{ 1e20|tojson }}|{{ e|tojson }}|{{ {}|tojson }}|{{ (1,2)|tojson }}|{{ '<\\u0001\\x7f/é🎉>'|tojson }}", "{{ a|tojson(indent=2) }}{{ {}|tojson(indent=2) }}{{ [[], {}]|tojson(indent=4) }}",
    "{{ d|tojson(sort_keys=true) }}{{ u|tojson(ensure_ascii=true) }}{{ '🎉'|tojson(ensure_ascii=True) }}{{ d|tojson(separators=(',', ':')) }}{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}",
    # tests
    "{{ n is defined }}{{ missing is defined }}{{ missing is undefined }}{{ a.q is defined }}{{ none is none }}{{ n is none }}{{ n is not none }}", "{{ s is string }}{{ n is string }}{{ d is mapping }}{{ l is mapping }}{{ l is iterable }}{{ n is iterable }}{{ s is iterable }}{{ d is sequence }}{{ l is sequence }}{{ s is sequence }}{{ missing is iterable }}",
    "{{ yes is true }}{{ n is true }}{{ no is false }}{{ yes is boolean }}{{ n is number }}{{ n is integer }}{{ f is float }}{{ yes is integer }}{{ yes is number }}{{ f is integer }}", "{{ n is odd }}{{ n is even }}{{ n is divisibleby 5 }}{{ n is divisibleby(2) }}{{ n is eq 5 }}{{ n is equalto(5) }}{{ n is ne 4 }}{{ n is gt 4 }}{{ n is lt 4 }}{{ n is ge 5 }}{{ 3 is in l }}{{ 3 is in [1] }}{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ none is sameas none }}",
    "{{ not n is defined and no }}{{ n is defined and s is string }}{{ (n is odd) is true }}",
    # methods
    "{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a b c'.split(None, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ''.split(',') }}{{ ''.split() }}{{ 'a</t>b</t>'.split('</t>')[-1] }}", "{{ ' x '.strip() }}|{{ '\\n\\nx\\n'.lstrip('\\n') }}|{{ 'xyx'.rstrip('x') }}|{{ 'abc'.strip('ac') }}",
    "{{ s.startswith('He') }}{{ s.endswith('ld') }}{{ s.startswith(('x', 'H')) }}{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('q') }}{{ u.find('w') }}{{ s.index('W') }}{{ s.count('l') }}{{ s.startswith('lo', 3) }}", "{{ s.replace('o', '0') }}{{ s.replace('o', '0', 1) }}{{ 'ab'.replace('', '-') }}{{ s.upper() }}{{ s.lower() }}{{ 'they\\'re ok'.title() }}{{ 'they\\'re ok'|title }}{{ 'aB'.capitalize() }}",
    "{{ '-'.join(words) }}{{ 'a\\nb\\r\\nc'.splitlines() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ ' '.isspace() }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ l.index(1) }}{{ l.count(3) }}",
    "{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(5, 0, -2)|list }}{{ dict|length }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %A %j %%') }}",
    "{{ (l|sort)[0] }}", "{{ (s ~ n)|upper ~ 'x' }}", "{{ s|upper|lower|replace('h', 'j')|title }}", "{{ l|map('string')|join('+') }}", "{{ -3 % 2 }}{{ n|string|length }}{{ -n|abs }}", "{{ 'x' if l|length > 2 and 'World' in s else 'y' }}", "{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ [1, 2,] }}{{ {'a': 1,} }}",
    # errors: the tests ask that they are errors too
    "{{ missing.x }}", "{{ missing + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ missing() }}", "{{ n() }}", "{{ 1 / 0 }}", "{{ [] < 1 }}", "{{ raise_exception('no: ' ~ n) }}", "{% for x in n %}{% endfor %}", "{{ s.nothing() }}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ missing|tojson }}", "{{ 'a' in 5 }}",
    "{% if %}", "{% for x %}", "{{ ", "{{ 1 +", "{% endif %}", "{% if 1 %}", "{{ 1 | nofilter }}", "{{ 1 is notest }}", "{% unknown %}", "{{ 'a }}", "{# x", "{% raw %}", "{{ (1, 2 }}", "{{ [1 }}", "{{ a.[1] }}", "{% set 1 = 2 %}", "{% set a.b = 2 %}{{ a.b }}", "{{ range(1000000) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
]


def render(source, variables):
    try:
        return {"expected": ENVIRONMENT.from_string(source).render(**variables)}
    except TemplateError as error:
        return {"error": str(error) or type(error).__name__}
    except (TypeError, ZeroDivisionError, OverflowError, RecursionError, ValueError, AttributeError) as error:
        return {"error": type(error).__name__}


def main():
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text()
        for name, variables in CONVERSATIONS.items():
            full = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None, **variables}
            cases.append({"name": f"{path.stem}: {name}", "file": path.name, "variables": full, **render(source, full)})
    snippets = [{"source": source, **render(source, DATA)} for source in SNIPPETS]
    golden = {"now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), "cases": cases, "data": DATA, "snippets": snippets}
    (FOLDER / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
    print(len(cases), "conversations,", len(snippets), "snippets")


if __name__ == "__main__":
    main()
