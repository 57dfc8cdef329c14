// Which variable a name stands for.
#pragma once

#include "absl/status/status.h"
#include "engine/template/ast.h"

namespace penstock::jinja {

// Fills in every VariableRef and Scope of the tree, and finds filters and tests. The rules are
// those of jinja2's compiler, whose scopes are sometimes a surprise:
//  - a name that a scope assigns to anywhere is that scope's own there, from its start: it begins
//    as a copy of the outer variable and is lost at the end;
//  - `if` has no scope; a name that only some of its branches assign is looked up outside;
//  - macros see the variables around their definition as they are when the macro runs.
// InvalidArgument for an unknown filter or test, unless it stands inside an `if`, where only
// reaching it is an error.
absl::Status ResolveNames(Syntax* syntax);

}  // namespace penstock::jinja
