// The "pre_tokenizer" of a tokenizer.json: cuts normalized text into words. No merge crosses their
// borders.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/piece.h"

namespace penstock {

using PieceSink = absl::FunctionRef<absl::Status(const Piece&)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Gives the parts of a piece, in order and none of them empty, to `sink`. An error of the sink
  // ends it. REQUIRES: the piece is not empty.
  virtual absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const = 0;
};

// Who spells out bytes in the alphabet of byte_alphabet.h.
enum class ByteSpelling : uint8_t {
  kSpelled,  // the pre-tokenizer, where the file says so
  kRaw,      // nobody: words are given as they are, to a model that knows the bytes
};

struct PreTokenizers {
  // Each takes the parts that the one before it makes; sequences in the file come out flat.
  std::vector<std::unique_ptr<const PreTokenizer>> stages = {};
  ByteSpelling spelling = ByteSpelling::kSpelled;
};

// Reads key `name` of the file. MODEL_UNSUPPORTED, by name, for a type that is not implemented.
// With `wanted` kRaw, words come raw if spelling them would be the last thing that is done.
absl::StatusOr<PreTokenizers> ReadPreTokenizers(const ConfigFields& file, absl::string_view name,
                                                ByteSpelling wanted);

// Runs the piece through all stages.
absl::Status Split(const PreTokenizers& pre_tokenizers, const Piece& piece, TextArena& arena,
                   PieceSink sink);

}  // namespace penstock
