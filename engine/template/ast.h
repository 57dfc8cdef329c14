// A parsed template. Names are resolved to variables before anything runs (scopes.cc), by jinja2's
// scoping rules: loops and macros have scopes of their own, `if` has none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/template/value.h"

namespace penstock::jinja {

struct FilterEntry;
struct TestEntry;

// Where a variable lives: `hops` activations out, at `slot`.
struct VariableRef {
  int hops = 0;
  int slot = -1;
};

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,
  kUnary,
  kBinary,
  kAnd,
  kOr,
  kConcat,
  kCompare,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kConditional,
};

struct Expression {
  Expression(ExpressionKind kind, int line) : kind(kind), line(line) {}
  virtual ~Expression() = default;
  const ExpressionKind kind;
  const int line;
  int depth = 1;  // of this tree
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct ConstantExpression : Expression {
  ConstantExpression(int line, Value value)
      : Expression(ExpressionKind::kConstant, line), value(std::move(value)) {}
  Value value;
};

struct NameExpression : Expression {
  NameExpression(int line, std::string name)
      : Expression(ExpressionKind::kName, line), name(std::move(name)) {}
  std::string name;
  VariableRef variable;
};

// kTuple, kList, kConcat (a ~ b ~ c); kDict with keys and values in turn.
struct ItemsExpression : Expression {
  using Expression::Expression;
  std::vector<ExpressionPtr> items;
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kPlus,
  kMinus,
  kNot,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};
std::string_view SymbolOf(Operator op);

struct UnaryExpression : Expression {
  UnaryExpression(int line, Operator op) : Expression(ExpressionKind::kUnary, line), op(op) {}
  Operator op;
  ExpressionPtr operand;
};

// kBinary, kAnd, kOr.
struct BinaryExpression : Expression {
  using Expression::Expression;
  Operator op = Operator::kAdd;
  ExpressionPtr left, right;
};

// a < b <= c
struct CompareExpression : Expression {
  explicit CompareExpression(int line) : Expression(ExpressionKind::kCompare, line) {}
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};

struct AttributeExpression : Expression {
  explicit AttributeExpression(int line) : Expression(ExpressionKind::kAttribute, line) {}
  ExpressionPtr object;
  std::string name;
};

struct ItemExpression : Expression {
  explicit ItemExpression(int line) : Expression(ExpressionKind::kItem, line) {}
  ExpressionPtr object, index;
};

// Only as the index of an ItemExpression; each part may be null.
struct SliceExpression : Expression {
  explicit SliceExpression(int line) : Expression(ExpressionKind::kSlice, line) {}
  ExpressionPtr start, stop, step;
};

struct ArgumentsSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *list, or null
  ExpressionPtr more_named;       // **dict, or null
};

struct CallExpression : Expression {
  explicit CallExpression(int line) : Expression(ExpressionKind::kCall, line) {}
  ExpressionPtr callee;
  ArgumentsSyntax arguments;
};

struct FilterExpression : Expression {
  explicit FilterExpression(int line) : Expression(ExpressionKind::kFilter, line) {}
  ExpressionPtr operand;  // null: the text of the block that the filter stands on
  std::string name;
  const FilterEntry* filter = nullptr;  // null: unknown, an error only if it is reached
  ArgumentsSyntax arguments;
};

struct TestExpression : Expression {
  explicit TestExpression(int line) : Expression(ExpressionKind::kTest, line) {}
  ExpressionPtr operand;
  std::string name;
  const TestEntry* test = nullptr;
  ArgumentsSyntax arguments;
};

struct ConditionalExpression : Expression {
  explicit ConditionalExpression(int line) : Expression(ExpressionKind::kConditional, line) {}
  ExpressionPtr condition, then, otherwise;  // otherwise may be null
};

// What `set` and `for` assign to: a name, a tuple of targets, or an attribute of a namespace.
struct Target {
  enum class Kind : uint8_t { kName, kTuple, kAttribute };
  Kind kind = Kind::kName;
  int line = 0;
  std::string name;       // kName; the namespace's for kAttribute
  std::string attribute;  // kAttribute
  VariableRef variable;
  std::vector<Target> items;  // kTuple
};

