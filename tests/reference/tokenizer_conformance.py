#!/usr/bin/env python3
"""Compares Penstock's tokenizers with Hugging Face tokenizers: ids, spans and decoded text.

    tokenizer_conformance.py --bench build/ci/bin/penstock_tokenizer_bench \\
        [--tokenizers DIRECTORY]... [--synthetic] [--corpus DIRECTORY] [--fuzz COUNT] [--seed N]

A DIRECTORY of tokenizers has folders with tokenizer.json or tokenizer.json.xz, or is one such
folder. --synthetic adds those of synthetic_tokenizers.py. The corpus is every file below its
directory that is UTF-8. Needs PyPI tokenizers (0.23.3 was used) and numpy. Prints one line a
tokenizer and exits with 1 if anything differs; the first differences are shown.
"""
import argparse
import json
import lzma
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import unicodedata

import numpy as np
from tokenizers import Tokenizer

import synthetic_tokenizers

MODES = {  # options of the bench, add_special_tokens, encode_special_tokens
    "text": ([], False, False),
    "with post-processor": (["add-special"], True, False),
    "special tokens as text": (["plain-special"], False, True),
}


class Penstock:
    """One run of penstock_tokenizer_bench pipe."""

    def __init__(self, bench, directory, options):
        self.process = subprocess.Popen([bench, "pipe", directory, *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answers(self, texts):
        def write():
            for text in texts:
                self.process.stdin.write(struct.pack("<I", len(text)) + text)
            self.process.stdin.flush()

        writer = threading.Thread(target=write)
        writer.start()
        for _ in texts:
            count = self.number()
            if count < 0:
                yield None
                continue
            tokens = np.frombuffer(self.process.stdout.read(12 * count), "<i4").reshape(-1, 3)
            yield tokens, self.process.stdout.read(self.number())
        writer.join()

    def number(self):
        return struct.unpack("<i", self.process.stdout.read(4))[0]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Comparison:
    def __init__(self, name):
        self.name, self.texts, self.bytes, self.tokens, self.different = name, 0, 0, 0, 0

    def check(self, text, encoded, answer, reference):
        tokens, decoded = answer
        expected = np.array(encoded.ids, dtype=np.int32)
        spans = np.array(encoded.offsets, dtype=np.int64).reshape(-1, 2)
        raw = text.encode()
        if len(raw) != len(text):  # bytes before each character
            starts = np.flatnonzero((np.frombuffer(raw, np.uint8) & 0xC0) != 0x80)
            spans = np.append(starts, len(raw))[spans]
        self.texts += 1
        self.bytes += len(raw)
        self.tokens += len(expected)
        problem = None
        if not np.array_equal(expected, tokens[:, 0]):
            problem = "ids", expected.tolist(), tokens[:, 0].tolist()
        elif not np.array_equal(spans, tokens[:, 1:]):
            problem = "spans", spans.tolist(), tokens[:, 1:].tolist()
        elif reference.decode(encoded.ids, skip_special_tokens=False).encode() != decoded:
            problem = "text", reference.decode(encoded.ids, skip_special_tokens=False), decoded
        if problem:
            self.different += 1
            if self.different <= 3:
                self.show(text, *problem)

    def show(self, text, what, expected, found):
        print(f"  {self.name}: {what} differ for {text[:200]!r}")
        if isinstance(expected, list):
            at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b),
                      min(len(expected), len(found)))
            print(f"    from token {at}: expected {expected[at:at + 8]}, found {found[at:at + 8]}")
        else:
            print(f"    expected {expected[:200]!r}, found {found[:200]!r}")

    def result(self):
        return (f"{self.name}: {self.texts} texts, {self.bytes} bytes, {self.tokens} tokens, "
                f"{self.different} different")


def batches(texts, size=2000, most_bytes=4_000_000):
    batch, total = [], 0
    for text in texts:
        batch.append(text)
        total += len(text)
        if len(batch) == size or total > most_bytes:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def compare(bench, directory, name, texts, mode):
    options, add_special, encode_special = MODES[mode]
    reference = Tokenizer.from_file(str(pathlib.Path(directory, "tokenizer.json")))
    reference.no_truncation()
    reference.no_padding()
    reference.encode_special_tokens = encode_special
    penstock = Penstock(bench, directory, options)
    comparison = Comparison(f"{name}, {mode}")
    for batch in batches(texts):
        encoded = reference.encode_batch(batch, add_special_tokens=add_special)
        raw = [text.encode() for text in batch]
        for text, expected, answer in zip(batch, encoded, penstock.answers(raw)):
            if answer is None:
                comparison.different += 1
                print(f"  {comparison.name}: refused {text[:200]!r}")
                continue
            comparison.check(text, expected, answer, reference)
    if penstock.close() != 0:
        comparison.different += 1
    print(comparison.result(), flush=True)
    return comparison.different


