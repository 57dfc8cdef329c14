// The expressions of a template: recursive descent, one function for each level of precedence.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/ast.h"
#include "engine/template/token_stream.h"

namespace penstock::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  enum class Conditionals { kAllowed, kLeftAlone };  // of "a if b else c"

  absl::StatusOr<ExpressionPtr> ParseExpression(Conditionals conditionals = Conditionals::kAllowed);
  // One expression, or several with commas between them: a tuple. `end_name` also ends it.
  absl::StatusOr<ExpressionPtr> ParseTuple(Conditionals conditionals = Conditionals::kAllowed,
                                           std::string_view end_name = "");
  // What `for` and `with` assign to; `end_name` ends it.
  absl::StatusOr<Target> ParseTarget(std::string_view end_name = "");
  // What `set` assigns to: that, or namespace.name.
  absl::StatusOr<Target> ParseSetTarget();
  // | filter | filter(...): around `operand`, which may be null, as may be the result.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr operand);
  // filter(...) | filter: the first one without its |.
  absl::StatusOr<ExpressionPtr> ParseFilterBlockHead();

 private:
  class Nesting;

  absl::StatusOr<ExpressionPtr> ParseConditional();
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseCompare();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  enum class Filters { kAllowed, kLeftAlone };
  absl::StatusOr<ExpressionPtr> ParseUnary(Filters filters);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseName();
  absl::StatusOr<ExpressionPtr> ParseParentheses();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseFilterExpression(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseAttribute(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseItem(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseIndex();
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr callee);
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand);
  absl::Status ParseTestArguments(ArgumentsSyntax* arguments);
  absl::StatusOr<std::string> ParseDottedName();
  absl::Status ParseArguments(ArgumentsSyntax* arguments);
  absl::Status ParseArgument(int line, ArgumentsSyntax* arguments);
  absl::StatusOr<ExpressionPtr> MakeBinary(ExpressionKind kind, Operator op, int line,
                                           ExpressionPtr left, ExpressionPtr right);
  absl::StatusOr<Target> ToTarget(const Expression& expression);

  TokenStream& tokens_;
  int nesting_ = 0;  // of the calls of this parser
};

}  // namespace penstock::jinja
