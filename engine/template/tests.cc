#include "engine/template/tests.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/ast.h"
#include "engine/template/filters.h"
#include "engine/template/interpreter.h"
#include "engine/template/methods.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

using TestResult = absl::StatusOr<bool>;

// A test without arguments, by a predicate on the value.
template <bool (*predicate)(const Value&)>
TestResult Plain(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("the test", std::move(arguments), {}).status());
  return predicate(value);
}

// A test with one argument, by an operator.
template <Operator op>
TestResult ByOperator(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("the test", std::move(arguments), {""}, 1));
  return Compare(interpreter, op, value, *bound[0]);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.boolean(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.boolean(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsEscaped(const Value& value) { return value.is_string() && value.is_markup(); }

// Has a length and items by index.
bool IsSequence(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is(Kind::kRange) ||
         value.is_undefined();
}

bool IsIterable(const Value& value) {
  return IsSequence(value) || value.is(Kind::kGenerator) || value.is(Kind::kDictView) ||
         value.is(Kind::kLoop);
}

bool IsCallable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kMethod) || value.is(Kind::kMacro) ||
         value.is(Kind::kLoop) || value.is(Kind::kJoiner) || value.is_undefined();
}

// value % divisor == wanted
TestResult HasRemainder(Interpreter& interpreter, const Value& value, const Value& divisor,
                        int64_t wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value rest,
                            Arithmetic(interpreter, Operator::kModulo, value, divisor));
  return Equal(rest, Value::Int(wanted));
}

TestResult IsOdd(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("odd", std::move(arguments), {}).status());
  return HasRemainder(interpreter, value, Value::Int(2), 1);
}

TestResult IsEven(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("even", std::move(arguments), {}).status());
  return HasRemainder(interpreter, value, Value::Int(2), 0);
}

TestResult IsDivisible(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("divisibleby", std::move(arguments), {"num"}, 1));
  return HasRemainder(interpreter, value, *bound[0], 0);
}

TestResult IsCase(Interpreter& interpreter, const Value& value, std::string_view method,
                  CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("the test", std::move(arguments), {}).status());
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, interpreter.ToText(value));
  PENSTOCK_ASSIGN_OR_RETURN(
      const Value result,
      CallStringMethod(interpreter, Value::String(std::move(text)), method, {}));
  return result.boolean();
}

TestResult IsLower(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return IsCase(interpreter, value, "islower", std::move(arguments));
}

TestResult IsUpper(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return IsCase(interpreter, value, "isupper", std::move(arguments));
}

TestResult IsSameAs(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("sameas", std::move(arguments), {"other"}, 1));
  return SameObject(value, *bound[0]);
}

TestResult IsIn(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("in", std::move(arguments), {"seq"}, 1));
  return Contains(interpreter, *bound[0], value);
}

TestResult IsFilter(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("filter", std::move(arguments), {}).status());
  if (!IsHashable(value)) return TypeFailure(value, "is no name");
  return value.is_string() && FindFilter(value.string()) != nullptr;
}

TestResult IsTest(Interpreter&, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("test", std::move(arguments), {}).status());
  if (!IsHashable(value)) return TypeFailure(value, "is no name");
  return value.is_string() && FindTest(value.string()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", ByOperator<Operator::kEqual>},
    {"equalto", ByOperator<Operator::kEqual>},
    {"==", ByOperator<Operator::kEqual>},
    {"escaped", Plain<IsEscaped>},
    {"even", IsEven},
    {"false", Plain<IsFalse>},
    {"filter", IsFilter},
    {"float", Plain<IsFloat>},
    {"ge", ByOperator<Operator::kGreaterEqual>},
    {">=", ByOperator<Operator::kGreaterEqual>},
    {"greaterthan", ByOperator<Operator::kGreater>},
    {"gt", ByOperator<Operator::kGreater>},
    {">", ByOperator<Operator::kGreater>},
    {"in", IsIn},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"le", ByOperator<Operator::kLessEqual>},
    {"<=", ByOperator<Operator::kLessEqual>},
    {"lessthan", ByOperator<Operator::kLess>},
    {"lower", IsLower},
    {"lt", ByOperator<Operator::kLess>},
    {"<", ByOperator<Operator::kLess>},
    {"mapping", Plain<IsMapping>},
    {"ne", ByOperator<Operator::kNotEqual>},
    {"!=", ByOperator<Operator::kNotEqual>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", IsOdd},
    {"sameas", IsSameAs},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", IsTest},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", IsUpper},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  for (const TestEntry& entry : kTests) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace penstock::jinja
