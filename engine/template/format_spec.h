// What "%5.2f" and "{:>8,}" have in common: how a field is laid out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock::jinja {

inline constexpr int64_t kMaxFormatWidth = 10'000;
inline constexpr int64_t kMaxFormatPrecision = 300;

// What stands between % and its letter, or after the : of a field.
struct FormatSpec {
  char align = '\0';  // < > = ^
  std::string fill = " ";
  bool plus = false, space = false, alternate = false, comma = false;
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

// Digits of a number at `*at`, which moves past them; nullopt if there are none, an error if the
// number is beyond `most`.
absl::StatusOr<std::optional<int64_t>> ReadFormatNumber(std::string_view text, size_t* at,
                                                        int64_t most);

// `sign` and `body`, filled up to the width of `spec`.
std::string Padded(const FormatSpec& spec, const std::string& sign, const std::string& body,
                   char default_align);
std::string SignOf(const FormatSpec& spec, bool negative);
// 1234567 to 1,234,567.
std::string WithCommas(std::string digits);

// `type` is the letter of Python's format: d, x, X, o, b; for floats e, f, g, their capitals and %.
absl::StatusOr<std::string> FormatInteger(const FormatSpec& spec, int64_t value, char type);
absl::StatusOr<std::string> FormatFloat(const FormatSpec& spec, double value, char type);
std::string FormatText(const FormatSpec& spec, std::string text);

}  // namespace penstock::jinja
