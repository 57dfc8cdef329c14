// The tokens of a model and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/config_fields.h"

namespace penstock {

// Far above any real vocabulary; the tables by id have as many entries as the largest id says.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

class Vocabulary {
 public:
  // The object {token: id} under `key`. MODEL_INVALID for ids that are negative, above
  // kMaxTokenId or used twice.
  static absl::StatusOr<Vocabulary> Read(const ConfigFields& model, absl::string_view key);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> Find(std::string_view token) const;
  // Null if no token has the id.
  const std::string* TokenOf(int32_t id) const;

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // One more than the largest id.
  int64_t id_end() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  Vocabulary() = default;

  std::vector<std::string> tokens_;                      // by id; "" where there is none
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // keys lie in tokens_
};

}  // namespace penstock
