// Numbers as people write them, read one way everywhere: job files, flags, config files.
//
// A number is [+-]digits[.digits][e[+-]digits], or .digits for the mantissa. No leading zeros (010
// is 8 in one YAML and 10 in the next), no separators, no nan or inf.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace penstock {

// nullopt if the text is not a number as above, or is one that a double cannot hold.
std::optional<double> ParseDouble(absl::string_view text);

// An integer and its sign. Exact: 1e3 and 1000.0 are 1000, 1.5 and 1e-1 are nothing, and nothing
// goes through a double.
struct ParsedInteger {
  bool negative = false;
  uint64_t magnitude = 0;
};
// nullopt if the text is no number, not integral, or beyond 64 bits.
std::optional<ParsedInteger> ParseInteger(absl::string_view text);

}  // namespace penstock
