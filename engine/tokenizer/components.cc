#include "engine/tokenizer/components.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"

namespace penstock {
namespace {

using nlohmann::json;

// Text passes through all of them in nested calls.
constexpr size_t kMaxComponents = 64;

// Nesting is bounded by the depth that ParseStrictJson() allows.
absl::Status Collect(const json& value, const std::string& where, absl::string_view members,
                     std::vector<Component>& out) {
  if (!value.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(where, " is ", ShortJson(value),
                              "; an object with a \"type\" is "
                              "needed"));
  }
  ConfigFields fields(value, absl::StrCat(where, "."));
  PENSTOCK_ASSIGN_OR_RETURN(std::string type, fields.String("type"));
  if (type != "Sequence") {
    if (out.size() == kMaxComponents) {
      return fields.Invalid("type",
                            absl::StrCat("is one of more than ", kMaxComponents, " components"));
    }
    out.push_back({std::move(type), std::move(fields)});
    return absl::OkStatus();
  }
  const json* list = fields.Find(members);
  if (list == nullptr || !list->is_array()) return fields.Wanted(members, "a list");
  for (size_t i = 0; i < list->size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(
        Collect((*list)[i], absl::StrCat(where, ".", members, "[", i, "]"), members, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Component>> ReadComponents(const ConfigFields& parent,
                                                      absl::string_view name,
                                                      absl::string_view members) {
  std::vector<Component> components;
  const json* value = parent.Find(name);
  if (value != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(
        Collect(*value, absl::StrCat(parent.where(), name), members, components));
  }
  return components;
}

absl::StatusOr<Pattern> ReadPattern(const Component& component) {
  const ConfigFields& fields = component.fields;
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> pattern,
                            fields.OptionalObject("pattern"));
  if (!pattern || pattern->object().size() != 1) {
    return fields.Wanted("pattern", "an object with one key, \"String\" or \"Regex\",");
  }
  if (pattern->Contains("String")) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string text, pattern->String("String"));
    return Pattern::Literal(std::move(text));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string expression, pattern->String("Regex"));
  return Pattern::Regex(expression, absl::StrCat(pattern->where(), "Regex"));
}

absl::StatusOr<std::string> ReadCharacter(const ConfigFields& fields, absl::string_view key) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, fields.String(key));
  if (text.empty() || static_cast<size_t>(Utf8Length(text[0])) != text.size()) {
    return fields.Wanted(key, "one character");
  }
  return text;
}

absl::Status UnknownComponent(const Component& component, absl::string_view known) {
  return component.fields.Unsupported(
      "type", absl::StrCat("is \"", component.type.substr(0, 60),
                           "\", which Penstock does not implement (it has ", known,
                           "); tokenize the data with the model's own library and train on "
                           "token ids"));
}

}  // namespace penstock
