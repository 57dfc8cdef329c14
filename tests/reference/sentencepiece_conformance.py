#!/usr/bin/env python3
"""Compares Penstock's reading of SentencePiece models with the sentencepiece library.

    sentencepiece_conformance.py --bench build/ci/bin/penstock_tokenizer_bench \\
        [--model FILE]... [--trained] [--corpus DIRECTORY] [--fuzz COUNT] [--seed N]

Ids, where each token begins, and decoded text. Where a token ends only for models that rewrite
nothing but spaces, and not if the library says that it stands for nothing: the library counts
removed spaces to the token before them, and what was rewritten as a whole to the last of its tokens. --trained adds the models of
sentencepiece_models.py. Needs PyPI tokenizers, numpy and sentencepiece 0.2.1: 0.2.3 chooses
otherwise between cuts of a unigram model that have equal scores. Exits with 1 if anything differs;
the first differences are shown.
"""
import argparse
import pathlib
import random
import sys
import tempfile

import numpy as np
import sentencepiece

import sentencepiece_models
import tokenizer_conformance as conformance


def expected_tokens(model, text, exact_ends):
    """Ids and spans; an end that is not to be compared is -1."""
    pieces = model.encode(text, out_type="immutable_proto").pieces
    ids = [piece.id for piece in pieces]
    spans = [[piece.begin, piece.end] for piece in pieces]
    # All bytes of a character have it in their spans, not only the last.
    for i in range(len(ids) - 2, -1, -1):
        if model.is_byte(ids[i]) and spans[i][0] == spans[i][1]:
            spans[i][1] = spans[i + 1][1]
    raw = text.encode()
    starts = np.flatnonzero((np.frombuffer(raw, np.uint8) & 0xC0) != 0x80)
    spans = np.append(starts, len(raw))[np.array(spans, dtype=np.int64).reshape(-1, 2)]
    spans[(spans[:, 0] == spans[:, 1]) | (not exact_ends), 1] = -1
    return np.array(ids, dtype=np.int32), spans


def ends_are_comparable(model):
    return (model.encode("a  b") != model.encode("a b") and
            model.encode("\ufb01") != model.encode("fi"))


class Comparison:
    def __init__(self, name, model, exact_ends):
        self.name, self.model, self.exact_ends = name, model, exact_ends
        self.texts, self.bytes, self.tokens, self.different = 0, 0, 0, 0

    def check(self, text, answer):
        self.texts += 1
        self.bytes += len(text.encode())
        problem = "refused" if answer is None else self.problem(text, *answer)
        if problem:
            self.different += 1
            if self.different <= 3:
                print(f"  {self.name}: {problem} for {text[:200]!r}")

    def problem(self, text, tokens, decoded):
        ids, spans = expected_tokens(self.model, text, self.exact_ends)
        self.tokens += len(ids)
        if not np.array_equal(ids, tokens[:, 0]):
            return f"ids {ids[:40].tolist()}, found {tokens[:40, 0].tolist()}"
        if np.any((spans != tokens[:, 1:]) & (spans >= 0)):
            return f"spans {spans[:20].tolist()}, found {tokens[:20, 1:].tolist()}"
        if self.model.unk_id() in ids:  # the library writes another text for it
            return None
        expected = self.model.decode(ids.tolist())
        if expected.encode() == decoded:
            return None
        return f"text {expected[:80]!r}, found {decoded[:80]}"

    def result(self):
        return (f"{self.name}: {self.texts} texts, {self.bytes} bytes, {self.tokens} tokens, "
                f"{self.different} different")


def compare(bench, directory, name, texts):
    path = str(pathlib.Path(directory, "tokenizer.model"))
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    comparison = Comparison(name, model, ends_are_comparable(model))
    penstock = conformance.Penstock(bench, directory, ["plain-special"])
    for batch in conformance.batches(texts):
        for text, answer in zip(batch, penstock.answers([text.encode() for text in batch])):
            comparison.check(text, answer)
    if penstock.close() != 0:
        comparison.different += 1
    print(comparison.result(), flush=True)
    return comparison.different


def fuzz(count, seed, model_file):
    model = sentencepiece.SentencePieceProcessor(model_file=model_file)
    odd = [model.id_to_piece(i) for i in range(model.get_piece_size())
           if not model.id_to_piece(i).isalpha()]
    rng = random.Random(seed)
    for _ in range(count):
        yield conformance.fuzz_text(rng, [piece.replace("▁", " ") for piece in odd] + ["▁"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--trained", action="store_true")
    parser.add_argument("--corpus")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = [(str(path), pathlib.Path(path).read_bytes()) for path in arguments.model]
        if arguments.trained:
            models += [(name, sentencepiece_models.train(name))
                       for name in sentencepiece_models.MODELS]
        for number, (name, content) in enumerate(models):
            directory = pathlib.Path(scratch, str(number))
            directory.mkdir()
            file = directory / "tokenizer.model"
            file.write_bytes(content)
            if arguments.corpus:
                wrong += compare(arguments.bench, str(directory), f"{name}, corpus",
                                 conformance.corpus(arguments.corpus))
            if arguments.fuzz:
                texts = fuzz(arguments.fuzz, arguments.seed, str(file))
                wrong += compare(arguments.bench, str(directory), f"{name}, fuzz", texts)
    print("identical" if wrong == 0 else f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
