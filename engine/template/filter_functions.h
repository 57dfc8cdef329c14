// The functions behind the filters' names, by file, and what they share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/interpreter.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

using FilterResult = absl::StatusOr<Value>;

// ---- filters_text.cc
FilterResult FilterCapitalize(Interpreter&, const Value&, CallArguments);
FilterResult FilterCenter(Interpreter&, const Value&, CallArguments);
FilterResult FilterEscape(Interpreter&, const Value&, CallArguments);
FilterResult FilterFormat(Interpreter&, const Value&, CallArguments);
FilterResult FilterIndent(Interpreter&, const Value&, CallArguments);
FilterResult FilterLower(Interpreter&, const Value&, CallArguments);
FilterResult FilterReplace(Interpreter&, const Value&, CallArguments);
FilterResult FilterSafe(Interpreter&, const Value&, CallArguments);
FilterResult FilterString(Interpreter&, const Value&, CallArguments);
FilterResult FilterTitle(Interpreter&, const Value&, CallArguments);
FilterResult FilterToJson(Interpreter&, const Value&, CallArguments);
FilterResult FilterTrim(Interpreter&, const Value&, CallArguments);
FilterResult FilterTruncate(Interpreter&, const Value&, CallArguments);
FilterResult FilterUpper(Interpreter&, const Value&, CallArguments);
FilterResult FilterWordCount(Interpreter&, const Value&, CallArguments);

// ---- filters_number.cc
FilterResult FilterAbs(Interpreter&, const Value&, CallArguments);
FilterResult FilterFloat(Interpreter&, const Value&, CallArguments);
FilterResult FilterInt(Interpreter&, const Value&, CallArguments);
FilterResult FilterRound(Interpreter&, const Value&, CallArguments);

// ---- filters_sequence.cc
FilterResult FilterDefault(Interpreter&, const Value&, CallArguments);
FilterResult FilterDictSort(Interpreter&, const Value&, CallArguments);
FilterResult FilterFirst(Interpreter&, const Value&, CallArguments);
FilterResult FilterJoin(Interpreter&, const Value&, CallArguments);
FilterResult FilterLast(Interpreter&, const Value&, CallArguments);
FilterResult FilterLength(Interpreter&, const Value&, CallArguments);
FilterResult FilterList(Interpreter&, const Value&, CallArguments);
FilterResult FilterMax(Interpreter&, const Value&, CallArguments);
FilterResult FilterMin(Interpreter&, const Value&, CallArguments);
FilterResult FilterSort(Interpreter&, const Value&, CallArguments);
FilterResult FilterSum(Interpreter&, const Value&, CallArguments);

// ---- filters_lazy.cc: their results compute items when asked
FilterResult FilterBatch(Interpreter&, const Value&, CallArguments);
FilterResult FilterItems(Interpreter&, const Value&, CallArguments);
FilterResult FilterMap(Interpreter&, const Value&, CallArguments);
FilterResult FilterReject(Interpreter&, const Value&, CallArguments);
FilterResult FilterRejectAttribute(Interpreter&, const Value&, CallArguments);
FilterResult FilterReverse(Interpreter&, const Value&, CallArguments);
FilterResult FilterSelect(Interpreter&, const Value&, CallArguments);
FilterResult FilterSelectAttribute(Interpreter&, const Value&, CallArguments);
FilterResult FilterSlice(Interpreter&, const Value&, CallArguments);
FilterResult FilterUnique(Interpreter&, const Value&, CallArguments);

// ---- Shared
// A value by a path: "a.b.0" looks up a, b and 0 in turn; an integer looks up itself; None (or
// nothing) is the value.
class AttributePath {
 public:
  static absl::StatusOr<AttributePath> Parse(const std::optional<Value>& attribute);
  // With `fallback` in place of what is undefined, unless it is nullopt or None.
  absl::StatusOr<Value> Get(Interpreter& interpreter, Value item,
                            const std::optional<Value>& fallback = std::nullopt) const;

 private:
  std::vector<Value> parts_;
};

// Strings in lower case, other values as they are: what sorting compares by default.
absl::StatusOr<Value> IgnoreCase(Interpreter& interpreter, Value value);

absl::StatusOr<bool> FlagOr(Interpreter& interpreter, const std::optional<Value>& value,
                            bool missing);
absl::StatusOr<int64_t> IntegerOr(const std::optional<Value>& value, int64_t missing);
// The string itself, or the text of another value.
absl::StatusOr<Value> SoftString(Interpreter& interpreter, const Value& value);

}  // namespace penstock::jinja
