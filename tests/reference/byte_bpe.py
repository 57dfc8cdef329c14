"""The byte-level BPE tokenizer of a GGUF file (GPT-2's scheme), for text into token ids.

Text is cut at digits, each a word of its own as the `smollm` pre-tokenizer wants it, and between
them into words by GPT-2's pattern. The pattern's letters are here Python's word characters without
digits and underscore, which agree with its own but for rare marks. The bytes of a word, each spelled as one printable
character, are then merged pair by pair, the pair that stands first in the list of merges first.
"""

import re

DIGIT = re.compile(r"(\d)")
WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_characters():
    """GPT-2's table: printable bytes stand for themselves, the rest for U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table


class ByteBpe:
    def __init__(self, metadata):
        self.ids = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
        self.ranks = {tuple(merge.split(" ")): i
                      for i, merge in enumerate(metadata["tokenizer.ggml.merges"])}
        self.characters = byte_characters()
        self.words = {}

    def encode(self, text):
        ids = []
        for word in (w for part in DIGIT.split(text) for w in WORDS.findall(part)):
            if word not in self.words:
                self.words[word] = self._merge(word)
            ids += self.words[word]
        return ids

    def _merge(self, word):
        parts = [self.characters[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                if tuple(parts[i:i + 2]) == best:
                    merged.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            parts = merged
        return [self.ids[part] for part in parts]
