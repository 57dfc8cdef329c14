#include "engine/template/operators.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/string_format.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

absl::Status Overflow(Operator op) {
  return Failure(absl::StrCat("the result of ", Absl(SymbolOf(op)), " is beyond 64-bit integers"));
}

absl::Status CannotCombine(Operator op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) return TypeFailure(*side, "");
  }
  return Failure(absl::StrCat(
      Absl(SymbolOf(op)), " does not go with ", Absl(TypeName(left)), " and ",
      Absl(TypeName(right)),
      left.is_string() || right.is_string() ? "; use ~ or | string to make text of a value" : ""));
}

// Floor division and remainder as Python's: the remainder has the divisor's sign.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

double FloatModulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double FloatFloorDivide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  // Squares are only taken while they are still needed.
  while (exponent > 0 && !overflow) {
    if (exponent & 1) overflow = __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0) overflow = overflow || __builtin_mul_overflow(base, base, &base);
  }
  if (overflow) return Overflow(Operator::kPower);
  return Value::Int(result);
}

absl::StatusOr<Value> FloatPower(double base, double exponent) {
  if (base == 0 && exponent < 0) return Failure("0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(exponent) && std::isfinite(base) &&
      exponent != std::floor(exponent)) {
    return Failure("a negative number raised to a fraction is no real number");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    return Failure("the result of ** is too large");
  }
  return Value::Float(result);
}

absl::StatusOr<Value> IntegerArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow(op);
      return Value::Int(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow(op);
      return Value::Int(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow(op);
      return Value::Int(result);
    case Operator::kPower:
      if (b >= 0) return IntegerPower(a, b);
      return FloatPower(static_cast<double>(a), static_cast<double>(b));
    default:
      break;
  }
  if (b == 0) return Failure("division by zero");
  if (op == Operator::kDivide) {
    // Both fit long double's 64 bits, so that the quotient is rounded as Python's is, or nearly.
    return Value::Float(static_cast<double>(static_cast<long double>(a) / b));
  }
  if (b == -1) {
    if (op == Operator::kModulo) return Value::Int(0);
    if (a == INT64_MIN) return Overflow(op);
    return Value::Int(-a);
  }
  const int64_t quotient = FloorDivide(a, b);
  return Value::Int(op == Operator::kFloorDivide ? quotient : a - quotient * b);
}

absl::StatusOr<Value> FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      return FloatPower(a, b);
    default:
      break;
  }
  if (b == 0) return Failure("division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  return Value::Float(op == Operator::kModulo ? FloatModulo(a, b) : FloatFloorDivide(a, b));
}

// Markup escapes what it is joined with.
absl::StatusOr<Value> JoinStrings(Interpreter& interpreter, const Value& left, const Value& right) {
  const int64_t bytes =
      static_cast<int64_t>(left.string().size()) + static_cast<int64_t>(right.string().size());
  PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(bytes));
  if (left.is_markup() == right.is_markup()) {
    return interpreter.NewStringLike(left, left.string() + right.string());
  }
  const auto safe = [](const Value& side) {
    return side.is_markup() ? side.string() : EscapeHtml(side.string());
  };
  return interpreter.Checked(Value::Markup(safe(left) + safe(right)));
}

absl::StatusOr<Value> Repeat(Interpreter& interpreter, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  std::vector<Value> items;
  std::string text;
  const int64_t length = value.is_string() ? static_cast<int64_t>(value.string().size())
                                           : static_cast<int64_t>(value.list().size());
  int64_t size = 0;
  if (__builtin_mul_overflow(length, times, &size)) size = INT64_MAX;
  if (length == 0) times = 0;
  if (value.is_string()) {
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(size));
    text.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < times; ++i) text += value.string();
    return interpreter.NewStringLike(value, std::move(text));
  }
  PENSTOCK_RETURN_IF_ERROR(interpreter.CheckItems(size));
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.list().begin(), value.list().end());
  }
  return value.is_list() ? interpreter.NewList(std::move(items))
                         : interpreter.NewTuple(std::move(items));
}

absl::StatusOr<Value> JoinLists(Interpreter& interpreter, const Value& left, const Value& right) {
  PENSTOCK_RETURN_IF_ERROR(
      interpreter.CheckItems(static_cast<int64_t>(left.list().size() + right.list().size())));
  std::vector<Value> items = left.list();
  items.insert(items.end(), right.list().begin(), right.list().end());
  return left.is_list() ? interpreter.NewList(std::move(items))
                        : interpreter.NewTuple(std::move(items));
}

