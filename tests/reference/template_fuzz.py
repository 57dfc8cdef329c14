#!/usr/bin/env python3
"""Random templates and contexts, rendered by us and by jinja2: the same text, or both refuse.

  tests/reference/template_fuzz.py build/ci/bin/penstock_template_render --cases 100000 --seed 1

Programs are made from a grammar that covers every statement, operator, filter, test and method
that we have, with little regard for types, so that many are refused. What is known to differ is
not generated (big integers, identity of equal strings) or counted as refused by jinja2 (objects
printed with their addresses). Prints what differs; exit 1 if anything does.
"""
import argparse
import collections
import random
import re
import sys

import template_oracle

# In our errors: what jinja2 prints then holds an address; nothing but its own loop goes through one;
# `{} and (x | list.y)` has no filter list.y, but jinja2 folds it away.
OURS_ALONE = (" printed", "LoopContext cannot be iterated over", "the filter list.")
ADDRESS = re.compile(r"\bat 0x[0-9a-f]+>")
NAMES = ["a", "b", "c", "xs", "d", "s", "n", "ns", "loop", "item", "missing", "m1", "m2", "k", "v"]
TEXTS = ["", "a", "b", "abc", "Ab c", "  x ", "\n", "x,y,,z", "key", "tEsT", "<b>&'\"", "é", "ß",
         "ΑΣ", "日本語", "🎉x", "1", "-3", "2.5", "0x1f", "a.b", "line\nline2\n", "\t", "%s", "{}",
         "{0}-{1}", "%d|%5.2f", "{a}", "ǆ", "\u00a0y\u00a0", "\x1c", "a\\b", "nan", "1_000"]
FILTERS = ["abs", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e",
           "escape", "first", "float", "format", "indent", "int", "items", "join", "last", "length",
           "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse",
           "round", "safe", "select", "selectattr", "slice", "sort", "string", "sum", "title",
           "tojson", "trim", "truncate", "unique", "upper", "wordcount"]
TESTS = ["boolean", "callable", "defined", "divisibleby", "eq", "equalto", "escaped", "even",
         "false", "filter", "float", "ge", "greaterthan", "gt", "in", "integer", "iterable", "le",
         "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sequence", "string",
         "test", "true", "undefined", "upper"]
METHODS = ["capitalize", "center", "count", "endswith", "find", "format", "index", "isalnum",
           "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isprintable", "isspace",
           "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix",
           "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip",
           "split", "splitlines", "startswith", "strip", "title", "upper", "zfill", "get", "items",
           "keys", "values", "copy", "append", "update"]
LOOP = ["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem",
        "nextitem", "depth", "depth0"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
          "and", "or"]


