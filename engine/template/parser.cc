#include "engine/template/parser.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/expression_parser.h"
#include "engine/template/limits.h"
#include "engine/template/scopes.h"
#include "engine/template/text.h"
#include "engine/template/token_stream.h"

namespace penstock::jinja {
namespace {

using EndNames = std::vector<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  absl::StatusOr<Syntax> Run() {
    Syntax syntax;
    PENSTOCK_RETURN_IF_ERROR(ParseBlock({}, &syntax.body));
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  absl::Status ParseBlock(const EndNames& end_names, Block* block);
  absl::Status ParseBody(const EndNames& end_names, Block* block);
  absl::StatusOr<StatementPtr> ParseStatement();
  absl::StatusOr<StatementPtr> ParseIf();
  absl::StatusOr<StatementPtr> ParseFor();
  absl::StatusOr<StatementPtr> ParseSet();
  absl::StatusOr<StatementPtr> ParseMacro();
  absl::StatusOr<StatementPtr> ParseCallBlock();
  absl::StatusOr<StatementPtr> ParseFilterBlock();
  absl::StatusOr<StatementPtr> ParseWith();
  absl::StatusOr<StatementPtr> ParsePrint();
  absl::StatusOr<StatementPtr> ParseGeneration();
  absl::StatusOr<StatementPtr> ParseJump(StatementKind kind);
  absl::Status ParseParameters(MacroDefinition* macro);
  absl::Status ParseFunctionBody(std::string_view end_name, Block* body);

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;       // of blocks
  bool in_loop_ = false;  // in the function at hand, so that break and continue have a meaning
  bool has_generation_ = false;
};

// Statements up to a tag named in `end_names`, which becomes the current token, or up to the end
// of the template if there are no such names.
absl::Status Parser::ParseBlock(const EndNames& end_names, Block* block) {
  std::unique_ptr<OutputStatement> output;
  const auto add_part = [&](ExpressionPtr part) {
    if (output == nullptr) output = std::make_unique<OutputStatement>(part->line);
    output->parts.push_back(std::move(part));
  };
  while (!tokens_.at_end()) {
    if (tokens_.Is(TokenType::kData)) {
      Token token = tokens_.Take();
      add_part(
          std::make_unique<ConstantExpression>(token.line, Value::String(std::move(token.text))));
      continue;
    }
    if (tokens_.Is(TokenType::kVariableBegin)) {
      tokens_.Take();
      PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr part, expressions_.ParseTuple());
      add_part(std::move(part));
      if (!tokens_.Is(TokenType::kVariableEnd)) return tokens_.Unexpected("'}}'");
      tokens_.Take();
      continue;
    }
    if (output != nullptr) block->push_back(std::move(output));
    tokens_.Take();  // kBlockBegin: nothing else starts between tags.
    if (std::any_of(end_names.begin(), end_names.end(),
                    [this](std::string_view name) { return tokens_.IsName(name); })) {
      return absl::OkStatus();
    }
    PENSTOCK_ASSIGN_OR_RETURN(StatementPtr statement, ParseStatement());
    block->push_back(std::move(statement));
    if (!tokens_.Is(TokenType::kBlockEnd)) return tokens_.Unexpected("'%}'");
    tokens_.Take();
  }
  if (output != nullptr) block->push_back(std::move(output));
  if (end_names.empty()) return absl::OkStatus();
  return SyntaxError(tokens_.line(),
                     absl::StrCat("the template ends before {% ", Absl(end_names.back()), " %}"));
}

// The end of a tag, then its block.
absl::Status Parser::ParseBody(const EndNames& end_names, Block* block) {
  tokens_.TakeOperator(":");
  if (!tokens_.Is(TokenType::kBlockEnd)) return tokens_.Unexpected("'%}'");
  tokens_.Take();
  if (++nesting_ > kMaxNesting) {
    return SyntaxError(tokens_.line(),
                       absl::StrCat("blocks nest deeper than ", kMaxNesting, " levels"));
  }
  const absl::Status status = ParseBlock(end_names, block);
  --nesting_;
  return status;
}

// A body that runs as a function: a break in it cannot reach a loop outside.
absl::Status Parser::ParseFunctionBody(std::string_view end_name, Block* body) {
  const bool in_loop = std::exchange(in_loop_, false);
  PENSTOCK_RETURN_IF_ERROR(ParseBody({end_name}, body));
  in_loop_ = in_loop;
  tokens_.Take();
  return absl::OkStatus();
}

absl::StatusOr<StatementPtr> Parser::ParseStatement() {
  if (!tokens_.Is(TokenType::kName)) return tokens_.Unexpected("the name of a tag");
  const std::string& name = tokens_.current().text;
  if (name == "if") return ParseIf();
  if (name == "for") return ParseFor();
  if (name == "set") return ParseSet();
  if (name == "macro") return ParseMacro();
  if (name == "generation") return ParseGeneration();
  if (name == "call") return ParseCallBlock();
  if (name == "filter") return ParseFilterBlock();
  if (name == "with") return ParseWith();
  if (name == "print") return ParsePrint();
  if (name == "break") return ParseJump(StatementKind::kBreak);
  if (name == "continue") return ParseJump(StatementKind::kContinue);
  return SyntaxError(tokens_.line(),
                     absl::StrCat("the tag {% ", name.substr(0, 60),
                                  " %} is not supported here. Tags are if, for, set, macro, "
                                  "generation, call, filter, with, print, break, continue"));
}

absl::StatusOr<StatementPtr> Parser::ParseIf() {
  auto node = std::make_unique<IfStatement>(tokens_.line());
  while (tokens_.TakeName("if") || tokens_.TakeName("elif")) {
    IfStatement::Branch branch;
    PENSTOCK_ASSIGN_OR_RETURN(branch.condition,
                              expressions_.ParseTuple(ExpressionParser::Conditionals::kLeftAlone));
    PENSTOCK_RETURN_IF_ERROR(ParseBody({"elif", "else", "endif"}, &branch.body));
    node->branches.push_back(std::move(branch));
  }
  if (tokens_.TakeName("else")) {
    PENSTOCK_RETURN_IF_ERROR(ParseBody({"endif"}, &node->otherwise));
  }
  tokens_.Take();
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseFor() {
  auto node = std::make_unique<ForStatement>(tokens_.Take().line);
  PENSTOCK_ASSIGN_OR_RETURN(node->target, expressions_.ParseTarget("in"));
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectName("in"));
  PENSTOCK_ASSIGN_OR_RETURN(
      node->iterable,
      expressions_.ParseTuple(ExpressionParser::Conditionals::kLeftAlone, "recursive"));
  if (tokens_.TakeName("if")) {
    PENSTOCK_ASSIGN_OR_RETURN(node->condition, expressions_.ParseExpression());
    node->condition_target = node->target;
  }
  node->recursive = tokens_.TakeName("recursive");
  const bool in_loop = std::exchange(in_loop_, true);
  PENSTOCK_RETURN_IF_ERROR(ParseBody({"else", "endfor"}, &node->body));
  in_loop_ = in_loop && !node->recursive;
  if (tokens_.TakeName("else")) {
    PENSTOCK_RETURN_IF_ERROR(ParseBody({"endfor"}, &node->otherwise));
  }
  in_loop_ = in_loop;
  tokens_.Take();
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseSet() {
  const int line = tokens_.Take().line;
  PENSTOCK_ASSIGN_OR_RETURN(Target target, expressions_.ParseSetTarget());
  if (tokens_.TakeOperator("=")) {
    auto node = std::make_unique<SetStatement>(line);
    node->target = std::move(target);
    PENSTOCK_ASSIGN_OR_RETURN(node->value, expressions_.ParseTuple());
    return node;
  }
  auto node = std::make_unique<SetBlockStatement>(line);
  node->target = std::move(target);
  PENSTOCK_ASSIGN_OR_RETURN(node->filter, expressions_.ParseFilters(nullptr));
  PENSTOCK_RETURN_IF_ERROR(ParseBody({"endset"}, &node->body));
  tokens_.Take();
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseMacro() {
  auto node = std::make_unique<MacroStatement>(tokens_.Take().line);
  PENSTOCK_ASSIGN_OR_RETURN(const Token name, tokens_.Expect(TokenType::kName, "a name"));
  node->definition.name = name.text;
  PENSTOCK_RETURN_IF_ERROR(ParseParameters(&node->definition));
  PENSTOCK_RETURN_IF_ERROR(ParseFunctionBody("endmacro", &node->definition.body));
  return node;
}

absl::Status Parser::ParseParameters(MacroDefinition* macro) {
  PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.IsOperator(")")) {
    if (!macro->parameters.empty()) PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    PENSTOCK_ASSIGN_OR_RETURN(const Token name, tokens_.Expect(TokenType::kName, "a name"));
    if (std::ssize(macro->parameters) >= kMaxParameters) {
      return SyntaxError(name.line, absl::StrCat("more than ", kMaxParameters, " parameters"));
    }
    MacroDefinition::Parameter parameter;
    parameter.name = name.text;
    for (const MacroDefinition::Parameter& other : macro->parameters) {
      if (other.name != parameter.name) continue;
      return SyntaxError(name.line, absl::StrCat("two parameters are called ", name.text));
    }
    if (tokens_.TakeOperator("=")) {
      PENSTOCK_ASSIGN_OR_RETURN(parameter.default_value, expressions_.ParseExpression());
    } else if (!macro->parameters.empty() && macro->parameters.back().default_value != nullptr) {
      return SyntaxError(name.line, absl::StrCat("the parameter ", name.text,
                                                 " needs a default value, as those before it"));
    }
    macro->parameters.push_back(std::move(parameter));
  }
  return tokens_.ExpectOperator(")");
}

absl::StatusOr<StatementPtr> Parser::ParseCallBlock() {
  auto node = std::make_unique<CallBlockStatement>(tokens_.Take().line);
  if (tokens_.IsOperator("(")) PENSTOCK_RETURN_IF_ERROR(ParseParameters(&node->caller));
  PENSTOCK_ASSIGN_OR_RETURN(node->call, expressions_.ParseExpression());
  if (node->call->kind != ExpressionKind::kCall) {
    return SyntaxError(node->line, "{% call %} needs a call of a macro");
  }
  PENSTOCK_RETURN_IF_ERROR(ParseFunctionBody("endcall", &node->caller.body));
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseFilterBlock() {
  auto node = std::make_unique<FilterBlockStatement>(tokens_.Take().line);
  PENSTOCK_ASSIGN_OR_RETURN(node->filter, expressions_.ParseFilterBlockHead());
  PENSTOCK_RETURN_IF_ERROR(ParseBody({"endfilter"}, &node->body));
  tokens_.Take();
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseWith() {
  auto node = std::make_unique<WithStatement>(tokens_.Take().line);
  while (!tokens_.Is(TokenType::kBlockEnd)) {
    if (!node->values.empty()) PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    PENSTOCK_ASSIGN_OR_RETURN(Target target, expressions_.ParseTarget());
    PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseExpression());
    node->values.emplace_back(std::move(target), std::move(value));
  }
  PENSTOCK_RETURN_IF_ERROR(ParseBody({"endwith"}, &node->body));
  tokens_.Take();
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParsePrint() {
  auto node = std::make_unique<OutputStatement>(tokens_.Take().line);
  while (!tokens_.Is(TokenType::kBlockEnd)) {
    if (!node->parts.empty()) PENSTOCK_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    PENSTOCK_ASSIGN_OR_RETURN(ExpressionPtr part, expressions_.ParseExpression());
    node->parts.push_back(std::move(part));
  }
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseGeneration() {
  auto node = std::make_unique<GenerationStatement>(tokens_.Take().line);
  has_generation_ = true;
  PENSTOCK_RETURN_IF_ERROR(ParseFunctionBody("endgeneration", &node->body.body));
  return node;
}

absl::StatusOr<StatementPtr> Parser::ParseJump(StatementKind kind) {
  const int line = tokens_.Take().line;
  if (!in_loop_) {
    return SyntaxError(line, kind == StatementKind::kBreak
                                 ? "{% break %} stands outside a loop"
                                 : "{% continue %} stands outside a loop");
  }
  return std::make_unique<JumpStatement>(kind, line);
}

}  // namespace

absl::StatusOr<Syntax> Parse(std::string_view source) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  PENSTOCK_ASSIGN_OR_RETURN(Syntax syntax, Parser(std::move(tokens)).Run());
  PENSTOCK_RETURN_IF_ERROR(ResolveNames(&syntax));
  return syntax;
}

}  // namespace penstock::jinja
