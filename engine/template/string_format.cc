#include "engine/template/string_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;
constexpr int64_t kMaxPrecision = 300;

// What stands between % and its letter, or after the : of a field.
struct Spec {
  char align = '\0';  // < > = ^
  std::string fill = " ";
  bool plus = false, space = false, alternate = false, comma = false;
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

// Digits of a number at `*at`, or nullopt if there are none.
absl::StatusOr<std::optional<int64_t>> ReadNumber(std::string_view text, size_t* at, int64_t most) {
  if (*at >= text.size() || text[*at] < '0' || text[*at] > '9') return std::nullopt;
  int64_t number = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = number * 10 + (text[*at] - '0');
    if (number > most) return Failure(absl::StrCat("a format has a width beyond ", most));
  }
  return number;
}

std::string Repeated(const std::string& text, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string Padded(const Spec& spec, const std::string& sign, const std::string& body,
                   char default_align) {
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t missing =
      std::max<int64_t>(spec.width - CountCodePoints(sign) - CountCodePoints(body), 0);
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  if (align == '=') return sign + Repeated(spec.fill, missing) + body;
  return Repeated(spec.fill, left) + sign + body + Repeated(spec.fill, missing - left);
}

std::string SignOf(const Spec& spec, bool negative) {
  return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
}

std::string WithCommas(std::string digits) {
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

absl::StatusOr<std::string> FormatInteger(const Spec& spec, int64_t value, char type) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits;
  for (uint64_t rest = magnitude; rest > 0 || digits.empty(); rest /= base) {
    digits.insert(digits.begin(),
                  (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base]);
  }
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

absl::StatusOr<std::string> FormatFloat(const Spec& spec, double value, char type) {
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

std::string FormatText(const Spec& spec, std::string text) {
  if (spec.precision.has_value()) text.resize(ByteOffset(text, *spec.precision));
  return Padded(spec, "", text, '<');
}

// ---- "%s" % values -----------------------------------------------------------------------------

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& format, const Value& values)
      : interpreter_(interpreter),
        format_(format.string()),
        markup_(format.is_markup()),
        values_(values) {}

  absl::StatusOr<std::string> Run();

 private:
  absl::StatusOr<Value> NextValue();
  absl::Status AppendField(size_t* at);
  absl::StatusOr<Spec> ReadSpec(size_t* at);
  absl::StatusOr<std::string> FormatValue(Spec spec, const Value& value);

  Interpreter& interpreter_;
  const std::string_view format_;
  const bool markup_;  // which escapes what is put into it
  const Value& values_;
  size_t used_ = 0;
  bool by_name_ = false;
  std::optional<Value> named_;  // what %(name) found
  std::string out_;
};

absl::StatusOr<Value> PercentFormatter::NextValue() {
  if (named_.has_value()) return *std::exchange(named_, std::nullopt);
  const size_t count = values_.is(Kind::kTuple) ? values_.list().size() : 1;
  if (used_ >= count) return Failure("there are fewer values than the format needs");
  ++used_;
  return values_.is(Kind::kTuple) ? values_.list()[used_ - 1] : values_;
}

absl::StatusOr<std::string> PercentFormatter::Run() {
  for (size_t at = 0; at < format_.size();) {
    if (format_[at] != '%') {
      const size_t end = std::min(format_.find('%', at), format_.size());
      out_ += format_.substr(at, end - at);
      at = end;
      continue;
    }
    ++at;
    PENSTOCK_RETURN_IF_ERROR(AppendField(&at));
    PENSTOCK_RETURN_IF_ERROR(interpreter_.CheckBytes(static_cast<int64_t>(out_.size())));
  }
  const bool mapping = values_.is_dict() || values_.is_list() || values_.is(Kind::kRange) ||
                       values_.is_undefined() || by_name_;
  const size_t count = values_.is(Kind::kTuple) ? values_.list().size() : 1;
  if (used_ < count && !mapping) return Failure("there are more values than the format needs");
  return out_;
}

absl::StatusOr<Spec> PercentFormatter::ReadSpec(size_t* at) {
  Spec spec;
  bool zero = false;
  for (; *at < format_.size(); ++*at) {
    const char c = format_[*at];
    if (c == '-') {
      spec.align = '<';
    } else if (c == '+') {
      spec.plus = true;
    } else if (c == ' ') {
      spec.space = true;
    } else if (c == '#') {
      spec.alternate = true;
    } else if (c == '0') {
      zero = true;
    } else {
      break;
    }
  }
  if (*at < format_.size() && format_[*at] == '*') return Failure("%* is not supported");
  PENSTOCK_ASSIGN_OR_RETURN(const auto width, ReadNumber(format_, at, kMaxWidth));
  spec.width = width.value_or(0);
  if (*at < format_.size() && format_[*at] == '.') {
    ++*at;
    if (*at < format_.size() && format_[*at] == '*') return Failure("%.* is not supported");
    PENSTOCK_ASSIGN_OR_RETURN(const auto precision, ReadNumber(format_, at, kMaxPrecision));
    spec.precision = precision.value_or(0);
  }
  while (*at < format_.size() &&
         (format_[*at] == 'l' || format_[*at] == 'h' || format_[*at] == 'L')) {
    ++*at;
  }
  if (*at >= format_.size()) return Failure("a format ends inside a % field");
  spec.type = format_[(*at)++];
  const bool number = std::string_view("diuoxXeEfFgG").find(spec.type) != std::string_view::npos;
  if (zero && number && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  if (spec.align == '\0') spec.align = '>';
  return spec;
}

absl::Status PercentFormatter::AppendField(size_t* at) {
  if (*at < format_.size() && format_[*at] == '(') {
    const size_t close = format_.find(')', *at);
    if (close == format_.npos) return Failure("a format has %( without )");
    if (!values_.is_dict()) return Failure("a format has %(name), but its values are no dict");
    const std::string_view name = format_.substr(*at + 1, close - *at - 1);
    const Value* found = values_.Find(name);
    if (found == nullptr) {
      return Failure(absl::StrCat("a format has %(", Absl(name), "), which the dict lacks"));
    }
    named_ = *found;
    by_name_ = true;
    *at = close + 1;
  }
  PENSTOCK_ASSIGN_OR_RETURN(Spec spec, ReadSpec(at));
  if (spec.type == '%') {
    out_ += '%';
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Value value, NextValue());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, FormatValue(std::move(spec), value));
  out_ += text;
  return absl::OkStatus();
}

absl::StatusOr<std::string> PercentFormatter::FormatValue(Spec spec, const Value& value) {
  switch (spec.type) {
    case 's':
    case 'r': {
      std::string text;
      PENSTOCK_RETURN_IF_ERROR(spec.type == 's' ? AppendText(interpreter_, value, &text)
                                                : AppendRepr(interpreter_, value, &text));
      if (markup_ && !(value.is_string() && value.is_markup() && spec.type == 's')) {
        text = EscapeHtml(text);
      }
      return FormatText(spec, std::move(text));
    }
    case 'd':
    case 'i':
    case 'u': {
      if (!value.is_number()) return TypeFailure(value, "stands where %d needs a number");
      const double real = value.number();
      if (value.is_float() && !(real > -0x1p63 && real < 0x1p63)) {
        return Failure("%d has a number beyond 64-bit integers");
      }
      return FormatInteger(spec, value.is_float() ? static_cast<int64_t>(real) : value.integer(),
                           'd');
    }
    case 'o':
    case 'x':
    case 'X':
      if (!value.is_integral()) return TypeFailure(value, "stands where %x needs an integer");
      return FormatInteger(spec, value.integer(), spec.type);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number()) return TypeFailure(value, "stands where %f needs a number");
      return FormatFloat(spec, value.number(), spec.type);
    case 'c':
      if (value.is_string() && value.string_length() == 1) return FormatText(spec, value.string());
      return TypeFailure(value, "stands where %c needs one character");
    default:
      return Failure(absl::StrCat("the format %", std::string(1, spec.type), " does not exist"));
  }
}