class Generator:
    def __init__(self, rng):
        self.rng = rng
        self.loops = 0
        self.macro = False
        self.chaos = rng.choice([0.0, 0.0, 0.02, 0.1, 0.5])

    def pick(self, options):
        return self.rng.choice(options)

    def value(self, depth=0):
        kind = self.rng.randrange(10 if depth < 3 else 6)
        if kind == 0:
            return self.pick([None, True, False])
        if kind in (1, 2):
            return self.pick([0, 1, -1, 2, 3, 7, 42, -5])
        if kind == 3:
            return self.pick([0.0, 1.0, 1.5, -2.25, 1e22, 1e-7, 0.1, 100000.0, 3.0])
        if kind in (4, 5):
            return self.pick(TEXTS)
        if kind in (6, 7):
            return [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        keys = self.rng.sample(["a", "b", "c", "key", "items", "content", "x y", "é"],
                               self.rng.randrange(4))
        return {key: self.value(depth + 1) for key in keys}

    def literal(self):
        kind = self.rng.randrange(8)
        if kind <= 2:
            return str(self.pick([0, 1, 2, 3, 5, 10]))
        if kind == 3:
            return self.pick(["1.5", "0.1", "2e3", "1.0", "5e-7"])
        if kind == 4:
            return self.pick(["true", "false", "none", "True", "None"])
        text = self.pick(TEXTS)
        quote = self.pick("'\"")
        for old, new in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), (quote, "\\" + quote)):
            text = text.replace(old, new)
        return quote + text + quote

    def arguments(self, depth):
        rng = self.rng
        parts = [self.expression(depth + 1) for _ in range(self.pick([0, 0, 1, 1, 1, 2, 2, 3]))]
        if rng.random() < 0.12:
            name = self.pick(["attribute", "default", "width", "reverse", "case_sensitive", "indent",
                              "boolean", "first", "sep", "d", "a", "count", "maxsplit", "start"])
            parts.append(f"{name}={self.expression(depth + 1)}")
        if rng.random() < 0.03:
            parts.append("*" + self.expression(depth + 1))
        if rng.random() < 0.03:
            parts.append("**" + self.expression(depth + 1))
        return "(" + ", ".join(parts) + ")"

    def filter(self, depth):
        name = self.pick(FILTERS)
        rng = self.rng
        if name in ("map", "select", "reject") and rng.random() < 0.7:
            inner = self.pick(FILTERS if name == "map" else TESTS)
            more = ", " + self.expression(depth + 1) if rng.random() < 0.3 else ""
            if name == "map" and rng.random() < 0.4:
                return f"map(attribute={self.literal()})"
            return f"{name}('{inner}'{more})"
        if name in ("selectattr", "rejectattr") and rng.random() < 0.8:
            more = f", '{self.pick(TESTS)}'" if rng.random() < 0.7 else ""
            last = ", " + self.expression(depth + 1) if more and rng.random() < 0.6 else ""
            return f"{name}('{self.pick(['a', 'b', 'key', 'a.b', 'content'])}'{more}{last})"
        if name in ("join", "replace", "default", "d", "indent", "batch", "slice", "tojson", "round",
                    "truncate", "center", "trim", "int", "sort", "format", "sum"):
            return name + (self.arguments(depth) if rng.random() < 0.75 else "")
        return name + (self.arguments(depth) if rng.random() < 0.08 else "")

    def test(self, depth):
        name = self.pick(TESTS)
        if name in ("divisibleby", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le", "lessthan",
                    "lt", "ne"):
            return f"{name} {self.literal()}" if self.rng.random() < 0.5 else (
                f"{name}({self.expression(depth + 1)})")
        return name

    def slice(self, depth):
        def part():
            return self.pick(["", "", "1", "-1", "2", "0", "-2", "5"])
        if self.rng.random() < 0.15:
            return f"[{self.expression(depth + 1)}:]"
        return f"[{part()}:{part()}" + (f":{part()}" if self.rng.random() < 0.5 else "") + "]"

    def expression(self, depth=0, kind=None):
        """Mostly an expression of the kind wanted; now and then anything at all."""
        if self.rng.random() < self.chaos:
            return self.anything(depth)
        kind = kind or self.pick(["text", "text", "number", "items", "table", "truth"])
        return getattr(self, kind)(depth + 1)

    def text(self, depth):
        rng, more = self.rng, lambda kind: self.expression(depth, kind)
        if depth > 4 or rng.random() < 0.3:
            return self.pick(["s", "s", "'x'", "''", "'a,b'", "'{}:{}'", self.text_literal()])
        return self.pick([
            lambda: f"({more('text')} ~ {more(None)})",
            lambda: f"({more('text')} + {more('text')})",
            lambda: f"({more('text')} * {self.pick('0123')})",
            lambda: f"{more('text')} | " + self.pick([
                "upper", "lower", "title", "trim", "capitalize", "string", "safe", "e", "reverse",
                "indent", "indent(2, true)", "indent('- ', blank=true)", "truncate(5)",
                "truncate(6, true, '…')", "center(9)", "replace('a', 'bb')", "default('z', true)",
                f"replace({more('text')}, 'y', 1)", f"trim({more('text')})", f"format({more(None)})"]),
            lambda: f"({more(None)} | {self.pick(['string', 'tojson', 'tojson(indent=2)'])})",
            lambda: f"({more('table')} | tojson(sort_keys=true))",
            lambda: f"({more('items')} | join{self.pick(['', '(', '(']) and '(' + more('text') + ')'})",
            lambda: f"({more('text')}).{self.pick(['strip', 'lstrip', 'rstrip'])}({self.pick(['', more('text')])})",
            lambda: f"({more('text')}).{self.pick(['upper', 'lower', 'title', 'capitalize'])}()",
            lambda: f"({more('text')}).{self.pick(['removeprefix', 'removesuffix'])}({more('text')})",
            lambda: f"({more('text')}).replace({more('text')}, {more('text')})",
            lambda: f"({more('text')}).{self.pick(['ljust', 'rjust', 'center', 'zfill'])}({more('number')})",
            lambda: f"({more('text')}, s)[0]{self.slice(9)}",
            lambda: f"({more('text')}).split({more('text')} or ' ')[{self.pick(['0', '-1'])}]",
            lambda: f"({more('text')}).partition('x')[{self.pick('012')}]",
            lambda: f"('%s|%r|%5s' % ({more(None)}, {more(None)}, {more('text')}))",
            lambda: f"('%d %5.1f %x' % ({more('number')}, {more('number')}, {self.pick('0179')}))",
            lambda: f"'{{}}/{{!r}}/{{:>4}}'.format({more(None)}, {more(None)}, {more('text')})",
            lambda: f"({more('text')} if {more('truth')} else {more('text')})",
            lambda: f"({more('items')} | {self.pick(['first', 'last'])} | string)",
            lambda: f"m1({more(None)})" if self.macro else "s"])()

    def number(self, depth):
        rng, more = self.rng, lambda kind: self.expression(depth, kind)
        if depth > 4 or rng.random() < 0.35:
            return self.pick(["n", "1", "2", "0", "10", "1.5", "-1", "0.1"]
                             + (["loop.index", "loop.index0", "loop.length", "loop.revindex"]
                                if self.loops else []))
        return self.pick([
            lambda: f"({more('number')} {self.pick(['+', '-', '*'])} {more('number')})",
            lambda: f"({more('number')} {self.pick(['//', '/', '%'])} {self.pick(['2', '3', '-2', '1.5'])})",
            lambda: f"({more('number')} ** 2)",
            lambda: f"({more(self.pick(['text', 'items', 'table']))} | {self.pick(['length', 'count'])})",
            lambda: f"({more('number')} | {self.pick(['abs', 'round', 'int', 'float', 'round(1)'])})",
            lambda: f"({more('number')} | round(1, '{self.pick(['ceil', 'floor', 'common'])}'))",
            lambda: f"({more('text')} | {self.pick(['int', 'float', 'int(7)', 'int(0, 16)', 'wordcount'])})",
            lambda: f"({more('text')}).{self.pick(['find', 'rfind', 'count'])}({more('text')})",
            lambda: f"([{more('number')}, {more('number')}] | {self.pick(['sum', 'max', 'min'])})",
            lambda: f"(-{more('number')})"])()

    def items(self, depth):
        rng, more = self.rng, lambda kind: self.expression(depth, kind)
        if depth > 4 or rng.random() < 0.35:
            return self.pick(["xs", "xs", "[]", "[1, 2, 3]", "['b', 'A', 'a']", "range(4) | list"])
        return self.pick([
            lambda: "[" + ", ".join(more(None) for _ in range(rng.randrange(1, 4))) + "]",
            lambda: f"({more('items')} + {more('items')})",
            lambda: f"({more('items')}, s)[0]{self.slice(9)}",
            lambda: f"({more('text')}).{self.pick(['split', 'rsplit'])}({self.pick(['', more('text') + ' or 1', 'none, 1'])})",
            lambda: f"({more('text')}).splitlines({self.pick(['', 'true'])})",
            lambda: f"({more('items')} | map('{self.pick(['string', 'upper', 'tojson', 'trim', 'e'])}') | list)",
            lambda: f"({more('items')} | map(attribute='{self.pick('ab0')}') | list)",
            lambda: f"({more('items')} | {self.pick(['select', 'reject'])}('{self.pick(TESTS)}') | list)",
            lambda: f"({more('items')} | {self.pick(['select', 'reject'])} | list)",
            lambda: f"({more('items')} | map('string') | {self.pick(['sort', 'unique | list', 'sort(reverse=true)', 'sort(case_sensitive=true)'])})",
            lambda: f"([{more('table')}, {more('table')}] | {self.pick(['selectattr', 'rejectattr'])}('{self.pick('ab')}'"
                    f"{self.pick(['', chr(44) + ' ' + repr('defined'), chr(44) + ' ' + repr('string')])}) | list)",
            lambda: f"({more('items')} | {self.pick(['batch', 'slice'])}({self.pick(['1', '2', '3', '2, 0'])}) | list)",
            lambda: f"({more('table')} | {self.pick(['list', 'dictsort', 'items | list'])})",
            lambda: f"({more('table')}).{self.pick(['keys', 'values', 'items'])}() | list",
            lambda: f"({more('items')} | reverse | list)",
            lambda: f"({more('text')} | list)",
            lambda: f"({more('items')} * {self.pick('012')})"])()

    def table(self, depth):
        more = lambda kind: self.expression(depth, kind)
        if depth > 4 or self.rng.random() < 0.5:
            return self.pick(["d", "d", "{}", "{'a': 1}"])
        return self.pick([
            lambda: "{" + ", ".join(f"{self.literal()}: {more(None)}"
                                    for _ in range(self.rng.randrange(3))) + "}",
            lambda: f"dict(a={more(None)}, b={more(None)})",
            lambda: f"dict({more('table')}, key={more(None)})",
            lambda: f"({more('table')}).copy()",
            lambda: f"({more('table')} if {more('truth')} else {more('table')})"])()

    def truth(self, depth):
        more = lambda kind: self.expression(depth, kind)
        if depth > 4:
            return self.pick(["true", "false", "a", "s", "xs"])
        return self.pick([
            lambda: f"({more(None)} {self.pick(['==', '!='])} {more(None)})",
            lambda: f"({more('number')} {self.pick(['<', '<=', '>', '>='])} {more('number')})",
            lambda: f"({more('text')} {self.pick(['<', '>=', 'in', 'not in'])} {more('text')})",
            lambda: f"(1 < {more('number')} <= {more('number')})",
            lambda: f"({more(None)} {self.pick(['in', 'not in'])} {more('items')})",
            lambda: f"({more('text')} in {more('table')})",
            lambda: f"({more(None)} is {self.pick(['', 'not '])}"
                    f"{self.pick(['defined', 'none', 'string', 'mapping', 'iterable', 'sequence', 'number', 'boolean', 'integer', 'float', 'true', 'false', 'undefined', 'callable', 'escaped', 'lower', 'upper'])})",
            lambda: f"({self.pick(['missing', 'a.zz', 'd.key', 'xs[9]', 'd.a.b'])} is {self.pick(['', 'not '])}defined)",
            lambda: f"(not {more(None)})",
            lambda: f"({more(None)} {self.pick(['and', 'or'])} {more(None)})",
            lambda: f"({more('text')}).{self.pick(['startswith', 'endswith'])}({more('text')})",
            lambda: f"({more('text')}).{self.pick([m for m in METHODS if m.startswith('is')])}()",
            lambda: self.pick(["loop.first", "loop.last"]) if self.loops else "true"])()

    def text_literal(self):
        text = self.literal()
        return text if text[0] in "'\"" else "'t'"

    def anything(self, depth=0):
        rng = self.rng
        if depth > 4:
            return self.pick(NAMES) if rng.random() < 0.6 else self.literal()
        kind = rng.randrange(24)
        if kind <= 3:
            return self.pick(NAMES)
        if kind <= 5:
            return self.literal()
        inner = self.expression(depth + 1)
        if kind <= 7:
            return f"({inner} {self.pick(BINARY)} {self.expression(depth + 1)})"
        if kind == 8:
            return f"{inner} {self.pick(BINARY)} {self.expression(depth + 1)}"
        if kind <= 12:
            return f"{inner} | {self.filter(depth)}" if rng.random() < 0.5 else (
                f"({inner} | {self.filter(depth)})")
        if kind == 13:
            return f"({inner} is {self.pick(['', 'not '])}{self.test(depth)})"
        if kind == 14:
            return f"{inner}.{self.pick(['a', 'b', 'key', 'items', 'content', '0', '1'] + LOOP)}"
        if kind == 15:
            return f"{inner}[{self.expression(depth + 1)}]"
        if kind == 16:
            # Not of a constant: jinja2's optimizer gives undefined values there for errors.
            return f"({inner}, s)[0]{self.slice(depth)}"
        if kind <= 18:
            return f"{inner}.{self.pick(METHODS)}{self.arguments(depth)}"
        if kind == 19:
            return f"({inner} if {self.expression(depth + 1)}" + (
                f" else {self.expression(depth + 1)})" if rng.random() < 0.8 else ")")
        if kind == 20:
            return "[" + ", ".join(self.expression(depth + 1) for _ in range(rng.randrange(4))) + "]"
        if kind == 21:
            return self.pick([f"loop.{self.pick(LOOP)}", f"{self.pick(['not', '-', '+'])} {inner}",
                              f"({inner}, {self.expression(depth + 1)})", f"({inner},)",
                              f"loop.cycle{self.arguments(depth)}", f"loop.changed({inner})"])
        if kind == 22:
            return self.pick([f"range({inner})", f"range(1, {self.pick('0123')})",
                              f"dict(a={inner})", f"namespace(a={inner})", f"m1{self.arguments(depth)}",
                              f"m2{self.arguments(depth)}", "caller()", "varargs", "kwargs",
                              f"raise_exception({inner})", "strftime_now('%d %B %Y')",
                              f"cycler({inner}).next()", "joiner()()", f"loop({inner})"])
        return ("{" + ", ".join(f"{self.literal()}: {self.expression(depth + 1)}"
                                for _ in range(rng.randrange(3))) + "}")

    def open(self, tag):
        return "{%" + self.pick(["", "", "-", "+"]) + f" {tag} " + self.pick(["", "", "-"]) + "%}"

    def data(self):
        return self.pick(["x", " ", "\n", "  \n  ", "text\n", "\n\n", " - ", "é\n", "}", "{ ", "\t",
                          "{# note #}", "{#- note -#}", "\n  {# note #}\n", "{% raw %}{{ a }}{% endraw %}",
                          "\r\n"])

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.pick([1, 1, 2, 2, 3])))

    def target(self):
        return self.pick(["a", "b", "item", "ns.a", "c", "missing"])

    def statement(self, depth=0):
        rng = self.rng
        kind = rng.randrange(20 if depth < 4 else 8)
        if kind <= 2:
            return self.data()
        if kind <= 6:
            return ("{{" + self.pick(["", "-"]) + f" {self.expression()} " + self.pick(["", "-"])
                    + "}}")
        if kind in (7, 8):
            if rng.random() < 0.1:
                return self.open(f"set a, b = {self.expression()}, {self.expression()}")
            if rng.random() < 0.1:
                return self.open(f"set {self.pick(['k, v', 'xs', '(a, b)'])} = {self.expression()}")
            return self.open(f"set {self.target()} = {self.expression()}")
        if kind == 9:
            return self.open("set a" + self.pick(["", " | upper", " | trim"])) + self.block(
                depth + 1) + self.open("endset")
        if kind in (10, 11):
            text = self.open(f"if {self.expression()}") + self.block(depth + 1)
            while rng.random() < 0.3:
                text += self.open(f"elif {self.expression()}") + self.block(depth + 1)
            if rng.random() < 0.5:
                text += self.open("else") + self.block(depth + 1)
            return text + self.open("endif")
        if kind <= 15:
            return self.loop(depth)
        if kind == 16:
            parameters = self.pick(["", "a", "a, b=1", "a=xs", "b, c='x'", "a, caller=none"])
            self.macro = True
            return (self.open(f"macro {self.pick(['m1', 'm2'])}({parameters})")
                    + self.block(depth + 1) + self.open("endmacro"))
        if kind == 17:
            return (self.open(f"call{self.pick(['', '(a)', '(k, v=2)'])} m1{self.arguments(2)}")
                    + self.block(depth + 1) + self.open("endcall"))
        if kind == 18:
            return self.open(f"with a = {self.expression()}, c = a") + self.block(
                depth + 1) + self.open("endwith")
        return self.pick([
            lambda: self.open("generation") + self.block(depth + 1) + self.open("endgeneration"),
            lambda: self.open(f"filter {self.pick(['upper', 'trim', 'title', 'indent(2)'])}")
            + self.block(depth + 1) + self.open("endfilter"),
            lambda: self.open(f"print {self.expression()}, {self.expression()}")])()

    def loop(self, depth):
        target = self.pick(["item", "item", "a", "b", "xs"])
        iterable = self.pick(["xs", "xs", "d", "d.items()", "range(3)", "s", "[1, 2, 3]",
                              "d | items", "xs | map('string')", self.expression(2, "items")])
        if self.rng.random() < 0.2:
            target, iterable = "k, v", self.pick(["d.items()", "d | items", "d | dictsort"])
        condition = f" if {self.expression(3)}" if self.rng.random() < 0.25 else ""
        recursive = " recursive" if self.rng.random() < 0.1 else ""
        text = self.open(f"for {target} in {iterable}{condition}{recursive}")
        self.loops += 1
        text += self.block(depth + 1)
        if self.rng.random() < 0.2:
            text += self.open(f"if {self.expression(2)}") + self.open(
                self.pick(["break", "continue"])) + self.open("endif") + self.data()
        self.loops -= 1
        if self.rng.random() < 0.25:
            text += self.open("else") + self.block(depth + 1)
        return text + self.open("endfor")

    def case(self):
        head = "{% set ns = namespace(a=1) %}" if self.rng.random() < 0.7 else ""
        template = head + "".join(self.statement() for _ in range(self.rng.randrange(1, 6)))
        context = {"a": self.value(), "b": self.value(), "s": self.pick(TEXTS), "n": 3,
                   "xs": [self.value(1) for _ in range(self.rng.randrange(5))],
                   "d": {key: self.value(1) for key in self.rng.sample(
                       ["a", "b", "key", "Z", "é"], self.rng.randrange(5))}}
        return template, context


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("renderer")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    options = parser.parse_args()
    ours = template_oracle.Ours(options.renderer)
    counts = collections.Counter()
    for number in range(options.cases):
        template, context = Generator(random.Random(options.seed * 1_000_003 + number)).case()
        expected = template_oracle.render(template, context)
        if "text" in expected and ADDRESS.search(expected["text"]):
            expected = {"error": "prints an address"}
        got = ours.render(template, context)
        if re.match("NameError: name '(nan|inf)'", expected.get("error", "")):
            counts["a fault of jinja2: constant that is no number"] += 1
            continue
        if "text" in expected and any(known in got.get("error", "") for known in OURS_ALONE):
            counts["refused by us alone, as known"] += 1
            continue
        if template_oracle.same(expected, got):
            counts["both refuse" if "error" in expected else "identical"] += 1
            continue
        counts["different"] += 1
        if counts["different"] <= options.show:
            print(f"--- case {number}\n{template!r}\n{context!r}\n  jinja2: {expected}\n"
                  f"  ours:   {got}")
    print(f"seed {options.seed}: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
