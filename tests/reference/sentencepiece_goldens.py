#!/usr/bin/env python3
"""Writes tests/testdata/sentencepiece: small models, and what the sentencepiece library makes of it.

    sentencepiece_goldens.py tests/testdata/sentencepiece

Needs PyPI sentencepiece (0.2.1 was used), tokenizers and numpy. NAME.model is a model and NAME.json
a list of [text, ids, spans, decoded text]; spans are begin, end, begin ... in bytes, with ends of
-1 where sentencepiece_conformance.py does not compare them. The decoded text is null where it has
unknown pieces.
"""
import json
import pathlib
import random
import sys

import sentencepiece

import sentencepiece_conformance as conformance
import sentencepiece_models
from tokenizer_conformance import fuzz_text
from tokenizer_goldens import TEXTS

MORE = ["the quick brown fox", " the  quick   fox ", "▁▁a▁ b", "<|user|><|user<s></s><unk><ctrl>",
        "aaaaaaaaa      \n\n\n\nbrownbrown xyz", "don't ﬁne １２ ㌔ ① Ａ\u200b\u00ad \u3000 x\t\ty",
        "<0x41><0xE6>日本語日 テスト", "TABCABTe\u0301\x85 ABD"]


def cases(model, seed):
    rng = random.Random(seed)
    exact = conformance.ends_are_comparable(model)
    texts = [*TEXTS, *MORE, *(fuzz_text(rng, ["<|user|>", "▁", "<sep>"])[:100] for _ in range(8))]
    for text in texts:
        ids, spans = conformance.expected_tokens(model, text, exact)
        decoded = None if model.unk_id() in ids else model.decode(ids.tolist())
        yield [text, ids.tolist(), spans.reshape(-1).tolist(), decoded]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(sentencepiece_models.MODELS):
        content = sentencepiece_models.train(name, few_rules=True)
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":"))
                           for case in cases(model, seed))
        (folder / (name + ".model")).write_bytes(content)
        (folder / (name + ".json")).write_text(f"[\n{lines}]\n")


if __name__ == "__main__":
    main()
