// The tree that message_file.h reads YAML and JSON into before it knows any field: scalars stay
// text, and every node knows its line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Enough for every message we have; a deeper file is refused before it costs anything.
inline constexpr int kMaxMessageTreeDepth = 32;

struct MessageTree {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int64_t line = 0;                  // from 1
  std::string text;                  // kScalar; what kNull was written as ("", "~", "null")
  std::vector<MessageTree> items;    // kList
  std::vector<std::string> keys;     // kMap; as written, repeats included
  std::vector<int64_t> key_lines;    // kMap; same length as keys
  std::vector<MessageTree> members;  // kMap; same length as keys
};

// Refuses, with origin and line, what no text holds: other bytes than UTF-8, control characters. A
// binary file is better named than parsed.
absl::Status CheckIsText(absl::string_view text, absl::string_view origin);

// InvalidArgument / SPEC_INVALID with origin and line for text that is not YAML (or JSON), uses
// what message_file.h refuses, or is not UTF-8.
absl::StatusOr<MessageTree> ParseMessageTree(absl::string_view text, absl::string_view origin);

}  // namespace penstock
