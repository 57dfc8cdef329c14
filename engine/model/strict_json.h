// JSON from files that somebody else wrote. nlohmann's parser keeps the last of two equal
// keys, nests without limit and throws; here duplicates, depth and size are refused and
// nothing is thrown.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace penstock {

struct JsonLimits {
  int64_t max_bytes = 0;  // of text; the parsed value takes up to about ten times as much
  int max_depth = 64;
  int64_t max_values = std::numeric_limits<int64_t>::max();       // containers and keys' values
  int64_t max_object_keys = std::numeric_limits<int64_t>::max();  // of one object
};

// The value, or InvalidArgument / `error_reason` naming `what` (a file, for people), what is
// wrong and where. A Git LFS pointer, HTML, an empty text or binary data is called by its name.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view what,
                                               const JsonLimits& limits,
                                               std::string_view error_reason);

struct JsonProblem {
  int64_t offset = 0;  // of the byte at which it was noticed
  std::string what;
};

// The same for one row of a data file: keys keep their order, since a chat template prints them,
// and a problem knows its place. On a problem `value` is unspecified.
// REQUIRES: limits.max_object_keys is some thousands at most; finding a key takes time with them.
std::optional<JsonProblem> ParseOrderedJson(std::string_view text, const JsonLimits& limits,
                                            nlohmann::ordered_json& value);

// What the first bytes of a file that should have been something else look like, with the way
// out ("a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"), or "".
std::string DescribeForeignContent(absl::string_view first_bytes);

}  // namespace penstock