// ---- "{}".format(values) -----------------------------------------------------------------------

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Value& format, const CallArguments& arguments)
      : interpreter_(interpreter),
        format_(format.string()),
        markup_(format.is_markup()),
        arguments_(arguments) {}

  absl::StatusOr<std::string> Run();

 private:
  absl::Status AppendField(std::string_view field);
  absl::StatusOr<Value> Find(std::string_view path);
  absl::StatusOr<Value> FindFirst(std::string_view name);
  absl::StatusOr<Spec> ReadSpec(std::string_view text);
  absl::StatusOr<std::string> FormatValue(const Spec& spec, const Value& value);

  Interpreter& interpreter_;
  const std::string_view format_;
  const bool markup_;  // which escapes what is put into it
  const CallArguments& arguments_;
  size_t next_ = 0;
  enum class Numbering { kUnknown, kAutomatic, kManual } numbering_ = Numbering::kUnknown;
  std::string out_;
};

absl::StatusOr<std::string> BraceFormatter::Run() {
  for (size_t at = 0; at < format_.size();) {
    const char c = format_[at];
    if (c != '{' && c != '}') {
      out_ += format_[at++];
      continue;
    }
    if (at + 1 < format_.size() && format_[at + 1] == c) {
      out_ += c;
      at += 2;
      continue;
    }
    if (c == '}') return Failure("a format has a single }");
    const size_t close = format_.find('}', at);
    if (close == format_.npos) return Failure("a format has a { without }");
    const std::string_view field = format_.substr(at + 1, close - at - 1);
    if (field.find('{') != field.npos) return Failure("a { inside a format field is not supported");
    PENSTOCK_RETURN_IF_ERROR(AppendField(field));
    PENSTOCK_RETURN_IF_ERROR(interpreter_.CheckBytes(static_cast<int64_t>(out_.size())));
    at = close + 1;
  }
  return out_;
}

