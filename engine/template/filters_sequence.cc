// Filters that look at whole sequences.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filter_functions.h"
#include "engine/template/iterators.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"

namespace penstock::jinja {
namespace {

struct Keyed {
  Value key;
  Value item;
};

// Sorts by key; equal ones stay in order, in both directions.
absl::StatusOr<std::vector<Value>> Sorted(Interpreter& interpreter, std::vector<Keyed> items,
                                          bool reverse) {
  absl::Status failure;
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    const absl::StatusOr<bool> less =
        reverse ? Less(interpreter, b.key, a.key) : Less(interpreter, a.key, b.key);
    if (!less.ok()) failure = less.status();
    return less.ok() && *less;
  });
  PENSTOCK_RETURN_IF_ERROR(failure);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (Keyed& item : items) sorted.push_back(std::move(item.item));
  return sorted;
}

// The items of a sequence from its end, where Python's reversed() goes through it.
absl::StatusOr<std::unique_ptr<Iterator>> Reversed(Interpreter& interpreter, const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return std::make_unique<ReverseIterator>(value);
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange: {
      PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> items, interpreter.ToVector(value));
      std::reverse(items.begin(), items.end());
      return std::make_unique<VectorIterator>(std::move(items));
    }
    default:
      return TypeFailure(value, "cannot be gone through backwards");
  }
}

// The least or greatest item.
FilterResult Extreme(Interpreter& interpreter, const Value& value, std::string_view name,
                     CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments(name, std::move(arguments), {"case_sensitive", "attribute"}));
  PENSTOCK_ASSIGN_OR_RETURN(const bool case_sensitive, FlagOr(interpreter, bound[0], false));
  PENSTOCK_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[1]));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.ToVector(value));
  if (items.empty()) {
    return Interpreter::NewUndefined("No aggregated item, sequence was empty.");
  }
  Value best, best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(Value key, path.Get(interpreter, items[i]));
    if (!case_sensitive) {
      PENSTOCK_ASSIGN_OR_RETURN(key, IgnoreCase(interpreter, std::move(key)));
    }
    bool better = i == 0;
    if (!better) {
      PENSTOCK_ASSIGN_OR_RETURN(better, name == "min" ? Less(interpreter, key, best_key)
                                                      : Less(interpreter, best_key, key));
    }
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

}  // namespace

FilterResult FilterDefault(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("default", std::move(arguments), {"default_value", "boolean"}));
  bool replace = value.is_undefined();
  PENSTOCK_ASSIGN_OR_RETURN(const bool boolean, FlagOr(interpreter, bound[1], false));
  if (!replace && boolean) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool truth, interpreter.Truth(value));
    replace = !truth;
  }
  return replace ? bound[0].value_or(Value::String("")) : value;
}

FilterResult FilterDictSort(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("dictsort", std::move(arguments),
                                                      {"case_sensitive", "by", "reverse"}));
  PENSTOCK_ASSIGN_OR_RETURN(const bool case_sensitive, FlagOr(interpreter, bound[0], false));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t reverse, IntegerOr(bound[2], 0));
  const Value by = bound[1].value_or(Value::String("key"));
  const bool by_value = by.is_string() && by.string() == "value";
  if (!by_value && !(by.is_string() && by.string() == "key")) {
    return Failure("dictsort sorts by \"key\" or \"value\"");
  }
  if (!value.is_dict()) return TypeFailure(value, "is no dict to sort");
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.dict()) {
    Value sort_key = by_value ? item : key;
    if (!case_sensitive) {
      PENSTOCK_ASSIGN_OR_RETURN(sort_key, IgnoreCase(interpreter, std::move(sort_key)));
    }
    PENSTOCK_ASSIGN_OR_RETURN(Value pair, interpreter.NewTuple({key, item}));
    items.push_back({std::move(sort_key), std::move(pair)});
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> sorted,
                            Sorted(interpreter, std::move(items), reverse != 0));
  return interpreter.NewList(std::move(sorted));
}

