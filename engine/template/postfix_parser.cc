// The half of the expression parser that goes on after an operand: attributes, items, calls,
// filters and tests, with their arguments.
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/expression_depth.h"
#include "engine/template/expression_parser.h"
#include "engine/template/limits.h"

namespace penstock::jinja {

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (tokens_.IsOperator("[")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseItem(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilterExpression(ExpressionPtr node) {
  while (true) {
    if (tokens_.IsOperator("|")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (tokens_.IsName("is")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      PENSTOCK_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  if (tokens_.Is(TokenType::kInteger)) {
    auto node = std::make_unique<ItemExpression>(line);
    node->object = std::move(object);
    node->index = std::make_unique<ConstantExpression>(line, Value::Int(tokens_.current().integer));
    tokens_.Take();
    const Expression* child = node->object.get();
    return Finish(std::move(node), {child});
  }
  auto node = std::make_unique<AttributeExpression>(line);
  node->object = std::move(object);
  PENSTOCK_ASSIGN_OR_RETURN(const Token name, tokens_.Expect(TokenType::kName, "a name"));
  node->name = name.text;
  const Expression* child = node->object.get();
  return Finish(std::move(node), {child});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseItem(ExpressionPtr object) {
  auto node = std::make_unique<ItemExpression>(tokens_.Take().line);
  node->object = std::move(object);
  auto tuple = std::make_unique<ItemsExpression>(ExpressionKind::kTuple, node->line);
  while (!tokens_.IsOperator("]")) {
    if (!tuple->items.empty()) PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr index, ParseIndex());
    tuple->depth = std::max(tuple->depth, index->depth + 1);
    tuple->items.push_back(std::move(index));
  }
  tokens_.Take();
  if (tuple->items.size() == 1) {
    node->index = std::move(tuple->items[0]);
  } else {
    for (const ExpressionPtr& item : tuple->items) {
      if (item->kind == ExpressionKind::kSlice) {
        return SyntaxError(node->line, "a slice among several indices is not supported");
      }
    }
    node->index = std::move(tuple);
  }
  const std::initializer_list<const Expression*> children = {node->object.get(), node->index.get()};
  return Finish(std::move(node), children);
}

// An expression or a slice: a:b:c, each part may be missing.
absl::StatusOr<ExpressionPtr> ExpressionParser::ParseIndex() {
  auto slice = std::make_unique<SliceExpression>(tokens_.line());
  const auto ends = [this] { return tokens_.IsOperator("]") || tokens_.IsOperator(","); };
  if (!tokens_.IsOperator(":")) {
    PENSTOCK_ASSIGN_OR_RETURN(slice->start, ParseExpression());
    if (!tokens_.IsOperator(":")) return std::move(slice->start);
  }
  tokens_.Take();
  if (!tokens_.IsOperator(":") && !ends()) {
    PENSTOCK_ASSIGN_OR_RETURN(slice->stop, ParseExpression());
  }
  if (tokens_.TakeOperator(":") && !ends()) {
    PENSTOCK_ASSIGN_OR_RETURN(slice->step, ParseExpression());
  }
  const std::initializer_list<const Expression*> children = {slice->start.get(), slice->stop.get(),
                                                             slice->step.get()};
  return Finish(std::move(slice), children);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr callee) {
  auto node = std::make_unique<CallExpression>(tokens_.line());
  node->callee = std::move(callee);
  PENSTOCK_RETURN_IF_ERROR(ParseArguments(&node->arguments));
  Deepen(node->arguments, node.get());
  const Expression* child = node->callee.get();
  return Finish(std::move(node), {child});
}

absl::Status ExpressionParser::ParseArguments(ArgumentsSyntax* arguments) {
  const int line = tokens_.line();
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.IsOperator(")")) {
    PENSTOCK_RETURN_IF_ERROR(ParseArgument(line, arguments));
    if (!tokens_.TakeOperator(",")) break;
  }
  return tokens_.ExpectOperator(")");
}

absl::Status ExpressionParser::ParseArgument(int line, ArgumentsSyntax* arguments) {
  const bool more_given = arguments->more_positional != nullptr || arguments->more_named != nullptr;
  if (tokens_.TakeOperator("*")) {
    if (more_given) return SyntaxError(line, "a call takes one *list, before a **dict");
    PENSTOCK_ASSIGN_OR_RETURN(arguments->more_positional, ParseExpression());
    return absl::OkStatus();
  }
  if (tokens_.TakeOperator("**")) {
    if (arguments->more_named != nullptr) return SyntaxError(line, "a call takes one **dict");
    PENSTOCK_ASSIGN_OR_RETURN(arguments->more_named, ParseExpression());
    return absl::OkStatus();
  }
  if (tokens_.Is(TokenType::kName) && tokens_.next().IsOperator("=")) {
    const std::string name = tokens_.Take().text;
    tokens_.Take();
    if (arguments->more_named != nullptr) {
      return SyntaxError(line, "a named argument stands after **dict");
    }
    if (std::ssize(arguments->named) >= kMaxParameters) {
      return SyntaxError(line,
                         absl::StrCat("a call has more than ", kMaxParameters, " named arguments"));
    }
    for (const auto& [other, value] : arguments->named) {
      if (other == name) {
        return SyntaxError(line, absl::StrCat("the argument ", name, " is given twice"));
      }
    }
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    arguments->named.emplace_back(name, std::move(value));
    return absl::OkStatus();
  }
  if (more_given || !arguments->named.empty()) {
    return SyntaxError(line, "an argument without a name stands after one with a name");
  }
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
  arguments->positional.push_back(std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr operand) {
  while (tokens_.TakeOperator("|")) {
    PENSTOCK_ASSIGN_OR_RETURN(operand, ParseFilter(std::move(operand)));
  }
  return operand;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilterBlockHead() {
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr first, ParseFilter(nullptr));
  return ParseFilters(std::move(first));
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  PENSTOCK_ASSIGN_OR_RETURN(const Token first, tokens_.Expect(TokenType::kName, "a name"));
  std::string name = first.text;
  while (tokens_.TakeOperator(".")) {
    PENSTOCK_ASSIGN_OR_RETURN(const Token part, tokens_.Expect(TokenType::kName, "a name"));
    absl::StrAppend(&name, ".", part.text);
  }
  return name;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr operand) {
  auto node = std::make_unique<FilterExpression>(tokens_.line());
  node->operand = std::move(operand);
  PENSTOCK_ASSIGN_OR_RETURN(node->name, ParseDottedName());
  if (tokens_.IsOperator("(")) PENSTOCK_RETURN_IF_ERROR(ParseArguments(&node->arguments));
  Deepen(node->arguments, node.get());
  const Expression* child = node->operand.get();
  return Finish(std::move(node), {child});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr operand) {
  const int line = tokens_.Take().line;
  const bool negated = tokens_.TakeName("not");
  auto node = std::make_unique<TestExpression>(line);
  node->operand = std::move(operand);
  PENSTOCK_ASSIGN_OR_RETURN(node->name, ParseDottedName());
  PENSTOCK_RETURN_IF_ERROR(ParseTestArguments(&node->arguments));
  Deepen(node->arguments, node.get());
  const Expression* child = node->operand.get();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr result, Finish(std::move(node), {child}));
  if (!negated) return result;
  auto negation = std::make_unique<UnaryExpression>(line, Operator::kNot);
  negation->operand = std::move(result);
  child = negation->operand.get();
  return Finish(std::move(negation), {child});
}

// In parentheses, or a single one without: x is divisibleby 3.
absl::Status ExpressionParser::ParseTestArguments(ArgumentsSyntax* arguments) {
  if (tokens_.IsOperator("(")) return ParseArguments(arguments);
  switch (tokens_.current().type) {
    case TokenType::kName:
      if (tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and")) {
        return absl::OkStatus();
      }
      if (tokens_.IsName("is")) {
        return SyntaxError(tokens_.line(), "tests cannot be chained with `is`; use `and`");
      }
      break;
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
      break;
    default:
      if (tokens_.IsOperator("[") || tokens_.IsOperator("{")) break;
      return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
  PENSTOCK_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
  arguments->positional.push_back(std::move(argument));
  return absl::OkStatus();
}

}  // namespace penstock::jinja
