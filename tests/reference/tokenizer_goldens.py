#!/usr/bin/env python3
"""Writes tests/testdata/tokenizers: small tokenizers, and what Hugging Face's library makes of text.

    tokenizer_goldens.py tests/testdata/tokenizers

Needs PyPI tokenizers (0.23.3 was used). A file has a tokenizer.json under "tokenizer" and under
"cases" a list of [mode, text, ids, spans, decoded text]. Mode 1 adds the post-processor's tokens,
mode 2 takes special tokens as text. Spans are begin, end, begin ... in bytes.
"""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

import synthetic_tokenizers
from tokenizer_conformance import fuzz_text

TEXTS = ["", " ", "Hello world! It's the year 2024; we'll see.", "  two  spaces\n\n\tand tabs \r\n end ",
         "Straße, Ĳssel, e\u0301a\u0328\u0301 ﬁ½ǅ İ\u0307", "日本語のテキスト、한국어 \u1112\u1161\u11ab नमस्ते",
         "a\u0315\u0300\u05ae b\u0327\u0301 \u0344 \u212b\u2126", "👩\u200d👩\u200d👧 🇩🇪☺\ufe0f𝒜\U0010ffff\u0000\u0085",
         "x" * 70 + " " * 20 + "🦊" * 5, "foo(bar)->baz[0]='it''s'; // ÉTÉ été 3.14e10 ٣٤"]


def texts(data, seed):
    special = [token["content"] for token in data["added_tokens"]] or ["<s>"]
    rng = random.Random(seed)
    yield from TEXTS
    yield "word <N>" + " ".join(special) + " the quick" + "  ".join(reversed(special)) + "words word"
    yield from (fuzz_text(rng, special)[:120] for _ in range(5))


def bytes_before(text):
    counts = [0]
    for character in text:
        counts.append(counts[-1] + len(character.encode()))
    return counts


def cases(data, seed):
    tokenizer = Tokenizer.from_str(json.dumps(data))
    for number, text in enumerate(texts(data, seed)):
        mode = number % 3
        tokenizer.encode_special_tokens = mode == 2
        encoded = tokenizer.encode(text, add_special_tokens=mode == 1)
        before = bytes_before(text)
        spans = [before[place] for span in encoded.offsets for place in span]
        yield [mode, text, encoded.ids, spans,
               tokenizer.decode(encoded.ids, skip_special_tokens=False)]


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for seed, (name, data) in enumerate(synthetic_tokenizers.all_tokenizers()):
        lines = ",\n".join(compact(case) for case in cases(data, seed))
        text = f'{{"tokenizer":{compact(data)},\n"cases":[\n{lines}]}}\n'
        (folder / (name + ".json")).write_text(text)


if __name__ == "__main__":
    main()
