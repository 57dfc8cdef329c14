#include "engine/tokenizer/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using nlohmann::json;

bool IsTokenId(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kMaxTokenId};
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Read(const ConfigFields& model, absl::string_view key) {
  const json* entries = model.Find(key);
  if (entries == nullptr || !entries->is_object()) {
    return model.Wanted(key, "an object of tokens and their ids");
  }
  int64_t id_end = 0;
  for (const auto& [token, id] : entries->items()) {
    if (!IsTokenId(id)) {
      return model.Invalid(
          key, absl::StrCat("gives the token ", ShortJson(token), " the id ", ShortJson(id),
                            "; a whole number from 0 to ", kMaxTokenId, " is needed"));
    }
    id_end = std::max(id_end, id.get<int64_t>() + 1);
  }
  Vocabulary vocabulary;
  vocabulary.tokens_.resize(static_cast<size_t>(id_end));
  vocabulary.ids_.reserve(entries->size());
  for (const auto& [token, id] : entries->items()) {
    const auto number = id.get<int32_t>();
    if (const std::string* other = vocabulary.TokenOf(number)) {
      return model.Invalid(key, absl::StrCat("gives the id ", number, " to both ",
                                             ShortJson(*other), " and ", ShortJson(token)));
    }
    std::string& stored = vocabulary.tokens_[static_cast<size_t>(number)];
    stored = token;
    vocabulary.ids_.emplace(stored, number);
  }
  return vocabulary;
}

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  const auto it = ids_.find(absl::string_view(token.data(), token.size()));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const std::string* Vocabulary::TokenOf(int32_t id) const {
  if (id < 0 || id >= id_end()) return nullptr;
  const std::string& token = tokens_[static_cast<size_t>(id)];
  if (token.empty() && Find("") != id) return nullptr;
  return &token;
}

}  // namespace penstock
