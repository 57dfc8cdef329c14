// The safetensors format, read strictly:
//
//   8 bytes   length n of the header, little-endian
//   n bytes   JSON: {"name": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..}
//             with an optional "__metadata__" of strings; trailing spaces allowed
//   the rest  tensor bytes; offsets count from here
//
// A header is believed only after: n fits the file and kMaxSafetensorsHeaderBytes (both before
// any allocation); it is such JSON, of bounded depth and without duplicates; every shape times
// its dtype is the length of its range, without overflow; the ranges cover the data exactly, no
// hole, no overlap. Empty tensors and scalars are legal.
//
// Errors are InvalidArgument / MODEL_INVALID with file and tensor; a file that is something
// else (LFS pointer, HTML, zip, pickle, empty, cut off) is named with the fix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/train/rooted_file.h"

namespace penstock {

// Largest header accepted. Real ones: 126 MB has been seen, a few hundred KB is usual.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{512} << 20;
inline constexpr int64_t kMaxTensorRank = 16;
inline constexpr int64_t kMaxTensorNameBytes = 1024;

struct StoredTensor {
  std::string name;
  std::string dtype;  // as written; one of the format's
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the file, from its first byte
  int64_t bytes = 0;
};

// By ascending `begin` (empty tensors by name among equals).
absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const ReadableFile& file);

// The JSON part alone: `data_bytes` follow it, the first of them at `data_start` in the file.
// ReadSafetensorsHeader is this after the length checks.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view json,
                                                                 std::string_view path,
                                                                 int64_t data_start,
                                                                 int64_t data_bytes);

}  // namespace penstock
