// Chat templates by name, for models whose directory has none, or one that does not say what the
// assistant wrote. Ours: the formats are the families', {% generation %} encloses what an
// assistant says and the token that ends its turn.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/chat_template.h"

namespace penstock {

// InvalidArgument / DATA_INVALID with the names that there are.
absl::StatusOr<ChatTemplate> BuiltInTemplate(std::string_view name);
std::vector<std::string> BuiltInTemplateNames();

// The built-in template whose turns look like those of a template's source, or "".
std::string_view SuggestBuiltInTemplate(std::string_view source);

}  // namespace penstock