def compare_invalid(bench, directory, name, count, seed):
    """Bytes that are not UTF-8 are refused, and nothing else is."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        text = bytearray(fuzz_text(rng, []).encode())
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(text) + 1)
            text[at:at + rng.randrange(2)] = bytes([rng.choice([rng.randrange(128, 256), 0xED])])
        texts.append(bytes(text))
    penstock = Penstock(bench, directory, [])
    wrong = 0
    for text, answer in zip(texts, penstock.answers(texts)):
        try:
            text.decode()
            valid = True
        except UnicodeDecodeError:
            valid = False
        wrong += valid != (answer is not None)
    wrong += penstock.close() != 0
    print(f"{name}, bytes that may be no UTF-8: {count} texts, {wrong} wrong", flush=True)
    return wrong


SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
MARKS = [c for c in range(0x300, 0x1F000) if unicodedata.category(chr(c))[0] == "M"]
DECOMPOSING = [c for c in range(0xA0, 0x30000) if unicodedata.decomposition(chr(c))]
SPACES = [*"     \n\t\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
          "\u202f", "\u3000", "\u180e", "\u200b", "\ufeff"]
ASCII = [chr(c) for c in range(32, 127)]
WORDS = ("the The THE don't DON'T we'll it's IT'S o'Reilly I'ſ naïve Straße résumé Ünï İstanbul "
         "ǅungla ﬁne ﬆ 1234567 3.14 1/2 ½ Ⅷ ٣٤ x² camelCase snake_case C++ foo() // # a@b.c "
         "https://x.org/?q=1&r=2 日本語 テスト 中文字符 한국어 각 हिन्दी தமிழ் ไทย العربية עברית "
         "ελληνικά Русский Ελλάς ქართული հայերեն ភាសាខ្មែរ ᠮᠣᠩᠭᠣᠯ 𝒜𝓁𝓁 𐍈 "
         "👍 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ☺️ e\u0301 a\u0328\u0301 \u1100\u1161\u11a8").split(" ")


def fuzz_piece(rng, special):
    kind = rng.randrange(16)
    if kind < 4:
        return rng.choice(WORDS)
    if kind < 6:
        return "".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 4)))
    if kind == 6:
        return "".join(rng.choice(ASCII) for _ in range(rng.randrange(1, 8)))
    if kind == 7:
        return rng.choice("aZ0 -\n'é日") * rng.choice([1, 2, 3, 7, 30, 100])
    if kind == 8:
        return chr(rng.choice(SCALARS))
    if kind == 9:
        block = rng.randrange(0, 0x30000, 64)
        return "".join(chr(c) for c in (block + rng.randrange(64) for _ in range(3))
                       if not 0xD800 <= c < 0xE000)
    if kind == 10:
        return "".join(chr(rng.choice(MARKS)) for _ in range(rng.randrange(1, 5)))
    if kind == 11:
        return chr(rng.choice(DECOMPOSING)) + chr(rng.choice(MARKS)) * rng.randrange(2)
    if kind == 12:
        return chr(rng.randrange(0x80)) + chr(rng.randrange(0x100))
    if kind == 13:
        return chr(rng.randrange(0x1100, 0x1200)) + chr(rng.randrange(0xAC00, 0xD7A4))
    if kind == 14 and special:
        token = rng.choice(special)
        return token if rng.random() < 0.8 else token[:rng.randrange(len(token) + 1)]
    return rng.choice("'s 't 're 'VE 'll 'D ' \" ( ) _ . , ; : ! ? - + = < > | / \\ ~ $ €".split())


def fuzz_text(rng, special):
    glue = rng.choice(["", "", " ", " "])
    return glue.join(fuzz_piece(rng, special) for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13])))


def fuzz(count, seed, directory):
    data = json.loads(pathlib.Path(directory, "tokenizer.json").read_text())
    special = [token["content"] for token in data["added_tokens"]]
    rng = random.Random(seed)
    for _ in range(count):
        yield fuzz_text(rng, special)


def corpus(directory):
    for path in sorted(pathlib.Path(directory).rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        for begin in range(0, len(text), 200_000):
            yield text[begin:begin + 200_000]


def long_words(megabytes):
    for unit in ("a", "ab", "日本", "é", " ", "1", "e\u0301"):
        yield unit * (megabytes * 1_000_000 // len(unit.encode()))


def tokenizer_directories(arguments, scratch):
    """(name, folder with a tokenizer.json that is not compressed)"""
    for given in map(pathlib.Path, arguments.tokenizers):
        folders = [given] if list(given.glob("tokenizer.json*")) else sorted(given.iterdir())
        for folder in filter(pathlib.Path.is_dir, folders):
            packed = folder / "tokenizer.json.xz"
            if not packed.exists():
                yield folder.name, str(folder)
                continue
            target = scratch / folder.name
            target.mkdir()
            (target / "tokenizer.json").write_bytes(lzma.decompress(packed.read_bytes()))
            yield folder.name, str(target)
    if arguments.synthetic:
        for name, data in synthetic_tokenizers.all_tokenizers():
            target = scratch / ("synthetic_" + name)
            target.mkdir()
            (target / "tokenizer.json").write_text(json.dumps(data))
            yield target.name, str(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tokenizers", action="append", default=[])
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--corpus")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--long-word-mb", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, directory in tokenizer_directories(arguments, pathlib.Path(scratch)):
            def check(what, texts, mode):
                return compare(arguments.bench, directory, f"{name}, {what}", texts, mode)

            if arguments.corpus:
                wrong += check("corpus", corpus(arguments.corpus), "with post-processor")
            if arguments.fuzz:
                for i, mode in enumerate(MODES):
                    texts = fuzz(arguments.fuzz // len(MODES), arguments.seed + i, directory)
                    wrong += check("fuzz", texts, mode)
                wrong += compare_invalid(arguments.bench, directory, name, arguments.fuzz // 10,
                                         arguments.seed)
            if arguments.long_word_mb:
                wrong += check("long words", long_words(arguments.long_word_mb), "text")
    print("identical" if wrong == 0 else f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
