// The "normalizer" of a tokenizer.json: rewrites text before it is split.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/piece.h"

namespace penstock {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // The piece rewritten into `arena`, or unchanged. May be empty where `piece` is not.
  virtual absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const = 0;
};

// Applied one after the other; sequences in the file come out flat. Empty if the file has none.
using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;

// Reads key `name` of the file. MODEL_UNSUPPORTED, by name, for a type that is not implemented.
absl::StatusOr<Normalizers> ReadNormalizers(const ConfigFields& file, absl::string_view name);

absl::StatusOr<Piece> Apply(const Normalizers& normalizers, Piece piece, TextArena& arena);

}  // namespace penstock
