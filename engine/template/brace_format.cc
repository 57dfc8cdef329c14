// Python's "{} is {0.name!r:>8}".format(values).
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/format_spec.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/string_format.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

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
  absl::StatusOr<FormatSpec> ReadSpec(std::string_view text);
  absl::StatusOr<std::string> FormatValue(const FormatSpec& spec, const Value& value);

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
    PENSTOCK_ASSIGN_OR_RETURN(const auto number, ReadFormatNumber(name, &at, kMaxFormatWidth));
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
      PENSTOCK_ASSIGN_OR_RETURN(const auto number, ReadFormatNumber(name, &digits, INT32_MAX));
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
  PENSTOCK_ASSIGN_OR_RETURN(const FormatSpec spec, ReadSpec(spec_text));
  const bool safe = value.is_string() && value.is_markup();
  if (markup_ && safe && !spec_text.empty())
    return Failure("a string marked safe takes no format of a field");
  std::string text;
  if (spec_text.empty()) {
    PENSTOCK_RETURN_IF_ERROR(AppendText(interpreter_, value, &text));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(text, FormatValue(spec, value));
  }
  out_ += markup_ && !safe ? EscapeHtml(text) : text;
  return absl::OkStatus();
}

absl::StatusOr<FormatSpec> BraceFormatter::ReadSpec(std::string_view text) {
  FormatSpec spec;
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
  PENSTOCK_ASSIGN_OR_RETURN(const auto width, ReadFormatNumber(text, &at, kMaxFormatWidth));
  spec.width = width.value_or(0);
  if (peek(",")) {
    spec.comma = true;
    ++at;
  }
  if (peek(".")) {
    ++at;
    PENSTOCK_ASSIGN_OR_RETURN(spec.precision, ReadFormatNumber(text, &at, kMaxFormatPrecision));
    if (!spec.precision.has_value()) return Failure("a format has a . without a precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return Failure("a format has an unknown field specification");
  return spec;
}

absl::StatusOr<std::string> BraceFormatter::FormatValue(const FormatSpec& spec,
                                                        const Value& value) {
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

absl::StatusOr<Value> FormatBraces(Interpreter& interpreter, const Value& format,
                                   const CallArguments& arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, BraceFormatter(interpreter, format, arguments).Run());
  return interpreter.NewStringLike(format, std::move(text));
}

}  // namespace penstock::jinja
