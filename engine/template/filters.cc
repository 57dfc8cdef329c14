#include "engine/template/filters.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filter_functions.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr FilterEntry kFilters[] = {
    {"abs", FilterAbs},
    {"batch", FilterBatch},
    {"capitalize", FilterCapitalize},
    {"center", FilterCenter},
    {"count", FilterLength},
    {"d", FilterDefault},
    {"default", FilterDefault},
    {"dictsort", FilterDictSort},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"first", FilterFirst},
    {"float", FilterFloat},
    {"format", FilterFormat},
    {"indent", FilterIndent},
    {"int", FilterInt},
    {"items", FilterItems},
    {"join", FilterJoin},
    {"last", FilterLast},
    {"length", FilterLength},
    {"list", FilterList},
    {"lower", FilterLower},
    {"map", FilterMap},
    {"max", FilterMax},
    {"min", FilterMin},
    {"reject", FilterReject},
    {"rejectattr", FilterRejectAttribute},
    {"replace", FilterReplace},
    {"reverse", FilterReverse},
    {"round", FilterRound},
    {"safe", FilterSafe},
    {"select", FilterSelect},
    {"selectattr", FilterSelectAttribute},
    {"slice", FilterSlice},
    {"sort", FilterSort},
    {"string", FilterString},
    {"sum", FilterSum},
    {"title", FilterTitle},
    {"tojson", FilterToJson},
    {"trim", FilterTrim},
    {"truncate", FilterTruncate},
    {"unique", FilterUnique},
    {"upper", FilterUpper},
    {"wordcount", FilterWordCount},
};

}  // namespace

const FilterEntry* FindFilter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

absl::StatusOr<AttributePath> AttributePath::Parse(const std::optional<Value>& attribute) {
  AttributePath path;
  if (!attribute.has_value() || attribute->is_none()) return path;
  if (!attribute->is_string()) {
    path.parts_.push_back(*attribute);
    return path;
  }
  const std::string& text = attribute->string();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (digits && part.size() > 18) return Failure("an index in an attribute is too large");
    path.parts_.push_back(digits ? Value::Int(std::stoll(part)) : Value::String(part));
    begin = end + 1;
  }
  return path;
}

absl::StatusOr<Value> AttributePath::Get(Interpreter& interpreter, Value item,
                                         const std::optional<Value>& fallback) const {
  for (const Value& part : parts_) {
    PENSTOCK_ASSIGN_OR_RETURN(item, GetItem(interpreter, item, part));
    if (item.is_undefined() && fallback.has_value() && !fallback->is_none()) item = *fallback;
  }
  return item;
}

absl::StatusOr<Value> IgnoreCase(Interpreter& interpreter, Value value) {
  if (!value.is_string()) return value;
  return interpreter.NewStringLike(value, ToLower(value.string()));
}

absl::StatusOr<bool> FlagOr(Interpreter& interpreter, const std::optional<Value>& value,
                            bool missing) {
  if (!value.has_value()) return missing;
  return interpreter.Truth(*value);
}

absl::StatusOr<int64_t> IntegerOr(const std::optional<Value>& value, int64_t missing) {
  if (!value.has_value()) return missing;
  if (!value->is_integral()) return TypeFailure(*value, "stands where an integer is needed");
  return value->integer();
}

absl::StatusOr<Value> SoftString(Interpreter& interpreter, const Value& value) {
  if (value.is_string()) return value;
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, interpreter.ToText(value));
  return interpreter.NewString(std::move(text));
}

}  // namespace penstock::jinja
