#!/usr/bin/env python3
"""Writes manual pages from what programs say with --help: generate_man_pages.py DIR PENSTOCK PENSTOCKD.

penstock(1), one page for each of its commands, penstock-submit(1), and penstockd(8)."""
import pathlib
import re
import subprocess
import sys

# What the sections of CLI11's help are called in manual pages.
TITLES = {"Positionals": "ARGUMENTS", "Options": "OPTIONS", "Subcommands": "COMMANDS"}


def escape(text):
    """Text as roff prints it: no requests, no escapes, and hyphens that can be searched for."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def entries(lines):
    """[name, description] of a section's lines. A name that is wider than its column has its description on
    the line below."""
    found = []
    for line in lines:
        if re.match(r"  \S", line):
            name, _, description = line.strip().partition("  ")
            found.append([name, description.strip()])
        else:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


class Help:
    """What a program says with --help, by its parts."""

    def __init__(self, *command):
        text = subprocess.run([*command, "--help"], check=True, capture_output=True, text=True).stdout
        head, *blocks = [block.strip("\n").split("\n") for block in re.split(r"\n\n+", text.strip("\n"))]
        self.about = " ".join(line for line in head if not line.startswith("Usage: "))
        self.usage = next(line for line in head if line.startswith("Usage: "))[len("Usage: "):]
        self.sections = {}
        notes = []
        for block in blocks:
            title = block[0].rstrip(":")
            if title in TITLES:
                self.sections[title] = entries(block[1:])
            else:
                notes.append("\n".join(block))
        self.notes = "\n\n".join(notes)


def entry_lines(lines):
    for entry, description in lines:
        yield from (".TP", ".B " + escape(entry), escape(description) or "\\&")


def page(name, section, said, see_also, nested=()):
    """`nested`: what a command's own commands say."""
    about = said.about.removeprefix(name + ": ")
    out = [f'.TH "{name.upper()}" "{section}" "" "Penstock" "Penstock"', ".SH NAME",
           escape(f"{name} - {about[:1].lower() + about[1:]}"), ".SH SYNOPSIS", ".nf",
           escape(said.usage), ".fi"]
    for title, lines in said.sections.items():
        out += [f".SH {TITLES[title]}", *entry_lines(lines)]
    for other in nested:
        out += [".SH " + escape(other.usage.split(" [")[0].upper()), ".nf", escape(other.usage), ".fi", ".PP",
                escape(other.about), *entry_lines(e for lines in other.sections.values() for e in lines)]
    if said.notes:
        out += [".SH NOTES", ".nf", escape(said.notes), ".fi"]
    out += [".SH SEE ALSO", escape(", ".join(see_also))]
    return "\n".join(out) + "\n"


def main():
    directory, penstock, penstockd = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    said = Help(penstock)
    commands = [name for name, _ in said.sections["Subcommands"]]
    pages = {
        "man1/penstock.1": page("penstock", 1, said,
                                [*(f"penstock-{command}(1)" for command in commands), "penstockd(8)"]),
        "man8/penstockd.8": page("penstockd", 8, Help(penstockd), ["penstock(1)"]),
    }
    for command in commands:
        said = Help(penstock, command)
        nested = [Help(penstock, command, name) for name, _ in said.sections.get("Subcommands", [])]
        pages[f"man1/penstock-{command}.1"] = page(f"penstock-{command}", 1, said, ["penstock(1)"], nested)
    for name, text in pages.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
