#!/usr/bin/env python3
"""Makes the token files of a loss curve: raw little-endian int32 ids, one after the other.

  loss_curve_data.py tokens MODEL.gguf TEXT_DIRECTORY OUTPUT_DIRECTORY
      Tokenizes every *.py file below TEXT_DIRECTORY, in the order of their names and each after
      <|endoftext|>, and cuts the tokens into rows; writes rows.bin, and, of rows spread evenly
      over all of them, evaluation.bin.
  loss_curve_data.py shuffle ROWS.bin SEED OUTPUT.bin
      The rows in another order: what a training run of that seed sees.

Python's standard library, as Debian packages it in /usr/lib/python3.11, is text that every
machine with Debian 12 has (PSF licence). Needs numpy.
"""

import argparse
import pathlib
import sys

import numpy

from byte_bpe import ByteBpe
from gguf import GgufFile

SEQUENCE_LENGTH = 512
TRAIN_ROWS = 4000  # 1,000 steps of 4 rows
EVALUATION_ROWS = 48


def write_tokens(arguments):
    metadata = GgufFile(arguments.gguf).metadata
    tokenizer = ByteBpe(metadata)
    boundary = tokenizer.ids["<|endoftext|>"]
    ids = []
    for path in sorted(arguments.text.rglob("*.py")):
        ids += [boundary] + tokenizer.encode(path.read_text(errors="replace"))
    count = len(ids) // SEQUENCE_LENGTH
    wanted = TRAIN_ROWS + EVALUATION_ROWS
    if count < wanted:
        sys.exit(f"{arguments.text} gives {count} rows of {SEQUENCE_LENGTH} tokens, wanted "
                 f"{wanted}; name a directory with more text")
    rows = numpy.array(ids[:count * SEQUENCE_LENGTH], dtype="<i4").reshape(count, SEQUENCE_LENGTH)
    # Evenly spread over the text, so that every part of it is in both files.
    rows = rows[numpy.linspace(0, count - 1, wanted).astype(int)]
    held_out = numpy.linspace(0, wanted - 1, EVALUATION_ROWS).astype(int)
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows[held_out].tofile(arguments.output / "evaluation.bin")
    numpy.delete(rows, held_out, axis=0).tofile(arguments.output / "rows.bin")
    print(f"{len(ids)} tokens; {TRAIN_ROWS} rows to train, {EVALUATION_ROWS} to evaluate")


def write_shuffled(arguments):
    rows = numpy.fromfile(arguments.rows, dtype="<i4").reshape(-1, SEQUENCE_LENGTH)
    order = numpy.random.Generator(numpy.random.PCG64(arguments.seed)).permutation(len(rows))
    rows[order].tofile(arguments.output)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    tokens = commands.add_parser("tokens")
    tokens.add_argument("gguf", type=pathlib.Path)
    tokens.add_argument("text", type=pathlib.Path)
    tokens.add_argument("output", type=pathlib.Path)
    tokens.set_defaults(run=write_tokens)
    shuffle = commands.add_parser("shuffle")
    shuffle.add_argument("rows", type=pathlib.Path)
    shuffle.add_argument("seed", type=int)
    shuffle.add_argument("output", type=pathlib.Path)
    shuffle.set_defaults(run=write_shuffled)
    arguments = parser.parse_args()
    arguments.run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
