#include "engine/template/scopes.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/ast_walk.h"
#include "engine/template/filters.h"
#include "engine/template/limits.h"
#include "engine/template/symbols.h"
#include "engine/template/tests.h"
#include "engine/template/token.h"

namespace penstock::jinja {
namespace {

// ---- First pass over a scope: note its names -------------------------------------------------

void NoteExpression(Expression& expression, Symbols* symbols) {
  if (expression.kind == ExpressionKind::kName) {
    symbols->Load(static_cast<NameExpression&>(expression).name);
  }
  ForEachChild(expression, [&](Expression& child) { NoteExpression(child, symbols); });
}

void NoteExpression(const ExpressionPtr& expression, Symbols* symbols) {
  if (expression != nullptr) NoteExpression(*expression, symbols);
}

enum class Binding { kStore, kParameter };

void NoteTarget(const Target& target, Binding binding, Symbols* symbols) {
  switch (target.kind) {
    case Target::Kind::kAttribute:
      return symbols->Load(target.name);
    case Target::Kind::kName:
      if (binding == Binding::kStore) return symbols->Store(target.name);
      symbols->DeclareParameter(target.name);
      return;
    case Target::Kind::kTuple:
      for (const Target& item : target.items) NoteTarget(item, binding, symbols);
  }
}

void NoteBlock(const Block& block, Symbols* symbols);

void NoteIf(const IfStatement& node, Symbols* symbols) {
  NoteExpression(node.branches[0].condition, symbols);
  Symbols first = symbols->Branch(), others = symbols->Branch(), otherwise = symbols->Branch();
  NoteBlock(node.branches[0].body, &first);
  for (size_t i = 1; i < node.branches.size(); ++i) {
    // Each elif is an `if` of its own among the branches of the first one.
    NoteExpression(node.branches[i].condition, &others);
    Symbols body = others.Branch();
    const Symbols none = others.Branch();
    NoteBlock(node.branches[i].body, &body);
    others.MergeBranches({&body, &none, &none});
  }
  NoteBlock(node.otherwise, &otherwise);
  symbols->MergeBranches({&first, &others, &otherwise});
}

// What `statement` reads and writes in the scope that it stands in. Scopes inside it are left to
// their own pass.
void NoteStatement(const Statement& statement, Symbols* symbols) {
  switch (statement.kind) {
    case StatementKind::kOutput:
      for (const ExpressionPtr& part : static_cast<const OutputStatement&>(statement).parts) {
        NoteExpression(part, symbols);
      }
      return;
    case StatementKind::kIf:
      return NoteIf(static_cast<const IfStatement&>(statement), symbols);
    case StatementKind::kFor:
      return NoteExpression(static_cast<const ForStatement&>(statement).iterable, symbols);
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      NoteExpression(node.value, symbols);
      return NoteTarget(node.target, Binding::kStore, symbols);
    }
    case StatementKind::kSetBlock:
      return NoteTarget(static_cast<const SetBlockStatement&>(statement).target, Binding::kStore,
                        symbols);
    case StatementKind::kMacro:
      return symbols->Store(static_cast<const MacroStatement&>(statement).definition.name);
    case StatementKind::kCallBlock:
      return NoteExpression(static_cast<const CallBlockStatement&>(statement).call, symbols);
    case StatementKind::kFilterBlock:
      return NoteExpression(static_cast<const FilterBlockStatement&>(statement).filter, symbols);
    case StatementKind::kWith:
      for (const auto& [target, value] : static_cast<const WithStatement&>(statement).values) {
        NoteExpression(value, symbols);
      }
      return;
    case StatementKind::kGeneration:
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return;
  }
}

void NoteBlock(const Block& block, Symbols* symbols) {
  for (const StatementPtr& statement : block) NoteStatement(*statement, symbols);
}

void NoteMacro(const MacroDefinition& macro, Symbols* symbols) {
  for (const MacroDefinition::Parameter& parameter : macro.parameters) {
    symbols->DeclareParameter(parameter.name);
  }
  for (const MacroDefinition::Parameter& parameter : macro.parameters) {
    NoteExpression(parameter.default_value, symbols);
  }
  NoteBlock(macro.body, symbols);
}

// ---- Second pass: give every name its variable -----------------------------------------------

// Where code stands: its scope, and whether an `if` is around it in that scope.
struct Place {
  const Symbols* symbols;
  bool conditional;
};

class Resolver {
 public:
  absl::Status Run(Syntax* syntax) {
    Function root;
    Symbols symbols(nullptr, &root);
    NoteBlock(syntax->body, &symbols);
    syntax->scope = symbols.MakeScope();
    ResolveBlock(syntax->body, {&symbols, false});
    syntax->frame_slots = static_cast<int>(root.slots.size());
    return status_;
  }

