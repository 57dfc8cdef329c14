#include "engine/template/model_template.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/template/builtin_templates.h"
#include "engine/template/json_value.h"
#include "engine/template/text.h"

namespace penstock {
namespace {

constexpr char kConfigName[] = "tokenizer_config.json";
constexpr JsonLimits kConfigLimits = {.max_bytes = int64_t{64} << 20};
constexpr char kDefault[] = "default";

absl::Status Broken(absl::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat(kConfigName, ": ", problem));
}

// Source by name, out of tokenizer_config.json.
absl::StatusOr<std::map<std::string, std::string>> NamedTemplates(const std::string& config_text) {
  std::map<std::string, std::string> templates;
  PENSTOCK_ASSIGN_OR_RETURN(
      const jinja::Value config,
      jinja::ParseJsonValue(config_text, kConfigName, kConfigLimits, reason::kDataInvalid));
  if (!config.is_dict()) return Broken("it holds no JSON object");
  const jinja::Value* found = config.Find("chat_template");
  if (found == nullptr || found->is_none()) return templates;
  if (found->is_string()) {
    templates[kDefault] = found->string();
    return templates;
  }
  if (!found->is_list()) return Broken("chat_template is neither a string nor a list");
  for (const jinja::Value& entry : found->list()) {
    const jinja::Value* name = entry.is_dict() ? entry.Find("name") : nullptr;
    const jinja::Value* source = entry.is_dict() ? entry.Find("template") : nullptr;
    if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string()) {
      return Broken("an entry of the list chat_template lacks the strings name and template");
    }
    if (!templates.emplace(name->string(), source->string()).second) {
      return Broken(absl::StrCat("two chat templates are called ", name->string()));
    }
  }
  return templates;
}

}  // namespace

absl::StatusOr<ChatTemplate> FindModelTemplate(const ModelTemplateFiles& files,
                                               std::string_view name) {
  const std::string wanted(name.empty() ? kDefault : name);
  if (files.chat_template_jinja.has_value() && wanted == kDefault) {
    return ChatTemplate::Parse(*files.chat_template_jinja, "chat_template.jinja");
  }
  std::map<std::string, std::string> templates;
  if (files.tokenizer_config_json.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(templates, NamedTemplates(*files.tokenizer_config_json));
  }
  const auto found = templates.find(wanted);
  if (found != templates.end()) {
    return ChatTemplate::Parse(found->second,
                               wanted == kDefault
                                   ? absl::StrCat("chat_template of ", kConfigName)
                                   : absl::StrCat("chat_template ", wanted, " of ", kConfigName));
  }
  std::vector<std::string> names;
  for (const auto& [other, source] : templates) names.push_back(other);
  return Error(
      absl::StatusCode::kNotFound, reason::kDataInvalid,
      absl::StrCat("the model's directory has no chat template called ", wanted,
                   names.empty() ? std::string()
                                 : absl::StrCat(" (it has ", absl::StrJoin(names, ", "), ")"),
                   ". Name a built-in one: ", absl::StrJoin(BuiltInTemplateNames(), ", ")));
}

}  // namespace penstock
