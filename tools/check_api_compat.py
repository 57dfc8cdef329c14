#!/usr/bin/env python3
"""Holds the API to what proto/api_lock.txt says of the last release.

  tools/check_api_compat.py            fails if something of the lock is gone or different
  tools/check_api_compat.py --update   records what has been added since; at every release

The lock has a line for each message field (number, name, type, choice), enum value and call of penstock.v1,
each reserved number and name, each error reason, and each exit code of `penstock` and each of its commands that docs/cli.md
lists. What
`penstock -o json` prints are these messages as proto3 JSON, whose keys are the names of the fields.
Additions pass. Anything else breaks a client: give the new thing a new name or number instead. Where
something must go all the same, replace its line in the lock by hand, a field's by "reserved NUMBER" and
"reserved NAME", so that a reviewer sees it and nobody uses them again."""
import argparse
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import api_descriptors  # noqa: E402
from api_descriptors import ROOT  # noqa: E402

LOCK = ROOT / "proto/api_lock.txt"


def message_lines(message, scope):
    name = f"{scope}.{message.name}"
    for field in message.field:
        words = [f"message {name} field {field.number} {field.name}"]
        if api_descriptors.is_repeated(field):
            words.append("repeated")
        if field.proto3_optional:
            words.append("optional")
        words.append(api_descriptors.type_name(field))
        choice = api_descriptors.oneof_of(message, field)
        yield " ".join(words + ([f"oneof {choice}"] if choice else []))
    for reserved in message.reserved_range:
        for number in range(reserved.start, reserved.end):
            yield f"message {name} reserved {number}"
    for reserved in message.reserved_name:
        yield f"message {name} reserved {reserved}"
    for nested in message.nested_type:
        yield from message_lines(nested, name)
    for nested in message.enum_type:
        yield from enum_lines(nested, name)


def enum_lines(enum, scope):
    for value in enum.value:
        yield f"enum {scope}.{enum.name} value {value.number} {value.name}"
    for reserved in enum.reserved_range:
        for number in range(reserved.start, reserved.end + 1):
            yield f"enum {scope}.{enum.name} reserved {number}"
    for reserved in enum.reserved_name:
        yield f"enum {scope}.{enum.name} reserved {reserved}"


def service_lines(service, scope):
    for method in service.method:
        sends = "stream " if method.client_streaming else ""
        answers = "stream " if method.server_streaming else ""
        yield (f"service {scope}.{service.name} rpc {method.name} ({sends}{method.input_type[1:]}) "
               f"returns ({answers}{method.output_type[1:]})")


def proto_lines(proto_directory):
    for file in api_descriptors.load(proto_directory):
        for message in file.message_type:
            yield from message_lines(message, file.package)
        for enum in file.enum_type:
            yield from enum_lines(enum, file.package)
        for service in file.service:
            yield from service_lines(service, file.package)


def program_lines(root):
    for header in ("engine/base/status.h", "server/reasons.h"):
        for reason in re.findall(r'std::string_view k\w+ =\s+"([A-Z_]+)"', (root / header).read_text()):
            yield f"reason {reason}"
    for name, code in re.findall(r"^  k(\w+) = (\d+),", (root / "client/exit_code.h").read_text(), re.M):
        yield f"exit {code} {name}"
    for row in re.findall(r"^\| (`[a-z].*?) \| ", (root / "docs/cli.md").read_text(), re.M):
        for command in re.findall(r"`([a-z-]+)", row):
            yield f"command {command}"


def read_lock(path):
    lines = path.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def problem_of(line, now):
    """What has become of a line of the lock that is there no more."""
    kind = line.split()
    if kind[0] == "message" and kind[2] == "field":
        for other in now:
            words = other.split()
            if words[:3] == kind[:3] and words[3] == kind[3]:
                return f"is now: {other}"
            if words[:3] == kind[:3] and words[4] == kind[4]:
                return f"has another number: {other}"
    if kind[0] == "enum" and kind[2] == "value":
        for other in now:
            words = other.split()
            if words[:3] == kind[:3] and kind[3:] != words[3:] and (
                    words[3] == kind[3] or words[4] == kind[4]):
                return f"is now: {other}"
    if kind[0] == "service":
        for other in now:
            if other.split()[:4] == kind[:4]:
                return f"is now: {other}"
    return "is gone"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="record additions")
    parser.add_argument("--proto-directory", type=pathlib.Path, default=ROOT / "proto")
    parser.add_argument("--lock", type=pathlib.Path, default=LOCK)
    options = parser.parse_args()
    now = sorted(set([*proto_lines(options.proto_directory), *program_lines(ROOT)]), key=sort_key)
    locked = read_lock(options.lock) if options.lock.exists() else []
    missing = [line for line in locked if line not in set(now)]
    for line in missing:
        print(f"{line}\n    {problem_of(line, now)}")
    if missing:
        print(f"{len(missing)} things that clients rely on have changed. {options.lock.name} says what to do: "
              "see the head of tools/check_api_compat.py")
        return 1
    added = len(set(now) - set(locked))
    if options.update:
        options.lock.write_text(
            "# What clients of the last release rely on. Written by tools/check_api_compat.py --update, which\n"
            "# says what the lines are; lines are taken out by hand only.\n" + "\n".join(now) + "\n")
        print(f"{added} additions recorded")
    else:
        print("API compatible" + (f"; {added} additions since the lock" if added else ""))
    return 0


def sort_key(line):
    """Numbers by value, so that an addition to a message is a line at its end."""
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in line.split()]


if __name__ == "__main__":
    sys.exit(main())
