// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filter_functions.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

// Drops underscores that stand between digits; nullopt if one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         absl::ascii_isalnum(static_cast<unsigned char>(text[i - 1])) &&
                         absl::ascii_isalnum(static_cast<unsigned char>(text[i + 1]));
    if (!between) return std::nullopt;
  }
  return out;
}

enum class Parsed { kNumber, kNoNumber, kTooLarge };

// int(text, base) of Python.
Parsed ParseInteger(std::string_view text, int64_t base, int64_t* value) {
  text = Strip(text, Side::kBoth);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0') {
    const char mark = absl::ascii_tolower(static_cast<unsigned char>(text[1]));
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
      if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    } else if (base == 0 && text.find_first_not_of("0_") != text.npos) {
      return Parsed::kNoNumber;
    }
  }
  if (base == 0) base = 10;
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty() || (*digits)[0] == '-') return Parsed::kNoNumber;
  const std::string number = (negative ? "-" : "") + *digits;
  const auto result =
      std::from_chars(number.data(), number.data() + number.size(), *value, static_cast<int>(base));
  if (result.ptr != number.data() + number.size()) return Parsed::kNoNumber;
  return result.ec == std::errc() ? Parsed::kNumber : Parsed::kTooLarge;
}

// float(text) of Python.
bool ParseFloat(std::string_view text, double* value) {
  const std::optional<std::string> stripped = WithoutUnderscores(Strip(text, Side::kBoth));
  if (!stripped.has_value() || stripped->empty()) return false;
  const std::string lower = absl::AsciiStrToLower(*stripped);
  const std::string unsigned_part = lower[0] == '-' || lower[0] == '+' ? lower.substr(1) : lower;
  const bool word = unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  // strtod takes hexadecimal too, which Python does not.
  if (!word && unsigned_part.find_first_not_of("0123456789.e+-") != std::string::npos) return false;
  char* end = nullptr;
  *value = std::strtod(stripped->c_str(), &end);
  return end == stripped->c_str() + stripped->size();
}

absl::Status TooLarge() { return Failure("int: the number is beyond 64-bit integers"); }

// int(number) of Python; NaN is no number.
FilterResult Truncated(double number, const Value& missing) {
  if (std::isnan(number)) return missing;
  if (!(number > -0x1p63 && number < 0x1p63)) return TooLarge();
  return Value::Int(static_cast<int64_t>(number));
}

double RoundDigits(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  // printf rounds the exact binary value, half to even, as Python does.
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

FilterResult RoundInteger(int64_t value, int64_t digits) {
  if (digits >= 0) return Value::Int(value);
  if (digits < -18) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i > digits; --i) unit *= 10;
  int64_t quotient = value / unit;
  const int64_t rest = std::abs(value % unit);
  if (rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) return TooLarge();
  return Value::Int(result);
}

}  // namespace

FilterResult FilterAbs(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("abs", std::move(arguments), {}).status());
  if (value.is_float()) return Value::Float(std::fabs(value.number()));
  if (!value.is_integral()) return TypeFailure(value, "has no absolute value");
  if (value.integer() == INT64_MIN) return TooLarge();
  return Value::Int(std::abs(value.integer()));
}

FilterResult FilterInt(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("int", std::move(arguments), {"default", "base"}));
  const Value missing = bound[0].value_or(Value::Int(0));
  const Value base_value = bound[1].value_or(Value::Int(10));
  const int64_t base = base_value.is_integral() ? base_value.integer() : -1;
  if (value.is_integral()) return Value::Int(value.integer());
  if (value.is_float()) return Truncated(value.number(), missing);
  if (value.is_undefined()) return TypeFailure(value, "");
  if (!value.is_string()) return missing;
  int64_t integer = 0;
  if (base == 0 || (base >= 2 && base <= 36)) {
    switch (ParseInteger(value.string(), base, &integer)) {
      case Parsed::kNumber:
        return Value::Int(integer);
      case Parsed::kTooLarge:
        return TooLarge();
      case Parsed::kNoNumber:
        break;
    }
  }
  double number = 0;
  if (!ParseFloat(value.string(), &number)) return missing;
  return Truncated(number, missing);
}

FilterResult FilterFloat(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("float", std::move(arguments), {"default"}));
  if (value.is_number()) return Value::Float(value.number());
  if (value.is_undefined()) return TypeFailure(value, "");
  double number = 0;
  if (value.is_string() && ParseFloat(value.string(), &number)) return Value::Float(number);
  return bound[0].value_or(Value::Float(0));
}

FilterResult FilterRound(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("round", std::move(arguments), {"precision", "method"}));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t digits, IntegerOr(bound[0], 0));
  const Value method = bound[1].value_or(Value::String("common"));
  const std::string name = method.is_string() ? method.string() : "";
  if (name != "common" && name != "ceil" && name != "floor") {
    return Failure("round: the method must be common, ceil or floor");
  }
  if (!value.is_number()) return TypeFailure(value, "cannot be rounded");
  if (name == "common") {
    if (value.is_integral()) return RoundInteger(value.integer(), digits);
    return Value::Float(RoundDigits(value.number(), digits));
  }
  if (digits > 300 || digits < -300) return Failure("round: the precision is out of range");
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * unit;
  if (!std::isfinite(scaled)) return Failure("round: the number is not finite");
  return Value::Float((name == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace penstock::jinja
