#include "engine/template/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/ast.h"
#include "engine/template/interpreter.h"
#include "engine/template/objects.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr int kMaxReprDepth = 200;  // above what values may nest; namespaces may go in circles

std::string Hex(uint32_t value, size_t width) {
  const std::string digits = absl::StrCat(absl::Hex(value, absl::kZeroPad8));
  return digits.substr(digits.size() - width);
}

class ReprPrinter {
 public:
  ReprPrinter(Interpreter& interpreter, std::string* out) : interpreter_(interpreter), out_(*out) {}

  absl::Status Append(const Value& value) {
    PENSTOCK_RETURN_IF_ERROR(interpreter_.Charge(1));
    PENSTOCK_RETURN_IF_ERROR(interpreter_.CheckBytes(static_cast<int64_t>(out_.size())));
    if (depth_ > kMaxReprDepth) return Failure("a value nests too deep to be printed");
    ++depth_;
    const absl::Status status = AppendValue(value);
    --depth_;
    return status;
  }

 private:
  absl::Status AppendValue(const Value& value);
  absl::Status AppendItems(const std::vector<Value>& items);
  absl::Status AppendDict(const std::vector<DictItem>& items);
  absl::Status AppendView(const DictViewObject& view);
  absl::Status AppendNamespace(const NamespaceObject& space);

  Interpreter& interpreter_;
  std::string& out_;
  int depth_ = 0;
};

absl::Status ReprPrinter::AppendItems(const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ", ";
    PENSTOCK_RETURN_IF_ERROR(Append(items[i]));
  }
  return absl::OkStatus();
}

absl::Status ReprPrinter::AppendDict(const std::vector<DictItem>& items) {
  out_ += '{';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ", ";
    PENSTOCK_RETURN_IF_ERROR(Append(items[i].first));
    out_ += ": ";
    PENSTOCK_RETURN_IF_ERROR(Append(items[i].second));
  }
  out_ += '}';
  return absl::OkStatus();
}

absl::Status ReprPrinter::AppendView(const DictViewObject& view) {
  out_ += view.part == DictPart::kKeys     ? "dict_keys(["
          : view.part == DictPart::kValues ? "dict_values(["
                                           : "dict_items([";
  const std::vector<DictItem>& items = view.dict.dict();
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ", ";
    if (view.part == DictPart::kItems) out_ += '(';
    if (view.part != DictPart::kValues) PENSTOCK_RETURN_IF_ERROR(Append(items[i].first));
    if (view.part == DictPart::kItems) out_ += ", ";
    if (view.part != DictPart::kKeys) PENSTOCK_RETURN_IF_ERROR(Append(items[i].second));
    if (view.part == DictPart::kItems) out_ += ')';
  }
  out_ += "])";
  return absl::OkStatus();
}

absl::Status ReprPrinter::AppendNamespace(const NamespaceObject& space) {
  std::vector<DictItem> items;
  for (const auto& [name, value] : space.attributes) {
    items.emplace_back(Value::String(name), value);
  }
  out_ += "<Namespace ";
  PENSTOCK_RETURN_IF_ERROR(AppendDict(items));
  out_ += '>';
  return absl::OkStatus();
}

absl::Status ReprPrinter::AppendValue(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out_ += "Undefined";
      return absl::OkStatus();
    case Kind::kNone:
      out_ += "None";
      return absl::OkStatus();
    case Kind::kBool:
      out_ += value.boolean() ? "True" : "False";
      return absl::OkStatus();
    case Kind::kInt:
      absl::StrAppend(&out_, value.integer());
      return absl::OkStatus();
    case Kind::kFloat:
      out_ += FloatRepr(value.number());
      return absl::OkStatus();
    case Kind::kString:
      PENSTOCK_RETURN_IF_ERROR(interpreter_.Charge(value.weight()));
      out_ += value.is_markup() ? absl::StrCat("Markup(", StringRepr(value.string()), ")")
                                : StringRepr(value.string());
      return absl::OkStatus();
    case Kind::kList:
      out_ += '[';
      PENSTOCK_RETURN_IF_ERROR(AppendItems(value.list()));
      out_ += ']';
      return absl::OkStatus();
    case Kind::kTuple:
      out_ += '(';
      PENSTOCK_RETURN_IF_ERROR(AppendItems(value.list()));
      out_ += value.list().size() == 1 ? ",)" : ")";
      return absl::OkStatus();
    case Kind::kDict:
      return AppendDict(value.dict());
    case Kind::kRange: {
      const auto& range = value.As<RangeObject>();
      absl::StrAppend(&out_, "range(", range.start, ", ", range.stop);
      if (range.step != 1) absl::StrAppend(&out_, ", ", range.step);
      out_ += ')';
      return absl::OkStatus();
    }
    case Kind::kNamespace:
      return AppendNamespace(value.As<NamespaceObject>());
    case Kind::kMacro: {
      const std::string& name = value.As<MacroObject>().definition->name;
      out_ += name.empty() ? "<Macro anonymous>" : absl::StrCat("<Macro '", name, "'>");
      return absl::OkStatus();
    }
    case Kind::kLoop: {
      auto& loop = value.As<LoopObject>();
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, interpreter_.LoopLength(loop));
      absl::StrAppend(&out_, "<LoopContext ", loop.index0 + 1, "/", length, ">");
      return absl::OkStatus();
    }
    case Kind::kDictView:
      return AppendView(value.As<DictViewObject>());
    case Kind::kGenerator:
      return Failure(absl::StrCat("the result of the filter ",
                                  Absl(value.As<GeneratorObject>().name),
                                  " is printed as an object; make it a list with | list"));
    case Kind::kMethod:
      return Failure(absl::StrCat("the method ", value.As<MethodObject>().name,
                                  " is printed instead of called; add ()"));
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner:
      return Failure(absl::StrCat("a ", Absl(TypeName(value)), " cannot be printed"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  int exponent = 0;
  const char* first = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(first, text.data() + text.size(), exponent);
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    absl::StrAppend(&out, exponent < 0 ? "e-" : "e+", std::abs(exponent) < 10 ? "0" : "",
                    std::abs(exponent));
    return out;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string StringRepr(std::string_view text) {
  const bool single = text.find('\'') == text.npos;
  const char quote = single || text.find('"') != text.npos ? '\'' : '"';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text, &at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out += text.substr(begin, at - begin);
    } else if (c < 0x100) {
      out += "\\x" + Hex(c, 2);
    } else if (c < 0x10000) {
      out += "\\u" + Hex(c, 4);
    } else {
      out += "\\U" + Hex(c, 8);
    }
  }
  out += quote;
  return out;
}

absl::Status AppendRepr(Interpreter& interpreter, const Value& value, std::string* out) {
  return ReprPrinter(interpreter, out).Append(value);
}

absl::Status AppendText(Interpreter& interpreter, const Value& value, std::string* out) {
  if (value.is_string()) {
    *out += value.string();
    return absl::OkStatus();
  }
  if (value.is_undefined()) return absl::OkStatus();
  return AppendRepr(interpreter, value, out);
}

}  // namespace penstock::jinja
