#include "engine/template/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

std::string Repeated(const std::string& text, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> ReadFormatNumber(std::string_view text, size_t* at,
                                                        int64_t most) {
  if (*at >= text.size() || text[*at] < '0' || text[*at] > '9') return std::nullopt;
  int64_t number = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = number * 10 + (text[*at] - '0');
    if (number > most) return Failure(absl::StrCat("a format has a width beyond ", most));
  }
  return number;
}

std::string Padded(const FormatSpec& spec, const std::string& sign, const std::string& body,
                   char default_align) {
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t missing =
      std::max<int64_t>(spec.width - CountCodePoints(sign) - CountCodePoints(body), 0);
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  if (align == '=') return sign + Repeated(spec.fill, missing) + body;
  return Repeated(spec.fill, left) + sign + body + Repeated(spec.fill, missing - left);
}

std::string SignOf(const FormatSpec& spec, bool negative) {
  return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
}

std::string WithCommas(std::string digits) {
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

absl::StatusOr<std::string> FormatInteger(const FormatSpec& spec, int64_t value, char type) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base);
  std::string digits(buffer, written.ptr);
  if (type == 'X') digits = ToUpper(digits);
  if (spec.precision.has_value()) {
    digits.insert(0, Repeated("0", *spec.precision - static_cast<int64_t>(digits.size())));
  }
  if (spec.comma) {
    if (base != 10) return Failure("a format puts commas into a number that is not decimal");
    digits = WithCommas(std::move(digits));
  }
  std::string sign = SignOf(spec, value < 0);
  if (spec.alternate && base != 10) sign += std::string("0") + type;
  return Padded(spec, sign, digits, '>');
}

absl::StatusOr<std::string> FormatFloat(const FormatSpec& spec, double value, char type) {
  std::string body;
  const bool percent = type == '%';
  if (std::isnan(value) || std::isinf(value)) {
    body = std::isnan(value) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') body = ToUpper(body);
  } else {
    const char pattern[] = {'%', spec.alternate ? '#' : '0', '.', '*', percent ? 'f' : type, '\0'};
    char buffer[1024];
    std::snprintf(buffer, sizeof(buffer), pattern, static_cast<int>(spec.precision.value_or(6)),
                  std::fabs(percent ? value * 100 : value));
    body = buffer;
  }
  if (spec.comma) {
    const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    body = WithCommas(body.substr(0, whole)) + body.substr(whole);
  }
  if (percent) body += '%';
  return Padded(spec, SignOf(spec, std::signbit(value) && !std::isnan(value)), body, '>');
}

std::string FormatText(const FormatSpec& spec, std::string text) {
  if (spec.precision.has_value()) text.resize(ByteOffset(text, *spec.precision));
  return Padded(spec, "", text, '<');
}

}  // namespace penstock::jinja
