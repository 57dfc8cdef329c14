// Filters that make text.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filter_functions.h"
#include "engine/template/methods.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/string_format.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

// The text of `value` after the string method `name`.
FilterResult ByMethod(Interpreter& interpreter, const Value& value, std::string_view name,
                      CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value text, SoftString(interpreter, value));
  return CallStringMethod(interpreter, text, name, std::move(arguments));
}

FilterResult ByPlainMethod(Interpreter& interpreter, const Value& value, std::string_view name,
                           CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments(name, std::move(arguments), {}).status());
  return ByMethod(interpreter, value, name, {});
}

}  // namespace

FilterResult FilterCapitalize(Interpreter& interpreter, const Value& value,
                              CallArguments arguments) {
  return ByPlainMethod(interpreter, value, "capitalize", std::move(arguments));
}

FilterResult FilterLower(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return ByPlainMethod(interpreter, value, "lower", std::move(arguments));
}

FilterResult FilterUpper(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return ByPlainMethod(interpreter, value, "upper", std::move(arguments));
}

FilterResult FilterCenter(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("center", std::move(arguments), {"width"}));
  CallArguments width;
  width.positional.push_back(bound[0].value_or(Value::Int(80)));
  return ByMethod(interpreter, value, "center", std::move(width));
}

FilterResult FilterTrim(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("trim", std::move(arguments), {"chars"}));
  CallArguments characters;
  characters.positional.push_back(bound[0].value_or(Value::None()));
  return ByMethod(interpreter, value, "strip", std::move(characters));
}

FilterResult FilterEscape(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("escape", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const Value text, SoftString(interpreter, value));
  if (text.is_markup()) return text;
  return interpreter.Checked(Value::Markup(EscapeHtml(text.string())));
}

FilterResult FilterSafe(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("safe", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, interpreter.ToText(value));
  return interpreter.Checked(Value::Markup(std::move(text)));
}

FilterResult FilterString(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("string", std::move(arguments), {}).status());
  return SoftString(interpreter, value);
}

FilterResult FilterFormat(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return Failure("format takes arguments with names or without, not both");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Value format, SoftString(interpreter, value));
  Value values;
  if (arguments.named.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(values, interpreter.NewTuple(std::move(arguments.positional)));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(values, interpreter.Checked(Value::Dict(std::move(arguments.named))));
  }
  return FormatPercent(interpreter, format, values);
}

FilterResult FilterReplace(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("replace", std::move(arguments), {"old", "new", "count"}, 2));
  if (bound[2].has_value() && bound[2]->is_none()) bound[2].reset();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t limit, IntegerOr(bound[2], -1));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, interpreter.ToText(value));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string old, interpreter.ToText(*bound[0]));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string fresh, interpreter.ToText(*bound[1]));
  PENSTOCK_ASSIGN_OR_RETURN(std::string replaced,
                            ReplaceText(interpreter, text, old, fresh, limit));
  return interpreter.NewString(std::move(replaced));
}

// A capital after white space and each of - ( { [ <, small letters elsewhere.
FilterResult FilterTitle(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("title", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const Value string, SoftString(interpreter, value));
  const std::string_view text = string.string();
  const auto separates = [](char32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (separates(NextCodePoint(text, &at))) {
      out += text.substr(begin, at - begin);
      continue;
    }
    const size_t rest = at;
    while (at < text.size()) {
      size_t next = at;
      if (separates(NextCodePoint(text, &next))) break;
      at = next;
    }
    out += ToUpper(text.substr(begin, rest - begin)) + ToLower(text.substr(rest, at - rest));
  }
  return interpreter.NewString(std::move(out));
}

FilterResult FilterIndent(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("indent", std::move(arguments), {"width", "first", "blank"}));
  PENSTOCK_ASSIGN_OR_RETURN(const bool first, FlagOr(interpreter, bound[1], false));
  PENSTOCK_ASSIGN_OR_RETURN(const bool blank, FlagOr(interpreter, bound[2], false));
  std::string indent;
  if (bound[0].has_value() && bound[0]->is_string()) {
    indent = bound[0]->string();
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[0], 4));
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(width));
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (!value.is_string()) return TypeFailure(value, "cannot be indented");
  const Value text = Value::String(value.string() + "\n");
  PENSTOCK_ASSIGN_OR_RETURN(const Value lines,
                            CallStringMethod(interpreter, text, "splitlines", {}));
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.list().size(); ++i) {
    const std::string& line = lines.list()[i].string();
    if (i > 0) {
      out += '\n';
      if (blank || !line.empty()) out += indent;
    }
    out += line;
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(static_cast<int64_t>(out.size())));
  }
  return interpreter.NewStringLike(value, std::move(out));
}

FilterResult FilterTruncate(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("truncate", std::move(arguments),
                                                      {"length", "killwords", "end", "leeway"}));
  const Value end = bound[2].value_or(Value::String("..."));
  if (!end.is_string()) return TypeFailure(end, "stands where a string is needed");
  if (bound[3].has_value() && bound[3]->is_none()) bound[3].reset();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, IntegerOr(bound[0], 255));
  PENSTOCK_ASSIGN_OR_RETURN(const bool kill_words, FlagOr(interpreter, bound[1], false));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t leeway, IntegerOr(bound[3], 5));
  if (length < end.string_length()) return Failure("truncate: the length is less than the end's");
  if (leeway < 0) return Failure("truncate: the leeway is negative");
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, interpreter.Length(value));
  if (length > INT64_MAX - leeway || size <= length + leeway) return value;
  if (!value.is_string()) return TypeFailure(value, "cannot be truncated");
  const std::string& text = value.string();
  std::string cut = text.substr(0, ByteOffset(text, length - end.string_length()));
  if (!kill_words) cut = cut.substr(0, cut.rfind(' '));
  // Markup escapes what it is joined with.
  const Value head =
      value.is_markup() ? Value::Markup(std::move(cut)) : Value::String(std::move(cut));
  return Arithmetic(interpreter, Operator::kAdd, head, end);
}

FilterResult FilterWordCount(Interpreter& interpreter, const Value& value,
                             CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("wordcount", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const Value string, SoftString(interpreter, value));
  const std::string_view text = string.string();
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCodePoint(text, &at);
    const bool word = c == '_' || IsAlphabetic(c) || IsDigit(c);
    if (word && !in_word) ++count;
    in_word = word;
  }
  return Value::Int(count);
}

FilterResult FilterToJson(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("tojson", std::move(arguments),
                                          {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  PENSTOCK_ASSIGN_OR_RETURN(style.ensure_ascii, FlagOr(interpreter, bound[0], false));
  PENSTOCK_ASSIGN_OR_RETURN(style.sort_keys, FlagOr(interpreter, bound[3], false));
  if (bound[1].has_value() && !bound[1]->is_none()) {
    if (bound[1]->is_string()) {
      style.indent = bound[1]->string();
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[1], 0));
      PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(width));
      style.indent.emplace(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> separators, interpreter.ToVector(*bound[2]));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return Failure("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].string();
    style.key_separator = separators[1].string();
  }
  std::string out;
  PENSTOCK_RETURN_IF_ERROR(AppendJson(interpreter, value, style, &out));
  return interpreter.NewString(std::move(out));
}

}  // namespace penstock::jinja
