#!/usr/bin/env python3
"""Writes tests/testdata/template/goldens.jsonl: templates with what jinja2 makes of them.

  tests/reference/template_goldens.py tests/testdata/template/goldens.jsonl

A line is {"name", "template", "context", "text" or null where jinja2 refuses, "generation"}. The
templates are those below, one group for each part of the language, and a sample of those that
template_fuzz.py makes up.
"""
import json
import random
import sys

import template_fuzz
import template_oracle

CONTEXT = {
    "s": "Hello, World", "empty": "", "u": "Grüße ΑΣ 日本 🎉", "n": 3, "f": 1.5, "t": True, "no": None,
    "xs": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"],
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True, "é\n"]}, "items": "shadowed"},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
               {"name": "Cid", "tags": ["y", "z"]}],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
}

GROUPS = {
    "white space": [
        "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \n  b\n  {%- endif -%}  \n c",
        "a  {{- s -}}  b", "a {{ s }}\n b\n", "  {{ s }}", "\n\n{%- set x = 1 %}\n\nx",
        "a\n   {%+ if t %}b{% endif +%}\nc", "x{# note #}\ny", "x {#- note -#} y", "  {# note #}\ny",
        "{#- a -#}\n{# b +#}\nz", "{% raw %}\n{{ x }} {% if %}\n{% endraw %}\nz",
        "a {%- raw -%} {{ b }} {%- endraw -%} c", "a\r\nb\rc\n\n", "a\n\n", "{{ s }}\n\n\n",
        "\t{% if t %}\n\tx\n\t{% endif %}", "a{% if t %} {% endif %}b", "{%if t%}x{%endif%}",
        "\u00a0{%- if t %}x{% endif %}", "a\n \u3000{% if t %}x{% endif %}", "{#", "a{% raw %}",
        "line one\n{{ s }}\n{{ s -}}\n\n  end", "{% for x in xs %}\n  {{ x }}\n{% endfor %}\n.",
        "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}", "{# a #}{# b #}\n\n{% set x = 1 %}\n{{ x }}",
        "{{ '{{' }} {{ '%}' }} {{ {'a': {}} }}", "}} %} #} {", "{{ s }}{{- ' ' -}}{{ n }}"],
    "literals": [
        "{{ 1 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 00 }}", "{{ 1.5 }} {{ 1e3 }} {{ 1_0.5e-3 }}",
        "{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789012345678.0 }} {{ 1e400 }}",
        "{{ 'a' 'b' \"c\" }}", "{{ 'q\\'s \\\\ \\n \\t \\x41 \\u00e9 \\U0001F600 \\101 \\d \\é' }}",
        "{{ 'a\\\nb' }}", "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
        "{{ [] }} {{ [1,] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ {} }} {{ {'a': 1,} }}",
        "{{ {1: 'a', 1.0: 'b', true: 'c'} }}", "{{ [1, 'a', none, 2.5, {'k': ['v']}] }}",
        "{{ 1, 2 }}", "{{ 'it' \"'s\" }}|{{ [\"it's\", 'say \"x\"', \"both ' and \\\"\"] }}",
        "{{ ['\\x00\\x7f\\u200b\\u00e9\\U000e0001\\n'] }}", "{{ 'abc }}", "{{ 1.2.3 }}", "{{ 01 }}",
        "{{ 'é' 'ß' }}", "{{ '\\xZZ' }}", "{{ 1e }}", "{{ .5 }}", "{{ 5. }}", "{{ 1 if }}"],
    "operators": [
        "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
        "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 0.0 // -1 }}",
        "{{ 2 ** 3 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}",
        "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}",
        "{{ 'a' + 1 }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ 1 ~ 'a' ~ none ~ 1.0 ~ [1] ~ missing }}",
        "{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [1, 2] == [1, 2.0] }} {{ {'a': 1} == {'a': 1} }}",
        "{{ (1, 2) == [1, 2] }} {{ none == none }} {{ missing == other }} {{ missing == none }}",
        "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ 1 <= 1.0 }}",
        "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ {} < {} }}", "{{ missing < 1 }}", "{{ 'é' > 'z' }} {{ '🎉' > '\\uffff' }}",
        "{{ 2 in [1, 2] }} {{ 'a' in 'cat' }} {{ 'a' in {'a': 1} }} {{ 3 not in [1] }} {{ '' in '' }} {{ 2.0 in [1, 2] }}",
        "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ [] in {} }}", "{{ 1 in missing }}", "{{ 'x' in range(3) }} {{ 2 in range(3) }}",
        "{{ not 0 }} {{ not [] }} {{ not 'a' }} {{ not missing }} {{ not not 1 }} {{ not range(0) }}",
        "{{ 1 and 2 }} {{ 0 or 'x' }} {{ '' and missing.x }} {{ none or [] }} {{ 1 or missing.x }}",
        "{{ -n }} {{ +n }} {{ - -n }} {{ -f }} {{ -true }} {{ +'a' }}", "{{ -3 | abs }} {{ (-3) | abs }} {{ 3 - 2 | abs }}",
        "{{ 'a' if t else 'b' }} {{ 'a' if no }} {{ 'a' if no else 'b' if no else 'c' }}|{{ ('x' if no) is defined }}",
        "{{ 1 if t else missing.x.y }}", "{{ n is odd and f is float or no }}", "{{ 2 is even is odd }}",
        "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ a b }}", "{{ 1 = 2 }}", "{{ not }}", "{{ }}"],
    "lookups": [
        "{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d['a']['x'][-1] }} {{ xs[0] }} {{ xs.0 }} {{ xs[-1] }} {{ s[0] }} {{ u[-1] }}",
        "{{ d['items'] }} {{ d.items() | list | length }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}",
        "{{ d.zz }}|{{ d['zz'] }}|{{ xs[99] }}|{{ s.zz }}|{{ n.zz }}|{{ missing }}|{{ xs['a'] }}|{{ none.x }}",
        "{{ missing.x }}", "{{ d.zz.y }}", "{{ missing[0] }}", "{{ missing() }}", "{{ d() }}", "{{ s.zz() }}", "{{ d[[]] }}",
        "{{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ xs[::2] }} {{ xs[5:] }} {{ xs[-99:99] }} {{ (1, 2, 3)[1:] }}",
        "{{ u[6:] }}|{{ u[::-1] }}|{{ u[-3:-1] }}|{{ u[::3] }}|{{ s[2:5] }}|{{ s[10:2:-3] }}|{{ s[:0] }}|{{ s[99:] }}",
        "{{ xs[::0] }}", "{{ xs['a':] }}", "{{ d[1:] }}", "{{ missing[1:] }}", "{{ range(10)[2:8:2] }} {{ range(10)[::-1] | list }}",
        "{{ xs[true] }} {{ xs[false] }} {{ xs[1.0] }}|{{ xs[none] }}", "{{ s['upper']() }} {{ d['get']('b') }}",
        "{{ xs.append(1) }}", "{{ xs.append }}|{{ d.update is defined }}", "{{ d.pop('b') }}", "{{ s.__class__ }}"],
    "statements": [
        "{% if n > 5 %}a{% elif n > 2 %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if 1, %}x{% endif %}",
        "{% for x in xs %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
        "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in xs if x > 1 %}{{ loop.index0 }}{{ x }}{{ loop.last }} {% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
        "{% for a, b in xs %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}",
        "{% for x in xs %}{{ loop.first }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}",
        "{% for x in xs | map('string') %}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% for x in none %}{% endfor %}",
        "{% for x in 5 %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
        "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
        "{% for x in xs %}{% continue %}{% else %}else{% endfor %}", "{% break %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
        "{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}", "{% for x in xs %}{{ loop }}{% endfor %}",
        "{% for p in [{'c': [{'c': []}, {'c': [{'c': []}]}]}] recursive %}<{{ loop.depth }}{{ loop(p.c) }}>{% endfor %}",
        "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for loop in xs %}{% endfor %}",
        "{% set x = 1 %}{% for y in xs %}{% set x = y %}{{ x }}{% endfor %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a + b }}",
        "{% set ns = namespace(x=0, y='q') %}{% for y in xs %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{{ ns }}",
        "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set n.x = 1 %}", "{% set missing.x = 1 %}", "{% set 1 = 2 %}", "{% set none = 2 %}",
        "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | upper | trim %} a{{ s }}b {% endset %}[{{ x }}]", "{% if t %}{% set q = 5 %}{% endif %}{{ q }}",
        "{% if no %}{% set s = 5 %}{% endif %}{{ s }}", "{% for x in xs %}{% if x == 1 %}{% set s = x %}{% endif %}{{ s }};{% endfor %}",
        "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}",
        "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | title %}banana{% endfilter %}", "{% print 1, s %}",
        "{% if t %}", "{% endif %}", "{% for x in xs %}", "{% else %}", "{% nonsense %}", "{% if t %}{% endfor %}", "{% for x %}{% endfor %}", "{% set %}"],
    "macros": [
        "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}",
        "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m() %}x{% endmacro %}{{ m(1) }}", "{% macro m() %}x{% endmacro %}{{ m(a=1) }}",
        "{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1) %}body{{ n }}{% endcall %}",
        "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% macro f(x) %}{{ x }}{% if x > 0 %},{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro m() %}{{ s }}{% set s = 1 %}{{ s }}{% endmacro %}{{ m() }}{{ s }}",
        "{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
        "{% macro m() %}{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}", "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}a{% endmacro %}{{ m() is string }}{{ m() | length }}",
        "{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner }}", "{{ f(a=1, a=2) }}", "{{ dict(*[[['a', 1]]], **{'b': 2}) }}", "{% call 5 %}{% endcall %}"],
    "generation": [
        "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}<end>\n{% endgeneration %}{% else %}U:{{ m.content }}\n{% endif %}{% endfor %}",
        "é{% generation %}日本{% endgeneration %}é", "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "{% generation %}{% endgeneration %}", "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}{% endfor %}",
        "{%- generation -%}  x  {%- endgeneration -%}  y", "{% generation %}", "{% for x in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}"],
    "filters": [
        "{{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='name') | map(attribute='name') | join(',') }}", "{{ [1, 'a'] | sort }}", "{{ people | sort(attribute='age') }}",
        "{{ words | unique | list }} {{ words | unique(case_sensitive=true) | list }} {{ [1, 1.0, true, 2] | unique | list }}", "{{ people | unique }}", "{{ people | unique | list }}", "{{ words | first }} {{ words | last }} {{ [] | first }}|{{ s | first }}{{ s | last }}", "{{ xs | map('string') | last }}",
        "{{ xs | join }} {{ xs | join('-') }} {{ people | join(', ', attribute='name') }} {{ s | join('.') }} {{ missing | join }}|{{ 5 | join }}", "{{ xs | length }} {{ s | length }} {{ u | count }} {{ d | length }} {{ missing | length }}", "{{ 5 | length }}", "{{ xs | map('string') | length }}",
        "{{ xs | sum }} {{ people | selectattr('age') | sum(attribute='age') }} {{ [1.5, 2] | sum(start=10) }} {{ [] | sum }}", "{{ ['a'] | sum }}", "{{ xs | min }} {{ xs | max }} {{ words | min }} {{ words | max }} {{ [] | max }}|{{ people | max(attribute='name') }}", "{{ xs | reverse | list }} {{ s | reverse }} {{ d | reverse | list }} {{ range(3) | reverse | list }}",
        "{{ people | map(attribute='age', default=0) | list }} {{ people | map(attribute='tags.0') | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'a', 'b') | join(' ') }}", "{{ words | map('nosuch') | list }}", "{{ words | map | list }}", "{{ people | map(attribut='x') | list }}",
        "{{ xs | select('odd') | list }} {{ xs | reject('gt', 1) | list }} {{ [0, 1, ''] | select | list }} {{ people | selectattr('age', 'defined') | map(attribute='name') | list }} {{ people | rejectattr('tags') | list | length }}", "{{ people | selectattr('name', 'equalto', 'bob') | list }}", "{{ xs | select('nosuch') | list }}",
        "{% if xs | select('gt', 99) %}generators are true{% endif %}", "{% set g = xs | map('string') %}{{ g | list }}{{ g | list }}", "{{ xs | batch(2) | list }} {{ xs | batch(2, 'x') | list }} {{ range(7) | slice(3) | list }} {{ range(7) | slice(3, 'x') | list }}", "{{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'A': 2} | dictsort(by='value', reverse=true) }}",
        "{% for k, v in d | items %}{{ k }}{% endfor %}{{ missing | items | list }}", "{{ xs | items | list }}", "{{ missing | default('x') }} {{ no | default('x') }} {{ no | default('x', true) }} {{ empty | d('y', boolean=true) }} {{ missing | default }}|", "{{ s | upper }} {{ s | lower }} {{ u | upper }} {{ u | lower }} {{ 'ǆ ß ﬁ İ' | upper }} {{ 'ǆ ß ﬁ İ' | lower }} {{ 'ΟΔΥΣΣΕΥΣ ΑΣ. Σ' | lower }}",
        "{{ 'hello wORLD-foo (bar' | title }} {{ \"it's\" | title }} {{ 'ǆx' | title }} {{ 'hELLO' | capitalize }} {{ 'ßa' | capitalize }}", "[{{ '  a ' | trim }}] [{{ 'xxaxx' | trim('x') }}] [{{ '\u00a0\u3000a\\x1c' | trim }}] [{{ 5 | trim }}]", "{{ 'aaa' | replace('a', 'b') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'abc' | replace('', '-') }} {{ 123 | replace(2, 'x') }}", "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n\\nc' | indent(2, true, true) }}|{{ 'a\\nb' | indent('> ', first=true) }}", "{{ xs | indent }}",
        "{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '…', 0) }}", "{{ 'x' | truncate(2) }}", "[{{ 'x' | center(7) }}] [{{ 'ab' | center(7) }}] [{{ 'abc' | center(2) }}]", "{{ 'one two-three_four' | wordcount }}", "{{ '%s is %d' | format('x', 5) }} {{ '%(a)s' | format(a=1) }} {{ '%5.2f|%-5s|%05d|%x|%e|%g|%%|%r' | format(3.14159, 'ab', 42, 255, 12345.678, 0.0001, 'q') }}", "{{ '%d' | format('x') }}", "{{ '%s %s' | format(1) }}", "{{ '%s' | format(1, 2) }}",
        "{{ '5' | int }} {{ '5.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 'ff' | int(0, 16) }} {{ '0x1f' | int(0, 16) }} {{ 5.9 | int }} {{ -5.9 | int }} {{ true | int }} {{ none | int }} {{ ' 12 ' | int }} {{ '1_000' | int }}", "{{ missing | int }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ 'inf' | float }} {{ none | float }}", "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 1234 | round(-2) }} {{ 5 | round }} {{ 1.5 | round | int }}", "{{ 2 | round(1, 'up') }}", "{{ -3 | abs }} {{ 2.5 | abs }} {{ true | abs }}", "{{ 'x' | abs }}", "{{ s | list }} {{ d | list }} {{ 5 | string }} {{ 1.0 | string }} {{ none | string }}",
        "{{ '<a href=\"x\">&\\'</a>' | e }} {{ '<b>' | escape | escape }} {{ '<b>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ ('<b>' | safe) ~ '<i>' }} {{ [('a' | safe)] }} {{ ('<b>' | safe | upper) + '<' }} {{ ('a' | safe) is escaped }} {{ 5 | safe }}", "{{ (('<b>' | safe) * 2) + '<' }} {{ ('%s' | safe) is string }} {{ ('a,b' | safe).split(',') }} {{ ('<b>' | safe).replace('b', '<') }} {{ ('-' | safe).join(['<', 'x']) }}", "{{ 1 | nosuch }}", "{% if no %}{{ 1 | nosuch }}{% endif %}ok", "{% if t %}{{ 1 | nosuch }}{% endif %}", "{{ 1 is nosuch }}", "{{ s | upper(1) }}", "{{ s | replace('a') }}", "{{ s | join(x=1) }}", "{{ s | | upper }}"],
    "tojson": [
        "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ people | tojson(indent=4) }}", "{{ d | tojson(ensure_ascii=true) }} {{ '🎉é\\x7f\\x00\\b\\f/<>&' | tojson(true) }}", "{{ '🎉é\\x7f\\x00\\b\\f/<>&\\'\"\\\\\\u2028' | tojson }}", "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(indent='\\t', separators=[', ', '=']) }}", "{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ [[], [1]] | tojson(indent=0) }}", "{{ [1.5, 1e22, 1e-7, 100000.0, -0.0, 1.0] | tojson }}", "{{ [true, none, (1, 2), {1: 2, none: 3, true: 4, 1.5: 5}] | tojson }}", "{{ missing | tojson }}", "{{ range(3) | tojson }}", "{{ {'a': missing} | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ s | tojson }}{{ n | tojson }}{{ no | tojson }}"],
    "tests": [
        "{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.zz is not defined }} {{ no is none }} {{ no is defined }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }}", "{{ n is number }} {{ t is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ s is string }} {{ d is mapping }} {{ xs is mapping }} {{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ xs is iterable }} {{ n is iterable }} {{ (xs | map('string')) is iterable }} {{ (xs | map('string')) is sequence }} {{ d.items() is sequence }} {{ missing is iterable }} {{ missing is sequence }}", "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'a' is odd }}", "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aBc' is lower }} {{ '1' is upper }} {{ 'é' is lower }}", "{{ 1 is eq 1 }} {{ 1 is equalto(1.0) }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 1 is lt 2 }} {{ 1 is le 0 }} {{ 1 is lessthan 2 }} {{ 3 is greaterthan 2 }} {{ 1 is in [1] }} {{ 'a' is not in 'b' }}", "{{ none is sameas none }} {{ xs is sameas xs }} {{ [] is sameas [] }}", "{{ 'upper' is filter }} {{ 'nosuch' is filter }} {{ 'odd' is test }} {{ 'x' is escaped }} {{ range is callable }} {{ s is callable }} {{ s.upper is callable }}", "{{ 1 is divisibleby 0 }}", "{{ x is }}"],
    "methods": [
        "{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a b '.split(none, 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b c '.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }}", "{{ 'a'.split('') }}", "[{{ ' a '.strip() }}] [{{ ' a '.lstrip() }}] [{{ ' a '.rstrip() }}] [{{ 'xyaxy'.strip('xy') }}] [{{ 'éaé'.strip('é') }}] [{{ '\\n\\na'.lstrip('\\n') }}]", "{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('l', 2) }} {{ s.endswith('l', 0, 4) }} {{ ''.startswith('') }} {{ 'a'.startswith('', 5) }}", "{{ s.startswith(1) }}", "{{ s.startswith(['H']) }}", "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ \"they're bill's\".title() }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.find('o') }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ u.find('日') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }}", "{{ s.index('zz') }}", "{{ ','.join(words) }} {{ ''.join([]) }}", "{{ ','.join(xs) }}", "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }}", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028e'.splitlines() }} {{ 'a\\n\\nb\\n'.splitlines(true) }} {{ ''.splitlines() }}", "{{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} [{{ 'a'.ljust(3) }}] [{{ 'a'.rjust(3, '*') }}] [{{ 'ab'.center(5) }}] [{{ 'a'.center(4) }}]", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('') }}", "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ 'a1'.isalnum() }} {{ ' \\t'.isspace() }} {{ ''.isalpha() }} {{ 'abC'.islower() }} {{ 'ABC1'.isupper() }} {{ 'é'.isascii() }} {{ 'a\\n'.isprintable() }}", "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{a.b[0]}'.format(a={'b': [7]}) }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}|{:*^5}|{:05d}|{:,}|{:.2f}|{:x}|{:+d}|{!r:>6}'.format('a', 'b', 'c', 'd', 42, 1234567, 3.14159, 255, 5, 'q') }}", "{{ '{:>5}|{}|{!r}'.format('<a' | e, 'b' | e, 'c' | e) }} {{ ('{:>4}|{}' | safe).format('<', 'd' | e) }}", "{{ ('{:>4}' | safe).format('a' | e) }}", "{{ '{}'.format() }}", "{{ '{x}'.format(1) }}", "{{ '{} {0}'.format(1) }}", "{{ '%s and %s' % ('a', 1) }} {{ '%s' % none }} {{ '%s' % [1] }} {{ '%(k)s' % {'k': 1} }} {{ 5 % 3 }}", "{{ '%d' % 'x' }}", "{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }} {{ d.copy() == d }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (1, 2).index(1) }}", "{{ [1].index(5) }}", "{{ d.get() }}", "{{ d.get([]) }}", "{{ s.split(1) }}", "{{ s.nosuch() }}", "{{ s.strip(1) }}"],
    "functions": [
        "{{ range(5) | list }} {{ range(1, 5) | list }} {{ range(5, 0, -2) | list }} {{ range(3) }} {{ range(0, 9, 3) }} {{ range(5)[1] }} {{ range(3) | length }}", "{{ range() }}", "{{ range(1.5) }}", "{{ range(1, 2, 0) }}", "{{ range(200000) }}", "{{ dict(a=1, b=[2]) }} {{ dict([['x', 1]]) }} {{ dict({'a': 1}, a=2) }} {{ dict() }}", "{{ dict([1]) }}", "{{ raise_exception('no') }}", "{% if no %}{{ raise_exception('no') }}{% endif %}fine", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %j') }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y", "{{ nosuch() }}", "{{ namespace(1) }}", "{{ s() }}"],
}


def cases():
    for group, templates in GROUPS.items():
        for number, template in enumerate(templates):
            yield f"{group} {number}", template, CONTEXT
    for number in range(600):
        template, context = template_fuzz.Generator(random.Random(f"golden {number}")).case()
        if len(template) < 600:
            yield f"made up {number}", template, context


def main():
    lines = []
    for name, template, context in cases():
        result = template_oracle.render(template, context)
        made_up = name.startswith("made up")
        text = result.get("text")
        if text is not None and template_fuzz.ADDRESS.search(text):
            continue
        if made_up and (text is None or len(text) < 12):
            continue
        lines.append(json.dumps({
            "name": name, "template": template, "context": context if made_up else None,
            "text": text, "generation": result.get("generation", [])}, ensure_ascii=False))
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(json.dumps({"context": CONTEXT}, ensure_ascii=False) + "\n")
        out.write("\n".join(lines) + "\n")
    refused = sum('"text": null' in line for line in lines)
    print(f"{len(lines)} templates, {refused} refused")


if __name__ == "__main__":
    main()