// What a variable starts with when its scope is entered.
struct VariableStart {
  enum class Kind : uint8_t { kNothing, kContext, kCopy };
  Kind kind = Kind::kNothing;
  int slot = 0;
  std::string name;   // kContext: of the variable among those that the caller passes in
  VariableRef outer;  // kCopy
};

struct Scope {
  std::vector<VariableStart> starts;
  std::vector<int> slots;  // all variables of the scope; they lose their values at its end
};

enum class StatementKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind kind, int line) : kind(kind), line(line) {}
  virtual ~Statement() = default;
  const StatementKind kind;
  const int line;
};
using StatementPtr = std::unique_ptr<Statement>;
using Block = std::vector<StatementPtr>;

// Text as it stands (a string constant) and {{ expressions }}.
struct OutputStatement : Statement {
  explicit OutputStatement(int line) : Statement(StatementKind::kOutput, line) {}
  std::vector<ExpressionPtr> parts;
};

struct IfStatement : Statement {
  explicit IfStatement(int line) : Statement(StatementKind::kIf, line) {}
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };
  std::vector<Branch> branches;  // if, elif, elif...
  Block otherwise;
};

// Also a function of its own when it is recursive: see `frame_slots`.
struct ForStatement : Statement {
  explicit ForStatement(int line) : Statement(StatementKind::kFor, line) {}
  Target target;
  ExpressionPtr iterable;
  Target condition_target;  // `target` again, in the scope of the condition
  ExpressionPtr condition;  // null: every item
  bool recursive = false;
  Block body, otherwise;
  int loop_slot = -1;  // of `loop`, -1 if nobody looks at it
  Scope scope, condition_scope, otherwise_scope;
  int frame_slots = 0;      // of an activation, if recursive
  int condition_slots = 0;  // of the condition's own activation
};

struct SetStatement : Statement {
  explicit SetStatement(int line) : Statement(StatementKind::kSet, line) {}
  Target target;
  ExpressionPtr value;
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(int line) : Statement(StatementKind::kSetBlock, line) {}
  Target target;
  ExpressionPtr filter;  // a chain of filters that ends in a null operand; may be null
  Block body;
  Scope scope;
};

// What a macro and the body of a call block are: a function whose result is text.
struct MacroDefinition {
  struct Parameter {
    std::string name;
    int slot = 0;
    ExpressionPtr default_value;  // may be null
  };
  std::string name;  // "" for the body of a call block
  std::vector<Parameter> parameters;
  Block body;
  bool takes_caller = false;  // as a special name or as a parameter
  int caller_slot = -1;       // of the special names, -1 if the body does not use them
  int kwargs_slot = -1;
  int varargs_slot = -1;
  Scope scope;
  int frame_slots = 0;
};

struct MacroStatement : Statement {
  explicit MacroStatement(int line) : Statement(StatementKind::kMacro, line) {}
  VariableRef variable;
  MacroDefinition definition;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(int line) : Statement(StatementKind::kCallBlock, line) {}
  MacroDefinition caller;
  ExpressionPtr call;  // a CallExpression
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(int line) : Statement(StatementKind::kFilterBlock, line) {}
  ExpressionPtr filter;
  Block body;
  Scope scope;
};

struct WithStatement : Statement {
  explicit WithStatement(int line) : Statement(StatementKind::kWith, line) {}
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Block body;
  Scope scope;
};

// {% generation %}: its output is what an assistant said. A call block by its scoping.
struct GenerationStatement : Statement {
  explicit GenerationStatement(int line) : Statement(StatementKind::kGeneration, line) {}
  MacroDefinition body;
};

// {% break %} and {% continue %}.
struct JumpStatement : Statement {
  using Statement::Statement;
};

struct Syntax {
  Block body;
  Scope scope;
  int frame_slots = 0;
  bool has_generation = false;
};

}  // namespace penstock::jinja