absl::StatusOr<bool> LessLists(Interpreter& interpreter, const Value& left, const Value& right) {
  const size_t common = std::min(left.list().size(), right.list().size());
  for (size_t i = 0; i < common; ++i) {
    const Value& a = left.list()[i];
    const Value& b = right.list()[i];
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(std::min(a.weight(), b.weight())));
    if (!SameObject(a, b) && !Equal(a, b)) return Less(interpreter, a, b);
  }
  return left.list().size() < right.list().size();
}

}  // namespace

absl::Status TypeFailure(const Value& value, std::string_view problem) {
  if (value.is_undefined()) return Failure(value.As<UndefinedObject>().message);
  return Failure(absl::StrCat("a value of type ", Absl(TypeName(value)), " ", Absl(problem)));
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

absl::StatusOr<Value> Arithmetic(Interpreter& interpreter, Operator op, const Value& left,
                                 const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return IntegerArithmetic(op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return FloatArithmetic(op, left.number(), right.number());
  }
  if (op == Operator::kModulo && left.is_string()) {
    return FormatPercent(interpreter, left, right);
  }
  if (op == Operator::kAdd) {
    if (left.is_string() && right.is_string()) return JoinStrings(interpreter, left, right);
    if (left.is_sequence() && left.kind() == right.kind()) {
      return JoinLists(interpreter, left, right);
    }
  }
  if (op == Operator::kMultiply) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral()) {
      return Repeat(interpreter, left, right.integer());
    }
    if ((right.is_string() || right.is_sequence()) && left.is_integral()) {
      return Repeat(interpreter, right, left.integer());
    }
  }
  return CannotCombine(op, left, right);
}

absl::StatusOr<Value> Sign(Operator op, const Value& operand) {
  if (operand.is_float()) {
    return Value::Float(op == Operator::kMinus ? -operand.number() : operand.number());
  }
  if (!operand.is_integral()) return TypeFailure(operand, "has no sign");
  if (op == Operator::kPlus) return Value::Int(operand.integer());
  if (operand.integer() == INT64_MIN) return Overflow(op);
  return Value::Int(-operand.integer());
}

absl::StatusOr<bool> Less(Interpreter& interpreter, const Value& left, const Value& right) {
  PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
  if (left.is_integral() && right.is_integral()) return left.integer() < right.integer();
  if (left.is_number() && right.is_number()) {
    // long double holds an int64_t exactly.
    const auto exact = [](const Value& value) {
      return value.is_float() ? static_cast<long double>(value.number())
                              : static_cast<long double>(value.integer());
    };
    return exact(left) < exact(right);
  }
  if (left.is_string() && right.is_string()) {
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(std::min(left.weight(), right.weight())));
    return left.string() < right.string();  // UTF-8 sorts as its code points do.
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    return LessLists(interpreter, left, right);
  }
  return CannotCombine(Operator::kLess, left, right);
}

absl::StatusOr<bool> Compare(Interpreter& interpreter, Operator op, const Value& left,
                             const Value& right) {
  switch (op) {
    case Operator::kEqual:
    case Operator::kNotEqual:
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(std::min(left.weight(), right.weight())));
      return Equal(left, right) == (op == Operator::kEqual);
    case Operator::kLess:
      return Less(interpreter, left, right);
    case Operator::kGreater:
      return Less(interpreter, right, left);
    case Operator::kLessEqual:
    case Operator::kGreaterEqual: {
      const Value& low = op == Operator::kLessEqual ? left : right;
      const Value& high = op == Operator::kLessEqual ? right : left;
      PENSTOCK_ASSIGN_OR_RETURN(const bool less, Less(interpreter, low, high));
      if (less) return true;
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(std::min(low.weight(), high.weight())));
      return Equal(low, high);
    }
    case Operator::kIn:
      return Contains(interpreter, right, left);
    case Operator::kNotIn: {
      PENSTOCK_ASSIGN_OR_RETURN(const bool contains, Contains(interpreter, right, left));
      return !contains;
    }
    default:
      return Failure("no comparison");
  }
}

absl::StatusOr<bool> Contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return TypeFailure(item, "cannot be looked for in a string");
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(container.weight()));
    return FindText(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_dict() ||
      (container.is(Kind::kDictView) && container.As<DictViewObject>().part == DictPart::kKeys)) {
    if (!IsHashable(item)) return TypeFailure(item, "cannot be a key");
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(item.weight()));
    const Value& dict = container.is_dict() ? container : container.As<DictViewObject>().dict;
    return dict.Find(item) != nullptr;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> iterator,
                            interpreter.Iterate(container));
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Value> candidate, iterator->Next(interpreter));
    if (!candidate.has_value()) return false;
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(std::min(item.weight(), candidate->weight())));
    if (SameObject(*candidate, item) || Equal(*candidate, item)) return true;
  }
}

}  // namespace penstock::jinja
