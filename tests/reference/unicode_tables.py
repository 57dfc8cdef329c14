#!/usr/bin/env python3
"""Writes engine/tokenizer/unicode_tables.cc: how Hugging Face tokenizers classifies characters.

    unicode_tables.py > engine/tokenizer/unicode_tables.cc

The reference library mixes Unicode versions: its Oniguruma knows 16, its normalization 9, its
punctuation 8, and Rust's own tables are newer still. Ids are only equal if a character is a letter
here exactly when it is one there, so the tables are asked from the library itself: PyPI tokenizers
0.23.3. Everything but the general category is stored as the difference from a rule that
engine/tokenizer/unicode.cc applies.
"""
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So "
              "Zs Zl Zp Cc Cf Co Cs").split()
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERY_CHARACTER = "".join(map(chr, SCALARS))


def members(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in splitter.pre_tokenize_str(EVERY_CHARACTER) for c in piece}


def splits(pre_tokenizer, text):
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def ranges(code_points):
    result = []
    for c in sorted(code_points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def categories():
    table = ["Cn"] * 0x110000
    for name in CATEGORIES[1:]:
        for c in members(r"\p{%s}" % name) if name != "Cs" else range(0xD800, 0xE000):
            table[c] = name
    return table


def inert_under_normalization(table):
    """What newer data would reorder or decompose and the library leaves alone."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()

    def reorders(c):
        text = "a\u0345" + chr(c) + "\u0334"  # classes 240 and 1 around it
        return nfd.normalize_str(text) != "a\u0345" + chr(c) + "\u0334"

    inert = set()
    for c in SCALARS:
        unknown = unicodedata.category(chr(c)) == "Cn" and table[c] != "Cn"
        moves = unicodedata.combining(chr(c)) != 0 and not reorders(c)
        decomposes = (unicodedata.normalize("NFKD", chr(c)) != chr(c)
                      and nfkd.normalize_str(chr(c)) == chr(c))
        if unknown or moves or decomposes:
            inert.add(c)
    return inert


def print_ranges(name, comment, code_points):
    print(f"// {comment}\nconst CodePointRange {name}[] = {{")
    print_entries([f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(code_points)])
    print(f"}};\nconst int64_t {name}Count = std::size({name});\n")


def print_entries(entries):
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 100:
            print(line)
            line = "   "
        line += f" {entry},"
    print(line)


def main():
    table = categories()

    def having(prefixes):
        return {c for c in SCALARS if table[c].startswith(tuple(prefixes))}

    whitespace = pre_tokenizers.Whitespace()
    word = {c for c in SCALARS if splits(whitespace, "a" + chr(c)) == ["a" + chr(c)]}
    twice = [(c, 2 * chr(c)) for c in SCALARS]
    numeric = {c for c, text in twice if len(splits(pre_tokenizers.Digits(True), text)) > 1}
    punctuation = {c for c, text in twice if len(splits(pre_tokenizers.Punctuation(), text)) > 1}
    accents = normalizers.StripAccents()
    mark = {c for c in SCALARS if accents.normalize_str("a" + chr(c)) == "a"}
    lowercase = normalizers.Lowercase()
    lower = {c: lowercase.normalize_str(chr(c)) for c in SCALARS}
    ascii_punctuation = set(map(ord, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))

    print("""// Made by tests/reference/unicode_tables.py; do not edit.
// clang-format off
#include "engine/tokenizer/unicode_tables.h"

#include <iterator>

namespace penstock {

// Where a run of characters of one general category starts: code point * 32 + category.
const uint32_t kCategoryRuns[] = {""")
    runs = [c for c in range(0x110000) if c == 0 or table[c] != table[c - 1]]
    print_entries([f"0x{c * 32 + CATEGORIES.index(table[c]):X}" for c in runs])
    print("};\nconst int64_t kCategoryRunsCount = std::size(kCategoryRuns);\n")
    print_ranges("kWordExceptions", "\\w of Rust's regex, against L, M, Nd, Nl and Pc.",
                 word ^ having(["L", "M", "Nd", "Nl", "Pc"]))
    print_ranges("kNumericExceptions", "char::is_numeric of Rust, against N.",
                 numeric ^ having("N"))
    print_ranges("kPunctuationExceptions", "Punctuation, against P and ASCII punctuation.",
                 punctuation ^ (having("P") | ascii_punctuation))
    print_ranges("kMarkExceptions", "What StripAccents removes, against M.", mark ^ having("M"))
    print_ranges("kNormalizationInert", "Left alone by NFC, NFD, NFKC and NFKD.",
                 inert_under_normalization(table))
    print("// Lower case of one character where Unicode 14 has none or another.")
    print("const LowercaseMapping kLowercaseExceptions[] = {")
    print_entries([f"{{0x{c:X}, 0x{ord(lower[c]):X}}}" for c in SCALARS
                   if lower[c] != chr(c).lower() and len(lower[c]) == 1])
    print("};\nconst int64_t kLowercaseExceptionsCount = std::size(kLowercaseExceptions);\n")
    print("}  // namespace penstock")


if __name__ == "__main__":
    main()