absl::StatusOr<Value> BraceFormatter::FindFirst(std::string_view name) {
  const bool digits = name.find_first_not_of("0123456789") == name.npos;
  if (!digits) {
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return Failure(absl::StrCat("a format has {", Absl(name), "}, which is not given"));
  }
  const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
  if (numbering_ != Numbering::kUnknown && numbering_ != numbering) {
    return Failure("a format has {} and {0}; use one or the other");
  }
  numbering_ = numbering;
  size_t index = next_;
  if (name.empty()) {
    ++next_;
  } else {
    size_t at = 0;
    PENSTOCK_ASSIGN_OR_RETURN(const auto number, ReadNumber(name, &at, kMaxWidth));
    index = static_cast<size_t>(*number);
  }
  if (index >= arguments_.positional.size()) {
    return Failure("there are fewer values than the format needs");
  }
  return arguments_.positional[index];
}

// name.attribute[key]
absl::StatusOr<Value> BraceFormatter::Find(std::string_view path) {
  size_t at = std::min(path.find_first_of(".["), path.size());
  PENSTOCK_ASSIGN_OR_RETURN(Value value, FindFirst(path.substr(0, at)));
  while (at < path.size()) {
    const bool item = path[at] == '[';
    if (!item && path[at] != '.') return Failure("a format field has text after ]");
    const size_t begin = at + 1;
    const size_t end =
        item ? path.find(']', begin) : std::min(path.find_first_of(".[", begin), path.size());
    if (end == path.npos || end == begin) return Failure("a format field has an empty attribute");
    const std::string_view name = path.substr(begin, end - begin);
    if (!item) {
      PENSTOCK_ASSIGN_OR_RETURN(value, GetAttribute(interpreter_, value, name));
    } else {
      size_t digits = 0;
      PENSTOCK_ASSIGN_OR_RETURN(const auto number, ReadNumber(name, &digits, INT32_MAX));
      const Value key = number.has_value() && digits == name.size()
                            ? Value::Int(*number)
                            : Value::String(std::string(name));
      PENSTOCK_ASSIGN_OR_RETURN(value, GetItem(interpreter_, value, key));
    }
    at = item ? end + 1 : end;
  }
  return value;
}

