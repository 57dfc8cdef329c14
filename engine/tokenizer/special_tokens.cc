#include "engine/tokenizer/special_tokens.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/model/config_fields.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

using nlohmann::json;

using FindToken = absl::FunctionRef<std::optional<int32_t>(std::string_view token)>;

// A token is written as its text, or as an object with the text under "content".
absl::StatusOr<std::optional<std::string>> ReadContent(const ConfigFields& fields,
                                                       absl::string_view key) {
  const json* value = fields.Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  if (value->is_object() && value->contains("content") && (*value)["content"].is_string()) {
    return (*value)["content"].get<std::string>();
  }
  return fields.Wanted(key, "a token, or an object with a token as \"content\",");
}

absl::Status CheckAddedTokens(const ConfigFields& config, FindToken find) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> added,
                            config.OptionalObject("added_tokens_decoder"));
  if (!added) return absl::OkStatus();
  for (const auto& [key, value] : added->object().items()) {
    int32_t id = 0;
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> content, ReadContent(*added, key));
    if (!absl::SimpleAtoi(key, &id) || !content) {
      return added->Invalid(key, "is no entry of an id and a token");
    }
    const std::optional<int32_t> known = find(*content);
    if (known == id) continue;
    return added->Invalid(
        key, absl::StrCat("is ", ShortJson(*content), ", which ",
                          known ? absl::StrCat("has id ", *known) : std::string("is not"),
                          " in the tokenizer file; export the tokenizer again, so that the two "
                          "files agree"));
  }
  return absl::OkStatus();
}

enum class Required : bool { kNo, kYes };

absl::StatusOr<std::optional<NamedToken>> ReadNamed(const ConfigFields& config,
                                                    const ConfigFields& map, absl::string_view key,
                                                    Required required, FindToken find,
                                                    const std::optional<NamedToken>& otherwise) {
  // A null in tokenizer_config.json is an answer; only a missing key leaves it to the other file.
  if (!config.Contains(key) && !map.Contains(key)) return otherwise;
  const ConfigFields& fields = config.Contains(key) ? config : map;
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> content, ReadContent(fields, key));
  if (!content) return std::nullopt;
  if (const std::optional<int32_t> id = find(*content)) return NamedToken{*id, *content};
  if (required == Required::kNo) return std::nullopt;
  return fields.Wanted(key, "a token that the tokenizer file has");
}

absl::StatusOr<std::optional<bool>> ReadOptionalBool(const ConfigFields& config,
                                                     absl::string_view key) {
  if (config.Find(key) == nullptr) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(const bool value, config.Bool(key, false));
  return value;
}

}  // namespace

std::string NameOf(const TokenizerFiles& files, std::string_view file) {
  return absl::StrCat(files.directory, files.directory.empty() ? "" : "/", std::string(file));
}

absl::StatusOr<json> ParseTokenizerObject(const std::string& text, const std::string& where) {
  if (text.empty()) return json::object();
  PENSTOCK_ASSIGN_OR_RETURN(
      json value,
      ParseStrictJson(text, where, {.max_bytes = kMaxTokenizerFileBytes}, reason::kModelInvalid));
  if (!value.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(where, " is ", ShortJson(value), "; an object is needed"));
  }
  return value;
}

absl::StatusOr<SpecialTokenNames> ReadSpecialTokens(const TokenizerFiles& files, FindToken find,
                                                    const SpecialTokenNames& otherwise) {
  const std::string config_name = NameOf(files, "tokenizer_config.json");
  const std::string map_name = NameOf(files, "special_tokens_map.json");
  PENSTOCK_ASSIGN_OR_RETURN(const json config_json,
                            ParseTokenizerObject(files.tokenizer_config, config_name));
  PENSTOCK_ASSIGN_OR_RETURN(const json map_json,
                            ParseTokenizerObject(files.special_tokens_map, map_name));
  const ConfigFields config(config_json, absl::StrCat(config_name, ": "));
  const ConfigFields map(map_json, absl::StrCat(map_name, ": "));
  PENSTOCK_RETURN_IF_ERROR(CheckAddedTokens(config, find));
  SpecialTokenNames names;
  const auto read = [&](absl::string_view key, Required required,
                        const std::optional<NamedToken>& otherwise) {
    return ReadNamed(config, map, key, required, find, otherwise);
  };
  PENSTOCK_ASSIGN_OR_RETURN(names.bos, read("bos_token", Required::kYes, otherwise.bos));
  PENSTOCK_ASSIGN_OR_RETURN(names.eos, read("eos_token", Required::kYes, otherwise.eos));
  PENSTOCK_ASSIGN_OR_RETURN(names.pad, read("pad_token", Required::kNo, otherwise.pad));
  PENSTOCK_ASSIGN_OR_RETURN(names.unk, read("unk_token", Required::kNo, otherwise.unk));
  PENSTOCK_ASSIGN_OR_RETURN(names.add_bos_token, ReadOptionalBool(config, "add_bos_token"));
  PENSTOCK_ASSIGN_OR_RETURN(names.add_eos_token, ReadOptionalBool(config, "add_eos_token"));
  return names;
}

}  // namespace penstock
