// Template text to syntax tree.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/ast.h"

namespace penstock::jinja {

// The tree with all names resolved, or InvalidArgument with "line N: ..." for what jinja2 would
// refuse, for tags, filters and tests that are not supported (by name), and for nesting deeper
// than kMaxNesting.
absl::StatusOr<Syntax> Parse(std::string_view source);

}  // namespace penstock::jinja
