#include "engine/template/ast_walk.h"

namespace penstock::jinja {
namespace {

using VisitName = std::function<void(const std::string& name, NameUse use, int line)>;

void VisitArguments(ArgumentsSyntax& arguments, const std::function<void(Expression&)>& visit) {
  for (ExpressionPtr& argument : arguments.positional) visit(*argument);
  for (auto& [name, argument] : arguments.named) visit(*argument);
  if (arguments.more_positional != nullptr) visit(*arguments.more_positional);
  if (arguments.more_named != nullptr) visit(*arguments.more_named);
}

void NamesOf(Expression& expression, const VisitName& visit) {
  if (expression.kind == ExpressionKind::kName) {
    visit(static_cast<NameExpression&>(expression).name, NameUse::kRead, expression.line);
  }
  ForEachChild(expression, [&](Expression& child) { NamesOf(child, visit); });
}

void NamesOf(const ExpressionPtr& expression, const VisitName& visit) {
  if (expression != nullptr) NamesOf(*expression, visit);
}

void NamesOf(const Target& target, NameUse use, const VisitName& visit) {
  if (target.kind == Target::Kind::kName) visit(target.name, use, target.line);
  for (const Target& item : target.items) NamesOf(item, use, visit);
}

void NamesOf(const MacroDefinition& macro, int line, const VisitName& visit) {
  for (const MacroDefinition::Parameter& parameter : macro.parameters) {
    visit(parameter.name, NameUse::kParameter, line);
  }
  for (const MacroDefinition::Parameter& parameter : macro.parameters) {
    NamesOf(parameter.default_value, visit);
  }
  ForEachName(macro.body, visit);
}

void NamesOfFor(const ForStatement& node, const VisitName& visit) {
  NamesOf(node.target, NameUse::kStore, visit);
  NamesOf(node.iterable, visit);
  ForEachName(node.body, visit);
  ForEachName(node.otherwise, visit);
  NamesOf(node.condition, visit);
}

void NamesOfWith(const WithStatement& node, const VisitName& visit) {
  for (const auto& [target, value] : node.values) NamesOf(target, NameUse::kParameter, visit);
  for (const auto& [target, value] : node.values) NamesOf(value, visit);
  ForEachName(node.body, visit);
}

}  // namespace

void ForEachChild(Expression& expression, const std::function<void(Expression&)>& visit) {
  const auto maybe = [&](const ExpressionPtr& child) {
    if (child != nullptr) visit(*child);
  };
  switch (expression.kind) {
    case ExpressionKind::kConstant:
    case ExpressionKind::kName:
      return;
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
    case ExpressionKind::kDict:
    case ExpressionKind::kConcat:
      for (ExpressionPtr& item : static_cast<ItemsExpression&>(expression).items) visit(*item);
      return;
    case ExpressionKind::kUnary:
      return visit(*static_cast<UnaryExpression&>(expression).operand);
    case ExpressionKind::kBinary:
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      auto& node = static_cast<BinaryExpression&>(expression);
      visit(*node.left);
      return visit(*node.right);
    }
    case ExpressionKind::kCompare: {
      auto& node = static_cast<CompareExpression&>(expression);
      visit(*node.first);
      for (auto& [op, operand] : node.rest) visit(*operand);
      return;
    }
    case ExpressionKind::kAttribute:
      return visit(*static_cast<AttributeExpression&>(expression).object);
    case ExpressionKind::kItem: {
      auto& node = static_cast<ItemExpression&>(expression);
      visit(*node.object);
      return visit(*node.index);
    }
    case ExpressionKind::kSlice: {
      auto& node = static_cast<SliceExpression&>(expression);
      maybe(node.start);
      maybe(node.stop);
      return maybe(node.step);
    }
    case ExpressionKind::kCall: {
      auto& node = static_cast<CallExpression&>(expression);
      visit(*node.callee);
      return VisitArguments(node.arguments, visit);
    }
    case ExpressionKind::kFilter: {
      auto& node = static_cast<FilterExpression&>(expression);
      maybe(node.operand);
      return VisitArguments(node.arguments, visit);
    }
    case ExpressionKind::kTest: {
      auto& node = static_cast<TestExpression&>(expression);
      visit(*node.operand);
      return VisitArguments(node.arguments, visit);
    }
    case ExpressionKind::kConditional: {
      auto& node = static_cast<ConditionalExpression&>(expression);
      visit(*node.condition);
      visit(*node.then);
      return maybe(node.otherwise);
    }
  }
}

void ForEachName(const Block& block, const VisitName& visit) {
  for (const StatementPtr& statement : block) ForEachName(*statement, visit);
}

void ForEachName(const Statement& statement, const VisitName& visit) {
  switch (statement.kind) {
    case StatementKind::kOutput:
      for (const ExpressionPtr& part : static_cast<const OutputStatement&>(statement).parts) {
        NamesOf(*part, visit);
      }
      return;
    case StatementKind::kIf: {
      const auto& node = static_cast<const IfStatement&>(statement);
      for (const IfStatement::Branch& branch : node.branches) {
        NamesOf(branch.condition, visit);
        ForEachName(branch.body, visit);
      }
      return ForEachName(node.otherwise, visit);
    }
    case StatementKind::kFor:
      return NamesOfFor(static_cast<const ForStatement&>(statement), visit);
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      NamesOf(node.target, NameUse::kStore, visit);
      return NamesOf(node.value, visit);
    }
    case StatementKind::kSetBlock: {
      const auto& node = static_cast<const SetBlockStatement&>(statement);
      NamesOf(node.target, NameUse::kStore, visit);
      NamesOf(node.filter, visit);
      return ForEachName(node.body, visit);
    }
    case StatementKind::kMacro:
      return NamesOf(static_cast<const MacroStatement&>(statement).definition, statement.line,
                     visit);
    case StatementKind::kCallBlock: {
      const auto& node = static_cast<const CallBlockStatement&>(statement);
      NamesOf(node.call, visit);
      return NamesOf(node.caller, statement.line, visit);
    }
    case StatementKind::kFilterBlock: {
      const auto& node = static_cast<const FilterBlockStatement&>(statement);
      ForEachName(node.body, visit);
      return NamesOf(node.filter, visit);
    }
    case StatementKind::kWith:
      return NamesOfWith(static_cast<const WithStatement&>(statement), visit);
    case StatementKind::kGeneration:
      return NamesOf(static_cast<const GenerationStatement&>(statement).body, statement.line,
                     visit);
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return;
  }
}

}  // namespace penstock::jinja
