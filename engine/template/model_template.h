// The chat template of a model's directory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/chat_template.h"

namespace penstock {

// The contents of those files that exist.
struct ModelTemplateFiles {
  std::optional<std::string> chat_template_jinja = {};    // chat_template.jinja
  std::optional<std::string> tokenizer_config_json = {};  // tokenizer_config.json
};

// The template called `name`; "" is the default one. tokenizer_config.json has one template, which
// is the default, or a list of named ones, of which "default" is; chat_template.jinja wins over the
// default one there, as in Hugging Face's library. InvalidArgument / DATA_INVALID if a file is
// broken, with its name and the template's line; NotFound / DATA_INVALID if there is no such
// template, with the names that there are, the built-in ones included.
absl::StatusOr<ChatTemplate> FindModelTemplate(const ModelTemplateFiles& files,
                                               std::string_view name);

}  // namespace penstock
