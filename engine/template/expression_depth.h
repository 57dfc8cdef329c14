// How deep the tree of an expression is, as the parser builds it.
#pragma once

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/ast.h"

namespace penstock::jinja {

// The error of an expression that nests deeper than kMaxNesting.
absl::Status TooDeep(int line);

// Gives `node` its depth, or returns TooDeep. Chains (a + b + c, x.y.z) nest without any recursion
// of the parser.
absl::StatusOr<ExpressionPtr> Finish(ExpressionPtr node,
                                     std::initializer_list<const Expression*> children);

// Makes `node` deeper than the arguments of a call.
void Deepen(const ArgumentsSyntax& arguments, Expression* node);

}  // namespace penstock::jinja
