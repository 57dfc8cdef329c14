#include "engine/template/expression_depth.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/template/limits.h"
#include "engine/template/token.h"

namespace penstock::jinja {

absl::Status TooDeep(int line) {
  return SyntaxError(line, absl::StrCat("an expression nests deeper than ", kMaxNesting,
                                        " levels; set parts of it to variables"));
}

absl::StatusOr<ExpressionPtr> Finish(ExpressionPtr node,
                                     std::initializer_list<const Expression*> children) {
  for (const Expression* child : children) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  }
  if (node->depth > kMaxNesting) return TooDeep(node->line);
  return node;
}

void Deepen(const ArgumentsSyntax& arguments, Expression* node) {
  const auto add = [&](const ExpressionPtr& child) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  };
  for (const ExpressionPtr& argument : arguments.positional) add(argument);
  for (const auto& [name, argument] : arguments.named) add(argument);
  add(arguments.more_positional);
  add(arguments.more_named);
}

}  // namespace penstock::jinja
