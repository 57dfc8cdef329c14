// The variables of one scope while names are being resolved: a model of jinja2's idtracking.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "engine/template/ast.h"

namespace penstock::jinja {

// What becomes one activation at run time: the template, a macro, a recursive loop.
struct Function {
  const Function* parent = nullptr;
  int depth = 0;
  // Slots by (level of the scope, name): scopes side by side share them.
  std::map<std::pair<int, std::string>, int> slots;

  int SlotOf(int level, const std::string& name);
};

class Symbols {
 public:
  struct Variable {
    const Function* owner = nullptr;
    int slot = -1;
  };

  Symbols(const Symbols* parent, Function* function)
      : parent_(parent), level_(parent == nullptr ? 0 : parent->level_ + 1), function_(function) {}

  Function* function() const { return function_; }

  // Notes a read, a write, a parameter, in the order in which they stand in the template.
  void Load(const std::string& name);
  void Store(const std::string& name);
  int DeclareParameter(const std::string& name);

  // Symbols of one branch of an `if` in this scope: what is known here, and what the branch adds.
  // REQUIRES: this outlives it.
  Symbols Branch() const;
  // Takes over what the branches of an `if` added. A name that not all of them store may still be
  // that of an outer variable.
  void MergeBranches(std::initializer_list<const Symbols*> branches);

  // The variable that `name` stands for in this scope. REQUIRES: it was noted.
  VariableRef Resolve(const std::string& name) const;
  Scope MakeScope() const;

 private:
  const Variable* Find(const std::string& name) const;
  const Variable* FindHere(const std::string& name) const;
  bool Stores(const std::string& name) const;
  int Define(const std::string& name);
  VariableRef RefTo(const Variable& variable) const;

  struct Start {
    enum class Kind { kParameter, kNothing, kContext, kCopy };
    Kind kind = Kind::kNothing;
    std::string name;
    Variable outer;
  };

  const Symbols* parent_;
  const Symbols* base_ = nullptr;  // of a branch: what it adds to
  int level_;
  Function* function_;
  std::map<std::string, Variable> variables_;
  std::map<int, Start> starts_;  // by slot
  std::set<std::string> stores_;
};

}  // namespace penstock::jinja