absl::Status BraceFormatter::AppendField(std::string_view field) {
  const size_t colon = std::min(field.find(':'), field.size());
  const size_t mark = std::min(field.find('!'), colon);
  PENSTOCK_ASSIGN_OR_RETURN(Value value, Find(field.substr(0, mark)));
  if (mark < colon) {
    const std::string_view conversion = field.substr(mark + 1, colon - mark - 1);
    std::string text;
    if (conversion == "s") {
      PENSTOCK_RETURN_IF_ERROR(AppendText(interpreter_, value, &text));
    } else if (conversion == "r") {
      PENSTOCK_RETURN_IF_ERROR(AppendRepr(interpreter_, value, &text));
    } else {
      return Failure("a format has a conversion other than !s and !r");
    }
    value = Value::String(std::move(text));
  }
  const std::string_view spec_text = colon < field.size() ? field.substr(colon + 1) : "";
  PENSTOCK_ASSIGN_OR_RETURN(const Spec spec, ReadSpec(spec_text));
  const bool safe = value.is_string() && value.is_markup();
  if (safe && !spec_text.empty()) return Failure("a string marked safe takes no format of a field");
  std::string text;
  if (spec_text.empty()) {
    PENSTOCK_RETURN_IF_ERROR(AppendText(interpreter_, value, &text));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(text, FormatValue(spec, value));
  }
  out_ += markup_ && !safe ? EscapeHtml(text) : text;
  return absl::OkStatus();
}

absl::StatusOr<Spec> BraceFormatter::ReadSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto peek = [&](std::string_view characters) {
    return at < text.size() && characters.find(text[at]) != characters.npos;
  };
  const size_t first = text.empty() ? 0 : Utf8Length(text[0]);
  if (first < text.size() && std::string_view("<>=^").find(text[first]) != std::string_view::npos) {
    spec.fill = text.substr(0, first);
    at = first;
  }
  if (peek("<>=^")) spec.align = text[at++];
  if (peek("+- ")) {
    spec.plus = text[at] == '+';
    spec.space = text[at++] == ' ';
  }
  if (peek("#")) {
    spec.alternate = true;
    ++at;
  }
  if (peek("0")) {
    ++at;
    if (spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto width, ReadNumber(text, &at, kMaxWidth));
  spec.width = width.value_or(0);
  if (peek(",")) {
    spec.comma = true;
    ++at;
  }
  if (peek(".")) {
    ++at;
    PENSTOCK_ASSIGN_OR_RETURN(spec.precision, ReadNumber(text, &at, kMaxPrecision));
    if (!spec.precision.has_value()) return Failure("a format has a . without a precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return Failure("a format has an unknown field specification");
  return spec;
}

absl::StatusOr<std::string> BraceFormatter::FormatValue(const Spec& spec, const Value& value) {
  if (value.is_string()) {
    if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.plus || spec.space ||
        spec.comma || spec.alternate) {
      return Failure("a format for numbers is given a string");
    }
    return FormatText(spec, value.string());
  }
  if (!value.is_number()) return TypeFailure(value, "cannot be formatted; use !s");
  if (value.is_integral() &&
      std::string_view("\0doxXb", 6).find(spec.type) != std::string_view::npos) {
    if (spec.precision.has_value()) return Failure("an integer cannot have a precision");
    return FormatInteger(spec, value.integer(), spec.type == '\0' ? 'd' : spec.type);
  }
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    return FormatFloat(spec, value.number(), spec.type);
  }
  if (spec.type == '\0' && !spec.precision.has_value() && !spec.alternate) {
    std::string text = FloatRepr(std::fabs(value.number()));
    if (spec.comma) {
      const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
      text = WithCommas(text.substr(0, whole)) + text.substr(whole);
    }
    return Padded(spec, SignOf(spec, std::signbit(value.number())), text, '>');
  }
  return Failure("this format of a number is not supported");
}

}  // namespace

absl::StatusOr<Value> FormatPercent(Interpreter& interpreter, const Value& format,
                                    const Value& values) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, PercentFormatter(interpreter, format, values).Run());
  return interpreter.NewStringLike(format, std::move(text));
}

absl::StatusOr<Value> FormatBraces(Interpreter& interpreter, const Value& format,
                                   const CallArguments& arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, BraceFormatter(interpreter, format, arguments).Run());
  return interpreter.NewStringLike(format, std::move(text));
}

}  // namespace penstock::jinja