 private:
  void ResolveExpression(Expression& expression, Place place);
  void ResolveExpression(const ExpressionPtr& expression, Place place) {
    if (expression != nullptr) ResolveExpression(*expression, place);
  }
  void ResolveTarget(Target* target, const Symbols& symbols);
  void ResolveBlock(const Block& block, Place place) {
    for (const StatementPtr& statement : block) ResolveStatement(*statement, place);
  }
  void ResolveStatement(Statement& statement, Place place);
  void ResolveIf(IfStatement& node, Place place);
  void ResolveFor(ForStatement& node, Place place);
  void ResolveSetBlock(SetBlockStatement& node, Place place);
  void ResolveFilterBlock(FilterBlockStatement& node, Place place);
  void ResolveWith(WithStatement& node, Place place);
  void ResolveMacro(MacroDefinition* macro, int line, Place place);
  void Fail(int line, const std::string& message) {
    if (status_.ok()) status_ = SyntaxError(line, message);
  }

  std::set<std::string> ReadNames(const Block& block, std::set<std::string> names);
  void CountVisit(int line) {
    if (++visits_ <= kMaxNameVisits) return;
    Fail(line, "the template has too many names for how deep its loops and macros nest");
  }

  int64_t visits_ = 0;  // by walks through all that a loop or a macro holds
  absl::Status status_;
};

// Which of `names` the block reads before it writes them.
std::set<std::string> Resolver::ReadNames(const Block& block, std::set<std::string> names) {
  std::set<std::string> read;
  ForEachName(block, [&](const std::string& name, NameUse use, int line) {
    CountVisit(line);
    if (use == NameUse::kRead && names.count(name) > 0) {
      read.insert(name);
    } else {
      names.erase(name);
    }
  });
  return read;
}

void Resolver::ResolveExpression(Expression& expression, Place place) {
  switch (expression.kind) {
    case ExpressionKind::kName: {
      auto& node = static_cast<NameExpression&>(expression);
      node.variable = place.symbols->Resolve(node.name);
      return;
    }
    case ExpressionKind::kFilter: {
      auto& node = static_cast<FilterExpression&>(expression);
      node.filter = FindFilter(node.name);
      if (node.filter == nullptr && !place.conditional) {
        Fail(node.line, absl::StrCat("the filter ", node.name, " does not exist here"));
      }
      break;
    }
    case ExpressionKind::kTest: {
      auto& node = static_cast<TestExpression&>(expression);
      node.test = FindTest(node.name);
      if (node.test == nullptr && !place.conditional) {
        Fail(node.line, absl::StrCat("the test ", node.name, " does not exist here"));
      }
      break;
    }
    case ExpressionKind::kConditional:
      place.conditional = true;
      break;
    default:
      break;
  }
  ForEachChild(expression, [&](Expression& child) { ResolveExpression(child, place); });
}

void Resolver::ResolveTarget(Target* target, const Symbols& symbols) {
  if (target->kind == Target::Kind::kTuple) {
    for (Target& item : target->items) ResolveTarget(&item, symbols);
  } else {
    target->variable = symbols.Resolve(target->name);
  }
}

void Resolver::ResolveIf(IfStatement& node, Place place) {
  place.conditional = true;
  for (IfStatement::Branch& branch : node.branches) {
    ResolveExpression(branch.condition, place);
    ResolveBlock(branch.body, place);
  }
  ResolveBlock(node.otherwise, place);
}

void Resolver::ResolveFor(ForStatement& node, Place place) {
  ForEachName(static_cast<const Statement&>(node),
              [&](const std::string& name, NameUse use, int line) {
                CountVisit(line);
                if (use != NameUse::kStore || name != "loop") return;
                Fail(line, "a loop must not assign to `loop`");
              });
  ResolveExpression(node.iterable, place);
  Function own;
  Function* function = place.symbols->function();
  if (node.recursive) {
    own.parent = function;
    own.depth = function->depth + 1;
    function = &own;
  }
  Symbols inside(place.symbols, function);
  if (node.recursive || !ReadNames(node.body, {"loop"}).empty()) {
    node.loop_slot = inside.DeclareParameter("loop");
  }
  NoteTarget(node.target, Binding::kParameter, &inside);
  NoteBlock(node.body, &inside);
  if (node.condition != nullptr) {
    // The condition runs ahead of the body where something asks for the next item, so its
    // variables are others: those of a function inside this one.
    Function apart;
    apart.parent = function;
    apart.depth = function->depth + 1;
    Symbols testing(place.symbols, &apart);
    NoteTarget(node.condition_target, Binding::kParameter, &testing);
    NoteExpression(node.condition, &testing);
    node.condition_scope = testing.MakeScope();
    ResolveTarget(&node.condition_target, testing);
    ResolveExpression(node.condition, {&testing, false});
    node.condition_slots = static_cast<int>(apart.slots.size());
  }
  node.scope = inside.MakeScope();
  ResolveTarget(&node.target, inside);
  ResolveBlock(node.body, {&inside, false});
  Symbols otherwise(place.symbols, function);
  NoteBlock(node.otherwise, &otherwise);
  node.otherwise_scope = otherwise.MakeScope();
  ResolveBlock(node.otherwise, {&otherwise, false});
  node.frame_slots = static_cast<int>(own.slots.size());
}

void Resolver::ResolveSetBlock(SetBlockStatement& node, Place place) {
  Symbols inside(place.symbols, place.symbols->function());
  NoteBlock(node.body, &inside);
  NoteExpression(node.filter, &inside);
  node.scope = inside.MakeScope();
  ResolveBlock(node.body, {&inside, false});
  ResolveTarget(&node.target, *place.symbols);
  ResolveExpression(node.filter, {&inside, false});
}

void Resolver::ResolveFilterBlock(FilterBlockStatement& node, Place place) {
  Symbols inside(place.symbols, place.symbols->function());
  NoteBlock(node.body, &inside);
  NoteExpression(node.filter, &inside);
  node.scope = inside.MakeScope();
  ResolveBlock(node.body, {&inside, false});
  ResolveExpression(node.filter, {&inside, false});
}

void Resolver::ResolveWith(WithStatement& node, Place place) {
  Symbols inside(place.symbols, place.symbols->function());
  for (const auto& [target, value] : node.values) {
    NoteTarget(target, Binding::kParameter, &inside);
  }
  NoteBlock(node.body, &inside);
  node.scope = inside.MakeScope();
  for (auto& [target, value] : node.values) {
    ResolveTarget(&target, inside);
    ResolveExpression(value, place);
  }
  ResolveBlock(node.body, {&inside, false});
}

void Resolver::ResolveMacro(MacroDefinition* macro, int line, Place place) {
  Function function;
  function.parent = place.symbols->function();
  function.depth = function.parent->depth + 1;
  Symbols inside(place.symbols, &function);
  NoteMacro(*macro, &inside);
  std::set<std::string> special = ReadNames(macro->body, {"caller", "kwargs", "varargs"});
  for (const MacroDefinition::Parameter& parameter : macro->parameters) {
    if (special.erase(parameter.name) == 0 || parameter.name != "caller") continue;
    macro->takes_caller = true;
    if (parameter.default_value == nullptr) {
      Fail(line, "the parameter `caller` must be left out or have a default value");
    }
  }
  if (special.count("caller") > 0) {
    macro->takes_caller = true;
    macro->caller_slot = inside.DeclareParameter("caller");
  }
  if (special.count("kwargs") > 0) macro->kwargs_slot = inside.DeclareParameter("kwargs");
  if (special.count("varargs") > 0) macro->varargs_slot = inside.DeclareParameter("varargs");
  NoteMacro(*macro, &inside);
  macro->scope = inside.MakeScope();
  for (MacroDefinition::Parameter& parameter : macro->parameters) {
    parameter.slot = inside.Resolve(parameter.name).slot;
    ResolveExpression(parameter.default_value, {&inside, false});
  }
  ResolveBlock(macro->body, {&inside, false});
  macro->frame_slots = static_cast<int>(function.slots.size());
}

void Resolver::ResolveStatement(Statement& statement, Place place) {
  if (!status_.ok()) return;
  switch (statement.kind) {
    case StatementKind::kOutput:
      for (ExpressionPtr& part : static_cast<OutputStatement&>(statement).parts) {
        ResolveExpression(part, place);
      }
      return;
    case StatementKind::kIf:
      return ResolveIf(static_cast<IfStatement&>(statement), place);
    case StatementKind::kFor:
      return ResolveFor(static_cast<ForStatement&>(statement), place);
    case StatementKind::kSet: {
      auto& node = static_cast<SetStatement&>(statement);
      ResolveTarget(&node.target, *place.symbols);
      return ResolveExpression(node.value, place);
    }
    case StatementKind::kSetBlock:
      return ResolveSetBlock(static_cast<SetBlockStatement&>(statement), place);
    case StatementKind::kMacro: {
      auto& node = static_cast<MacroStatement&>(statement);
      node.variable = place.symbols->Resolve(node.definition.name);
      return ResolveMacro(&node.definition, node.line, place);
    }
    case StatementKind::kCallBlock: {
      auto& node = static_cast<CallBlockStatement&>(statement);
      ResolveMacro(&node.caller, node.line, place);
      return ResolveExpression(node.call, place);
    }
    case StatementKind::kFilterBlock:
      return ResolveFilterBlock(static_cast<FilterBlockStatement&>(statement), place);
    case StatementKind::kWith:
      return ResolveWith(static_cast<WithStatement&>(statement), place);
    case StatementKind::kGeneration:
      return ResolveMacro(&static_cast<GenerationStatement&>(statement).body, statement.line,
                          place);
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return;
  }
}

}  // namespace

absl::Status ResolveNames(Syntax* syntax) { return Resolver().Run(syntax); }

}  // namespace penstock::jinja
