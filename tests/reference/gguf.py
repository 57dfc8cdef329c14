"""Reads GGUF files: metadata and tensors, as float32 arrays.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3,
little-endian). Tensor types: F32, F16, Q4_1 and Q8_0. A quantised row is blocks of 32 values:
  Q4_1  f16 d, f16 m, 16 bytes; value i is d * q + m, q the low half of byte i for i < 16, else
        the high half of byte i - 16
  Q8_0  f16 d, 32 int8; value i is d * q
"""

import dataclasses
import struct

import numpy

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
STRING, ARRAY = 8, 9
BLOCK = 32
# By type number: name, values a block, bytes a block.
TENSOR_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", BLOCK, 20), 8: ("Q8_0", BLOCK, 34)}


class GgufError(Exception):
    pass


@dataclasses.dataclass
class TensorInfo:
    shape: tuple  # rows first, unlike in the file
    kind: int
    offset: int


class GgufFile:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = file.read()
        self.position = 0
        if self._take(4) != b"GGUF":
            raise GgufError(f"{path} does not begin with GGUF")
        version, tensors, entries = self._unpack("I"), self._unpack("Q"), self._unpack("Q")
        if version not in (2, 3):
            raise GgufError(f"{path} is GGUF version {version}, wanted 2 or 3")
        self.metadata = {}
        for _ in range(entries):
            key = self._string()
            self.metadata[key] = self._value(self._unpack("I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self._string()
            shape = [self._unpack("Q") for _ in range(self._unpack("I"))]
            self.tensors[name] = TensorInfo(tuple(reversed(shape)), self._unpack("I"),
                                            self._unpack("Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self.start = -(-self.position // alignment) * alignment

    def _take(self, size):
        if size > len(self.data) - self.position:
            raise GgufError(f"{self.path} ends at byte {len(self.data)}, wanted {size} more from "
                            f"{self.position}")
        self.position += size
        return self.data[self.position - size:self.position]

    def _unpack(self, code):
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _string(self):
        return self._take(self._unpack("Q")).decode()

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element = self._unpack("I")
            return [self._value(element) for _ in range(self._unpack("Q"))]
        if kind not in SCALARS:
            raise GgufError(f"{self.path} has a value of type {kind} before byte {self.position}")
        return self._unpack(SCALARS[kind])

    def tensor(self, name):
        """float32 array, rows first."""
        if name not in self.tensors:
            raise GgufError(f"{self.path} has no tensor {name}")
        info = self.tensors[name]
        if info.kind not in TENSOR_TYPES:
            raise GgufError(f"{name} in {self.path} is of type {info.kind}, wanted one of "
                            f"{[f'{k} ({v[0]})' for k, v in TENSOR_TYPES.items()]}")
        _, per_block, block_bytes = TENSOR_TYPES[info.kind]
        size = int(numpy.prod(info.shape, dtype=object)) // per_block * block_bytes
        self.position = self.start + info.offset
        raw = numpy.frombuffer(self._take(size), dtype=numpy.uint8).reshape(-1, block_bytes)
        return dequantise(raw, info.kind).reshape(info.shape)


def halves(raw):
    return numpy.ascontiguousarray(raw).view("<f2").astype(numpy.float32)


def dequantise(raw, kind):
    """raw: [blocks, bytes a block]."""
    if kind == 0:
        return raw.view("<f4").copy()
    if kind == 1:
        return halves(raw)
    if kind == 3:
        scale, minimum = halves(raw[:, 0:2]), halves(raw[:, 2:4])
        quants = numpy.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
        return scale * quants.astype(numpy.float32) + minimum
    quants = numpy.ascontiguousarray(raw[:, 2:]).view(numpy.int8)
    return halves(raw[:, 0:2]) * quants.astype(numpy.float32)