FilterResult FilterSort(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("sort", std::move(arguments),
                                                      {"reverse", "case_sensitive", "attribute"}));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t reverse, IntegerOr(bound[0], 0));
  PENSTOCK_ASSIGN_OR_RETURN(const bool case_sensitive, FlagOr(interpreter, bound[1], false));
  // Several attributes may be named, with commas between them.
  std::vector<AttributePath> paths;
  std::vector<std::optional<Value>> names = {bound[2]};
  if (bound[2].has_value() && bound[2]->is_string()) {
    names.clear();
    const std::string& text = bound[2]->string();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      names.emplace_back(Value::String(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  for (const std::optional<Value>& name : names) {
    PENSTOCK_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(name));
    paths.push_back(std::move(path));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> values, interpreter.ToVector(value));
  std::vector<Keyed> items;
  for (const Value& item : values) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      PENSTOCK_ASSIGN_OR_RETURN(Value key, path.Get(interpreter, item));
      if (!case_sensitive) {
        PENSTOCK_ASSIGN_OR_RETURN(key, IgnoreCase(interpreter, std::move(key)));
      }
      keys.push_back(std::move(key));
    }
    // Compared as a list, which matters for values that are equal but have no order.
    PENSTOCK_ASSIGN_OR_RETURN(Value key, interpreter.NewTuple(std::move(keys)));
    items.push_back({std::move(key), item});
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> sorted,
                            Sorted(interpreter, std::move(items), reverse != 0));
  return interpreter.NewList(std::move(sorted));
}

FilterResult FilterFirst(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("first", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> iterator, interpreter.Iterate(value));
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(interpreter));
  if (item.has_value()) return *std::move(item);
  return Interpreter::NewUndefined("No first item, sequence was empty.");
}

FilterResult FilterLast(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("last", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> iterator, Reversed(interpreter, value));
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(interpreter));
  if (item.has_value()) return *std::move(item);
  return Interpreter::NewUndefined("No last item, sequence was empty.");
}

FilterResult FilterReverse(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("reverse", std::move(arguments), {}).status());
  if (value.is_string()) {
    return GetSlice(interpreter, value, Value::None(), Value::None(), Value::Int(-1));
  }
  if (value.is(Kind::kGenerator)) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> items, interpreter.ToVector(value));
    std::reverse(items.begin(), items.end());
    return interpreter.NewList(std::move(items));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Iterator> iterator, Reversed(interpreter, value));
  return interpreter.NewGenerator("reverse", std::move(iterator), value);
}

FilterResult FilterJoin(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("join", std::move(arguments), {"d", "attribute"}));
  PENSTOCK_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[1]));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string separator,
                            interpreter.ToText(bound[0].value_or(Value::String(""))));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> iterator, interpreter.Iterate(value));
  std::string out;
  for (bool first = true;; first = false) {
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(interpreter));
    if (!item.has_value()) return interpreter.NewString(std::move(out));
    if (!first) out += separator;
    PENSTOCK_ASSIGN_OR_RETURN(const Value part, path.Get(interpreter, *std::move(item)));
    PENSTOCK_RETURN_IF_ERROR(AppendText(interpreter, part, &out));
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(static_cast<int64_t>(out.size())));
  }
}

FilterResult FilterLength(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("length", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, interpreter.Length(value));
  return Value::Int(length);
}

FilterResult FilterList(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("list", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> items, interpreter.ToVector(value));
  return interpreter.NewList(std::move(items));
}

FilterResult FilterMin(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return Extreme(interpreter, value, "min", std::move(arguments));
}

FilterResult FilterMax(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return Extreme(interpreter, value, "max", std::move(arguments));
}

FilterResult FilterSum(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("sum", std::move(arguments), {"attribute", "start"}));
  PENSTOCK_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[0]));
  Value sum = bound[1].value_or(Value::Int(0));
  if (sum.is_string()) return Failure("sum adds no strings; use join");
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.ToVector(value));
  for (const Value& item : items) {
    PENSTOCK_ASSIGN_OR_RETURN(const Value part, path.Get(interpreter, item));
    PENSTOCK_ASSIGN_OR_RETURN(sum, Arithmetic(interpreter, Operator::kAdd, sum, part));
  }
  return sum;
}

}  // namespace penstock::jinja
