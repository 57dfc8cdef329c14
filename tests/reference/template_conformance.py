#!/usr/bin/env python3
"""Compares our rendering of real chat templates with jinja2's.

  tests/reference/template_conformance.py build/ci/bin/penstock_template_render PATH...

PATH: a .jinja file, a tokenizer_config.json, or a folder with such files at any depth. Each
template is rendered with every conversation of template_conversations.py. Prints what differs and
the counts; exit 1 if anything does.
"""
import argparse
import collections
import json
import pathlib
import sys

import template_conversations
import template_oracle


def templates_of(path):
    path = pathlib.Path(path)
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            if child.suffix == ".jinja" or child.name == "tokenizer_config.json":
                yield from templates_of(child)
    elif path.name.endswith(".json"):
        found = json.loads(path.read_text()).get("chat_template")
        for entry in found if isinstance(found, list) else []:
            yield f"{path}:{entry['name']}", entry["template"]
        if isinstance(found, str):
            yield str(path), found
    else:
        yield str(path), path.read_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("renderer")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    options = parser.parse_args()
    ours = template_oracle.Ours(options.renderer)
    counts, shown = collections.Counter(), 0
    for path in options.paths:
        for name, template in templates_of(path):
            counts["templates"] += 1
            for conversation, context in template_conversations.contexts():
                expected = template_oracle.render(template, context)
                got = ours.render(template, context)
                if not template_oracle.same(expected, got):
                    kind = "different"
                elif "error" in expected:
                    kind = "both refuse"
                elif expected["generation"] != got["generation"]:
                    kind = "same text, other spans"
                else:
                    kind = "identical"
                counts[kind] += 1
                if kind in ("different", "same text, other spans") and shown < options.show:
                    shown += 1
                    print(f"--- {name}: {conversation}: {kind}\n{expected}\n{got}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
