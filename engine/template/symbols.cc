#include "engine/template/symbols.h"

#include "engine/base/check.h"

namespace penstock::jinja {

int Function::SlotOf(int level, const std::string& name) {
  return slots.try_emplace({level, name}, static_cast<int>(slots.size())).first->second;
}

const Symbols::Variable* Symbols::FindHere(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->base_) {
    const auto found = symbols->variables_.find(name);
    if (found != symbols->variables_.end()) return &found->second;
  }
  return nullptr;
}

const Symbols::Variable* Symbols::Find(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
    if (const Variable* found = symbols->FindHere(name)) return found;
  }
  return nullptr;
}

bool Symbols::Stores(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->base_) {
    if (symbols->stores_.count(name) > 0) return true;
  }
  return false;
}

int Symbols::Define(const std::string& name) {
  const int slot = function_->SlotOf(level_, name);
  variables_[name] = {function_, slot};
  return slot;
}

void Symbols::Load(const std::string& name) {
  if (Find(name) != nullptr) return;
  starts_[Define(name)] = {Start::Kind::kContext, name, {}};
}

void Symbols::Store(const std::string& name) {
  stores_.insert(name);
  if (FindHere(name) != nullptr) return;
  const Variable* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
  if (outer != nullptr) {
    const Variable source = *outer;
    starts_[Define(name)] = {Start::Kind::kCopy, name, source};
  } else {
    starts_[Define(name)] = {Start::Kind::kNothing, name, {}};
  }
}

int Symbols::DeclareParameter(const std::string& name) {
  stores_.insert(name);
  const int slot = Define(name);
  starts_[slot] = {Start::Kind::kParameter, name, {}};
  return slot;
}

Symbols Symbols::Branch() const {
  Symbols branch(parent_, function_);
  branch.base_ = this;
  return branch;
}

void Symbols::MergeBranches(std::initializer_list<const Symbols*> branches) {
  std::map<std::string, size_t> counts;
  for (const Symbols* branch : branches) {
    for (const std::string& name : branch->stores_) {
      if (!Stores(name)) ++counts[name];
    }
  }
  for (const Symbols* branch : branches) {
    for (const auto& [name, variable] : branch->variables_) variables_[name] = variable;
    for (const auto& [slot, start] : branch->starts_) starts_[slot] = start;
    stores_.insert(branch->stores_.begin(), branch->stores_.end());
  }
  for (const auto& [name, count] : counts) {
    if (count == branches.size()) continue;
    const int slot = FindHere(name)->slot;
    const Variable* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
    starts_[slot] = outer != nullptr ? Start{Start::Kind::kCopy, name, *outer}
                                     : Start{Start::Kind::kContext, name, {}};
  }
}

VariableRef Symbols::RefTo(const Variable& variable) const {
  return {function_->depth - variable.owner->depth, variable.slot};
}

VariableRef Symbols::Resolve(const std::string& name) const {
  const Variable* variable = Find(name);
  PENSTOCK_CHECK(variable != nullptr, "the name " + name + " was not noted");
  return RefTo(*variable);
}

Scope Symbols::MakeScope() const {
  Scope scope;
  for (const auto& [slot, start] : starts_) {
    scope.slots.push_back(slot);
    VariableStart out;
    out.slot = slot;
    switch (start.kind) {
      case Start::Kind::kParameter:
        continue;
      case Start::Kind::kNothing:
        out.kind = VariableStart::Kind::kNothing;
        break;
      case Start::Kind::kContext:
        out.kind = VariableStart::Kind::kContext;
        out.name = start.name;
        break;
      case Start::Kind::kCopy:
        out.kind = VariableStart::Kind::kCopy;
        out.outer = RefTo(start.outer);
        break;
    }
    scope.starts.push_back(std::move(out));
  }
  return scope;
}

}  // namespace penstock::jinja
