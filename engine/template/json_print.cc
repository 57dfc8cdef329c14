// json.dumps, by which `tojson` writes tool schemas and arguments: its spaces, its floats and its
// escapes are part of what a model is trained on.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Interpreter& interpreter, const JsonStyle& style, std::string* out)
      : interpreter_(interpreter), style_(style), out_(*out) {}

  absl::Status Append(const Value& value);

 private:
  void AppendString(std::string_view text);
  void AppendEscape(char32_t unit);
  absl::Status AppendList(const std::vector<Value>& items);
  absl::Status AppendDict(const Value& dict);
  absl::StatusOr<std::string> KeyText(const Value& key);
  void NewLine() {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += *style_.indent;
  }

  Interpreter& interpreter_;
  const JsonStyle& style_;
  std::string& out_;
  int depth_ = 0;
};

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FloatRepr(value);
}

absl::Status JsonPrinter::Append(const Value& value) {
  PENSTOCK_RETURN_IF_ERROR(interpreter_.Charge(value.is_string() ? value.weight() : 1));
  PENSTOCK_RETURN_IF_ERROR(interpreter_.CheckBytes(static_cast<int64_t>(out_.size())));
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return absl::OkStatus();
    case Kind::kBool:
      out_ += value.boolean() ? "true" : "false";
      return absl::OkStatus();
    case Kind::kInt:
      absl::StrAppend(&out_, value.integer());
      return absl::OkStatus();
    case Kind::kFloat:
      out_ += JsonFloat(value.number());
      return absl::OkStatus();
    case Kind::kString:
      AppendString(value.string());
      return absl::OkStatus();
    case Kind::kList:
    case Kind::kTuple:
      return AppendList(value.list());
    case Kind::kDict:
      return AppendDict(value);
    default:
      return Failure(
          absl::StrCat("tojson cannot write a value of type ", Absl(TypeName(value)),
                       value.is_undefined() ? " (" + value.As<UndefinedObject>().message + ")" : "",
                       value.is(Kind::kGenerator) ? "; make it a list with | list" : ""));
  }
}

void JsonPrinter::AppendEscape(char32_t unit) {
  const std::string digits = absl::StrCat(absl::Hex(static_cast<uint32_t>(unit), absl::kZeroPad4));
  absl::StrAppend(&out_, "\\u", digits);
}

void JsonPrinter::AppendString(std::string_view text) {
  constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  out_ += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text, &at);
    const size_t plain = c < 0x80 ? kPlain.find(static_cast<char>(c)) : kPlain.npos;
    if (plain != kPlain.npos) {
      out_ += '\\';
      out_ += kLetters[plain];
    } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
      AppendEscape(c);
    } else if (style_.ensure_ascii && c >= 0x10000) {
      AppendEscape(0xD800 + ((c - 0x10000) >> 10));
      AppendEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_ += text.substr(begin, at - begin);
    }
  }
  out_ += '"';
}

absl::Status JsonPrinter::AppendList(const std::vector<Value>& items) {
  if (items.empty()) {
    out_ += "[]";
    return absl::OkStatus();
  }
  out_ += '[';
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    NewLine();
    PENSTOCK_RETURN_IF_ERROR(Append(items[i]));
  }
  --depth_;
  NewLine();
  out_ += ']';
  return absl::OkStatus();
}

absl::StatusOr<std::string> JsonPrinter::KeyText(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key.string();
    case Kind::kNone:
      return std::string("null");
    case Kind::kBool:
      return std::string(key.boolean() ? "true" : "false");
    case Kind::kInt:
      return absl::StrCat(key.integer());
    case Kind::kFloat:
      return JsonFloat(key.number());
    default:
      return Failure(absl::StrCat("tojson cannot write a key of type ", Absl(TypeName(key))));
  }
}

absl::Status JsonPrinter::AppendDict(const Value& dict) {
  if (dict.dict().empty()) {
    out_ += "{}";
    return absl::OkStatus();
  }
  std::vector<DictItem> items = dict.dict();
  if (style_.sort_keys) {
    absl::Status failure;
    std::stable_sort(items.begin(), items.end(), [&](const DictItem& a, const DictItem& b) {
      const absl::StatusOr<bool> less = Less(interpreter_, a.first, b.first);
      if (!less.ok()) failure = less.status();
      return less.ok() && *less;
    });
    PENSTOCK_RETURN_IF_ERROR(failure);
  }
  out_ += '{';
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    NewLine();
    PENSTOCK_ASSIGN_OR_RETURN(const std::string key, KeyText(items[i].first));
    AppendString(key);
    out_ += style_.key_separator;
    PENSTOCK_RETURN_IF_ERROR(Append(items[i].second));
  }
  --depth_;
  NewLine();
  out_ += '}';
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendJson(Interpreter& interpreter, const Value& value, const JsonStyle& style,
                        std::string* out) {
  return JsonPrinter(interpreter, style, out).Append(value);
}

}  // namespace penstock::jinja
