#include "proto/scalar_text.h"

#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// The pieces of a number. `digits` are those of the mantissa without the point;
// value = digits * 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

constexpr int64_t kMaxExponent = 100000;  // any exponent beyond is as good as this one

absl::string_view TakeDigits(absl::string_view& text) {
  size_t count = 0;
  while (count < text.size() && absl::ascii_isdigit(text[count])) ++count;
  absl::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool TakeSign(absl::string_view& text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return negative;
}

std::optional<int64_t> TakeExponent(absl::string_view& text) {
  if (text.empty()) return 0;
  if (text[0] != 'e' && text[0] != 'E') return std::nullopt;
  text.remove_prefix(1);
  const bool negative = TakeSign(text);
  const absl::string_view digits = TakeDigits(text);
  if (digits.empty() || !text.empty()) return std::nullopt;
  int64_t exponent = 0;
  for (char c : digits) exponent = std::min(exponent * 10 + (c - '0'), kMaxExponent);
  return negative ? -exponent : exponent;
}

std::optional<Decimal> ParseDecimal(absl::string_view text) {
  Decimal decimal;
  decimal.negative = TakeSign(text);
  const absl::string_view whole = TakeDigits(text);
  absl::string_view fraction;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = TakeDigits(text);
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  if (whole.size() > 1 && whole[0] == '0') return std::nullopt;
  const std::optional<int64_t> exponent = TakeExponent(text);
  if (!exponent) return std::nullopt;
  absl::StrAppend(&decimal.digits, whole, fraction);
  decimal.exponent = *exponent - static_cast<int64_t>(fraction.size());
  return decimal;
}

}  // namespace

std::optional<double> ParseDouble(absl::string_view text) {
  if (!ParseDecimal(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);  // from_chars knows no plus sign
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<ParsedInteger> ParseInteger(absl::string_view text) {
  std::optional<Decimal> decimal = ParseDecimal(text);
  if (!decimal) return std::nullopt;
  std::string& digits = decimal->digits;
  while (decimal->exponent < 0 && digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++decimal->exponent;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  ParsedInteger result{.negative = decimal->negative};
  if (digits.empty()) return result;  // zero, whatever its exponent
  if (decimal->exponent < 0 || decimal->exponent > 19) return std::nullopt;
  digits.append(static_cast<size_t>(decimal->exponent), '0');
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), result.magnitude);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return result;
}

}  // namespace penstock
