#include "engine/template/expression_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/expression_depth.h"
#include "engine/template/limits.h"

namespace penstock::jinja {
namespace {

using Node = ExpressionKind;

struct OperatorToken {
  std::string_view token;
  Operator op;
};
constexpr OperatorToken kComparisons[] = {
    {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
constexpr OperatorToken kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr OperatorToken kProducts[] = {{"*", Operator::kMultiply},
                                       {"/", Operator::kDivide},
                                       {"//", Operator::kFloorDivide},
                                       {"%", Operator::kModulo}};

template <size_t n>
const OperatorToken* FindOperator(const TokenStream& tokens, const OperatorToken (&table)[n]) {
  for (const OperatorToken& entry : table) {
    if (tokens.IsOperator(entry.token)) return &entry;
  }
  return nullptr;
}

}  // namespace

std::string_view SymbolOf(Operator op) {
  constexpr std::string_view kSymbols[] = {"+",   "-",  "*",  "/", "//", "%", "**", "+",  "-",
                                           "not", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

// Counts a level while it lives; `ok` says whether that was one too many.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser* parser) : parser_(parser) { ++parser_->nesting_; }
  ~Nesting() { --parser_->nesting_; }
  bool ok() const { return parser_->nesting_ <= kMaxNesting; }

 private:
  ExpressionParser* const parser_;
};

absl::StatusOr<ExpressionPtr> ExpressionParser::MakeBinary(Node kind, Operator op, int line,
                                                           ExpressionPtr left,
                                                           ExpressionPtr right) {
  auto node = std::make_unique<BinaryExpression>(kind, line);
  node->op = op;
  node->left = std::move(left);
  node->right = std::move(right);
  const std::initializer_list<const Expression*> children = {node->left.get(), node->right.get()};
  return Finish(std::move(node), children);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression(Conditionals conditionals) {
  const Nesting nesting(this);
  if (!nesting.ok()) return TooDeep(tokens_.line());
  return conditionals == Conditionals::kAllowed ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr result, ParseOr());
  while (tokens_.TakeName("if")) {
    auto node = std::make_unique<ConditionalExpression>(line);
    node->then = std::move(result);
    PENSTOCK_ASSIGN_OR_RETURN(node->condition, ParseOr());
    if (tokens_.TakeName("else")) {
      const Nesting nesting(this);
      if (!nesting.ok()) return TooDeep(tokens_.line());
      PENSTOCK_ASSIGN_OR_RETURN(node->otherwise, ParseConditional());
    }
    const std::initializer_list<const Expression*> children = {
        node->then.get(), node->condition.get(), node->otherwise.get()};
    PENSTOCK_ASSIGN_OR_RETURN(result, Finish(std::move(node), children));
    line = tokens_.line();
  }
  return result;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.TakeName("or")) {
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    PENSTOCK_ASSIGN_OR_RETURN(
        left, MakeBinary(Node::kOr, Operator::kAdd, line, std::move(left), std::move(right)));
    line = tokens_.line();
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.TakeName("and")) {
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    PENSTOCK_ASSIGN_OR_RETURN(
        left, MakeBinary(Node::kAnd, Operator::kAdd, line, std::move(left), std::move(right)));
    line = tokens_.line();
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!tokens_.IsName("not")) return ParseCompare();
  const Nesting nesting(this);
  if (!nesting.ok()) return TooDeep(tokens_.line());
  auto node = std::make_unique<UnaryExpression>(tokens_.Take().line, Operator::kNot);
  PENSTOCK_ASSIGN_OR_RETURN(node->operand, ParseNot());
  const Expression* operand = node->operand.get();
  return Finish(std::move(node), {operand});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  auto node = std::make_unique<CompareExpression>(tokens_.line());
  PENSTOCK_ASSIGN_OR_RETURN(node->first, ParseSum());
  node->depth = node->first->depth + 1;
  while (true) {
    Operator op = Operator::kIn;
    if (const OperatorToken* entry = FindOperator(tokens_, kComparisons)) {
      tokens_.Take();
      op = entry->op;
    } else if (tokens_.IsName("not") && tokens_.next().IsName("in")) {
      tokens_.Take();
      tokens_.Take();
      op = Operator::kNotIn;
    } else if (!tokens_.TakeName("in")) {
      break;
    }
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    node->depth = std::max(node->depth, right->depth + 1);
    node->rest.emplace_back(op, std::move(right));
  }
  if (node->rest.empty()) return std::move(node->first);
  return Finish(std::move(node), {});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  while (const OperatorToken* entry = FindOperator(tokens_, kSums)) {
    tokens_.Take();
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    PENSTOCK_ASSIGN_OR_RETURN(
        left, MakeBinary(Node::kBinary, entry->op, line, std::move(left), std::move(right)));
    line = tokens_.line();
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  auto node = std::make_unique<ItemsExpression>(Node::kConcat, tokens_.line());
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr item, ParseProduct());
  if (!tokens_.IsOperator("~")) return item;
  node->depth = item->depth + 1;
  node->items.push_back(std::move(item));
  while (tokens_.TakeOperator("~")) {
    PENSTOCK_ASSIGN_OR_RETURN(item, ParseProduct());
    node->depth = std::max(node->depth, item->depth + 1);
    node->items.push_back(std::move(item));
  }
  return Finish(std::move(node), {});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (const OperatorToken* entry = FindOperator(tokens_, kProducts)) {
    tokens_.Take();
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    PENSTOCK_ASSIGN_OR_RETURN(
        left, MakeBinary(Node::kBinary, entry->op, line, std::move(left), std::move(right)));
    line = tokens_.line();
  }
  return left;
}

// To the left, unlike Python: 2 ** 3 ** 2 is 64.
absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  int line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(Filters::kAllowed));
  while (tokens_.TakeOperator("**")) {
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(Filters::kAllowed));
    PENSTOCK_ASSIGN_OR_RETURN(
        left, MakeBinary(Node::kBinary, Operator::kPower, line, std::move(left), std::move(right)));
    line = tokens_.line();
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(Filters filters) {
  ExpressionPtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const Nesting nesting(this);
    if (!nesting.ok()) return TooDeep(tokens_.line());
    const Operator op = tokens_.IsOperator("-") ? Operator::kMinus : Operator::kPlus;
    auto unary = std::make_unique<UnaryExpression>(tokens_.Take().line, op);
    PENSTOCK_ASSIGN_OR_RETURN(unary->operand, ParseUnary(Filters::kLeftAlone));
    const Expression* operand = unary->operand.get();
    PENSTOCK_ASSIGN_OR_RETURN(node, Finish(std::move(unary), {operand}));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  PENSTOCK_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (filters == Filters::kLeftAlone) return node;
  return ParseFilterExpression(std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  switch (tokens_.current().type) {
    case TokenType::kName:
      return ParseName();
    case TokenType::kString: {
      std::string text;  // Adjacent strings are one.
      while (tokens_.Is(TokenType::kString)) text += tokens_.Take().text;
      return std::make_unique<ConstantExpression>(line, Value::String(std::move(text)));
    }
    case TokenType::kInteger:
      return std::make_unique<ConstantExpression>(line, Value::Int(tokens_.Take().integer));
    case TokenType::kFloat:
      return std::make_unique<ConstantExpression>(line, Value::Float(tokens_.Take().real));
    default:
      break;
  }
  if (tokens_.IsOperator("(")) return ParseParentheses();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseName() {
  const Token token = tokens_.Take();
  const auto constant = [&](Value value) {
    return std::make_unique<ConstantExpression>(token.line, std::move(value));
  };
  if (token.text == "true" || token.text == "True") return constant(Value::Bool(true));
  if (token.text == "false" || token.text == "False") return constant(Value::Bool(false));
  if (token.text == "none" || token.text == "None") return constant(Value::None());
  return std::make_unique<NameExpression>(token.line, token.text);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  const int line = tokens_.Take().line;
  if (tokens_.TakeOperator(")")) return std::make_unique<ItemsExpression>(Node::kTuple, line);
  PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr node, ParseTuple());
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(Conditionals conditionals,
                                                           std::string_view end_name) {
  auto tuple = std::make_unique<ItemsExpression>(Node::kTuple, tokens_.line());
  bool is_tuple = false;
  while (true) {
    if (tokens_.Is(TokenType::kVariableEnd) || tokens_.Is(TokenType::kBlockEnd) ||
        tokens_.IsOperator(")") || (!end_name.empty() && tokens_.IsName(end_name))) {
      break;
    }
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(conditionals));
    tuple->depth = std::max(tuple->depth, item->depth + 1);
    tuple->items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return Finish(std::move(tuple), {});
  if (tuple->items.empty()) return tokens_.Unexpected("an expression");
  return std::move(tuple->items[0]);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  auto node = std::make_unique<ItemsExpression>(Node::kList, tokens_.Take().line);
  while (!tokens_.IsOperator("]")) {
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    node->depth = std::max(node->depth, item->depth + 1);
    node->items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
  }
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return Finish(std::move(node), {});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  auto node = std::make_unique<ItemsExpression>(Node::kDict, tokens_.Take().line);
  while (!tokens_.IsOperator("}")) {
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    node->depth = std::max({node->depth, key->depth + 1, value->depth + 1});
    node->items.push_back(std::move(key));
    node->items.push_back(std::move(value));
    if (!tokens_.TakeOperator(",")) break;
  }
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Finish(std::move(node), {});
}

absl::StatusOr<Target> ExpressionParser::ToTarget(const Expression& expression) {
  Target target;
  target.line = expression.line;
  if (expression.kind == Node::kName) {
    target.name = static_cast<const NameExpression&>(expression).name;
    return target;
  }
  if (expression.kind != Node::kTuple) {
    return SyntaxError(expression.line, "only a name or a tuple of names can be assigned to");
  }
  target.kind = Target::Kind::kTuple;
  for (const ExpressionPtr& item : static_cast<const ItemsExpression&>(expression).items) {
    PENSTOCK_ASSIGN_OR_RETURN(Target part, ToTarget(*item));
    target.items.push_back(std::move(part));
  }
  return target;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(std::string_view end_name) {
  auto tuple = std::make_unique<ItemsExpression>(Node::kTuple, tokens_.line());
  bool is_tuple = false;
  while (true) {
    if (tokens_.Is(TokenType::kVariableEnd) || tokens_.Is(TokenType::kBlockEnd) ||
        tokens_.IsOperator(")") || (!end_name.empty() && tokens_.IsName(end_name))) {
      break;
    }
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr item, ParsePrimary());
    tuple->items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return ToTarget(*tuple);
  if (tuple->items.empty()) return tokens_.Unexpected("a name to assign to");
  return ToTarget(*tuple->items[0]);
}

absl::StatusOr<Target> ExpressionParser::ParseSetTarget() {
  if (!tokens_.next().IsOperator(".")) return ParseTarget();
  Target target;
  target.kind = Target::Kind::kAttribute;
  target.line = tokens_.line();
  PENSTOCK_ASSIGN_OR_RETURN(const Token name, tokens_.Expect(TokenType::kName, "a name"));
  tokens_.Take();
  PENSTOCK_ASSIGN_OR_RETURN(const Token attribute, tokens_.Expect(TokenType::kName, "a name"));
  target.name = name.text;
  target.attribute = attribute.text;
  return target;
}

}  // namespace penstock::jinja
