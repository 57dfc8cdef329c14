// Python's operators and subscripts on values.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/ast.h"
#include "engine/template/value.h"

namespace penstock::jinja {

class Interpreter;

// + - * / // % **
absl::StatusOr<Value> Arithmetic(Interpreter& interpreter, Operator op, const Value& left,
                                 const Value& right);
// Unary + and -.
absl::StatusOr<Value> Sign(Operator op, const Value& operand);
// == != < <= > >= in, not in.
absl::StatusOr<bool> Compare(Interpreter& interpreter, Operator op, const Value& left,
                             const Value& right);
absl::StatusOr<bool> Less(Interpreter& interpreter, const Value& left, const Value& right);
absl::StatusOr<bool> Contains(Interpreter& interpreter, const Value& container, const Value& item);

// object.name, object[key], object[start:stop:step] with None for a part that is missing; by the
// rules of jinja2's sandbox: what is not there is undefined.
absl::StatusOr<Value> GetAttribute(Interpreter& interpreter, const Value& object,
                                   std::string_view name);
absl::StatusOr<Value> GetItem(Interpreter& interpreter, const Value& object, const Value& key);
absl::StatusOr<Value> GetSlice(Interpreter& interpreter, const Value& object, const Value& start,
                               const Value& stop, const Value& step);

// Python's TypeError for a value that cannot be used so, or the message of an undefined value.
absl::Status TypeFailure(const Value& value, std::string_view problem);

// & < > ' " as HTML entities.
std::string EscapeHtml(std::string_view text);

}  // namespace penstock::jinja
