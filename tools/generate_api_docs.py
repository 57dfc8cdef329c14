#!/usr/bin/env python3
"""Writes docs/api.md: services, messages and enums of penstock.v1 with the comments of the .proto files.

  tools/generate_api_docs.py           writes it
  tools/generate_api_docs.py --check   fails if it is not what would be written"""
import argparse
import sys

sys.dont_write_bytecode = True
import api_descriptors  # noqa: E402
from api_descriptors import ROOT  # noqa: E402

DOC = ROOT / "docs/api.md"
HEAD = """# API reference

Written by `tools/generate_api_docs.py` from `proto/penstock/v1/`; change the comments there, not this file.
The package is `penstock.v1`. [errors.md](errors.md) has the reasons of errors, [clients.md](clients.md) how to call
it from other languages.
"""
# Numbers of a path in SourceCodeInfo, which are those of the fields in descriptor.proto.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_SYNTAX = 4, 5, 6, 12
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
ENUM_VALUE, SERVICE_METHOD = 2, 2


class Comments:
    def __init__(self, file):
        self._by_path = {tuple(l.path): l for l in file.source_code_info.location}

    def of(self, *path):
        """What stands above it, else behind it, as one paragraph."""
        location = self._by_path.get(path)
        if location is None:
            return ""
        return " ".join((location.leading_comments or location.trailing_comments).split())

    def of_file(self):
        """What stands at its head, lists left as they are."""
        location = self._by_path.get((FILE_SYNTAX,))
        text = location.leading_comments if location else ""
        return "\n".join(line[1:].rstrip() for line in text.splitlines()).strip()


def anchor(name):
    """How the heading of a type is called in links."""
    return name.replace(".", "").lower()


class Reference:
    def __init__(self, files):
        self._files = files
        self._types = {}
        self._lines = [HEAD]
        for file in files:
            for message in file.message_type:
                self._find(message, message.name)
            for enum in file.enum_type:
                self._types[f"{file.package}.{enum.name}"] = enum.name

    def _find(self, message, name):
        self._types[f"penstock.v1.{name}"] = name
        for nested in message.nested_type:
            self._find(nested, f"{name}.{nested.name}")

    def _type(self, name):
        """A type as a link, if it has a heading here."""
        known = self._types.get(name)
        return f"[{known}](#{anchor(known)})" if known else f"`{name}`"

    def _field_type(self, message, field):
        entry = next((n for n in message.nested_type if n.options.map_entry
                      and field.type_name.endswith(f".{message.name}.{n.name}")), None)
        if entry is not None:
            key, value = (self._type(api_descriptors.type_name(f)) for f in entry.field)
            return f"map of {key} to {value}"
        text = self._type(api_descriptors.type_name(field))
        if api_descriptors.is_repeated(field):
            text = "repeated " + text
        return "optional " + text if field.proto3_optional else text

    def _table(self, head, rows):
        self._lines.append(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for row in rows:
            self._lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        self._lines.append("")

    def _message(self, message, name, comments, *path):
        if message.options.map_entry:
            return
        self._lines.append(f"### {name}\n")
        if comments.of(*path):
            self._lines.append(comments.of(*path) + "\n")
        rows = []
        for i, field in enumerate(message.field):
            choice = api_descriptors.oneof_of(message, field)
            said = comments.of(*path, MESSAGE_FIELD, i)
            if choice:
                said = f"One of `{choice}`. {said}".strip()
            rows.append((str(field.number), f"`{field.name}`", self._field_type(message, field), said))
        if rows:
            self._table(("", "field", "type", ""), rows)
        else:
            self._lines.append("Has no fields.\n")
        for i, nested in enumerate(message.nested_type):
            self._message(nested, f"{name}.{nested.name}", comments, *path, MESSAGE_NESTED, i)

    def _enum(self, enum, comments, *path):
        self._lines.append(f"### {enum.name}\n")
        if comments.of(*path):
            self._lines.append(comments.of(*path) + "\n")
        self._table(("", "value", ""), [(str(v.number), f"`{v.name}`", comments.of(*path, ENUM_VALUE, i))
                                        for i, v in enumerate(enum.value)])

    def _service(self, service, comments, *path):
        self._lines.append(f"## {service.name}\n")
        if comments.of(*path):
            self._lines.append(comments.of(*path) + "\n")
        rows = []
        for i, method in enumerate(service.method):
            takes = ("stream of " if method.client_streaming else "") + self._type(method.input_type[1:])
            gives = ("stream of " if method.server_streaming else "") + self._type(method.output_type[1:])
            rows.append((f"`{method.name}`", takes, gives, comments.of(*path, SERVICE_METHOD, i)))
        self._table(("call", "takes", "gives", ""), rows)

    def text(self):
        for file in self._files:
            if Comments(file).of_file() and file.service:
                self._lines.append(Comments(file).of_file() + "\n")
            for i, service in enumerate(file.service):
                self._service(service, Comments(file), FILE_SERVICE, i)
        for file in self._files:
            comments = Comments(file)
            self._lines.append(f"## {file.name.rpartition('/')[2]}\n")
            if comments.of_file() and not file.service:
                self._lines.append(comments.of_file() + "\n")
            for i, message in enumerate(file.message_type):
                self._message(message, message.name, comments, FILE_MESSAGE, i)
            for i, enum in enumerate(file.enum_type):
                self._enum(enum, comments, FILE_ENUM, i)
        return "\n".join(self._lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    options = parser.parse_args()
    text = Reference(api_descriptors.load()).text()
    if not options.check:
        DOC.write_text(text)
    elif not DOC.exists() or DOC.read_text() != text:
        print("docs/api.md is not what the .proto files say: run tools/generate_api_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
