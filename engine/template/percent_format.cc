// Python's "%s is %d" % values.
#include <algorithm>
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
  absl::StatusOr<FormatSpec> ReadSpec(size_t* at);
  absl::StatusOr<std::string> FormatValue(FormatSpec spec, const Value& value);

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

absl::StatusOr<FormatSpec> PercentFormatter::ReadSpec(size_t* at) {
  FormatSpec spec;
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
  PENSTOCK_ASSIGN_OR_RETURN(const auto width, ReadFormatNumber(format_, at, kMaxFormatWidth));
  spec.width = width.value_or(0);
  if (*at < format_.size() && format_[*at] == '.') {
    ++*at;
    if (*at < format_.size() && format_[*at] == '*') return Failure("%.* is not supported");
    PENSTOCK_ASSIGN_OR_RETURN(const auto precision,
                              ReadFormatNumber(format_, at, kMaxFormatPrecision));
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
  PENSTOCK_ASSIGN_OR_RETURN(FormatSpec spec, ReadSpec(at));
  if (spec.type == '%') {
    out_ += '%';
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Value value, NextValue());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, FormatValue(std::move(spec), value));
  out_ += text;
  return absl::OkStatus();
}

absl::StatusOr<std::string> PercentFormatter::FormatValue(FormatSpec spec, const Value& value) {
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

}  // namespace

absl::StatusOr<Value> FormatPercent(Interpreter& interpreter, const Value& format,
                                    const Value& values) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, PercentFormatter(interpreter, format, values).Run());
  return interpreter.NewStringLike(format, std::move(text));
}

}  // namespace penstock::jinja
