// Going through a tree without naming every node type.
#pragma once

#include <functional>
#include <string>

#include "engine/template/ast.h"

namespace penstock::jinja {

// Calls `visit` for each direct child of an expression.
void ForEachChild(Expression& expression, const std::function<void(Expression&)>& visit);

// Every name in a tree, in the order of jinja2's visitors: reads, and writes by set, for, with
// and parameters.
enum class NameUse { kRead, kStore, kParameter };
void ForEachName(const Block& block,
                 const std::function<void(const std::string& name, NameUse use, int line)>& visit);
void ForEachName(const Statement& statement,
                 const std::function<void(const std::string& name, NameUse use, int line)>& visit);

}  // namespace penstock::jinja
