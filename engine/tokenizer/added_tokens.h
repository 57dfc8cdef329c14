// Tokens that were added beside the model's own: chat markers, control tokens. They are found in
// the text before anything is split or merged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/piece.h"
#include "engine/tokenizer/string_trie.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {

class AddedTokens {
 public:
  // The list under `key`. MODEL_INVALID if an id is not the one that the reference library gives
  // the token (its own in the model's vocabulary, else the next after all others): with ids of its
  // own choice, a file means two different things.
  static absl::StatusOr<AddedTokens> Read(const ConfigFields& file, absl::string_view key,
                                          const Vocabulary& vocabulary,
                                          const Normalizers& normalizers);

  // Of tokens that come from elsewhere. `where` is for messages. MODEL_INVALID if one is there
  // twice.
  static absl::StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens,
                                            const std::string& where);

  // Which tokens are looked for: those to be found in text as it is, or in normalized text.
  enum class Where : uint8_t { kOriginal, kNormalized };

  // Cuts a piece at the tokens of one kind. Gives the parts in order: `token` is null for text
  // between them, which is never empty. Of matches at one place the longest wins, special or not.
  using OnPart = absl::FunctionRef<absl::Status(const Piece& part, const AddedToken* token)>;
  absl::Status Split(Where where, SpecialText special_text, const Piece& piece, TextArena& arena,
                     OnPart on_part) const;

  std::span<const AddedToken> tokens() const { return tokens_; }
  std::optional<int32_t> Find(std::string_view content) const;
  // How the token stands in decoded text: normalized, if it is matched so. Null if there is none.
  const std::string* SpelledById(int32_t id) const;
  bool IsSpecial(std::string_view content) const;
  // One more than the largest id, or 0.
  int64_t id_end() const { return tokens_.empty() ? 0 : tokens_.back().id + int64_t{1}; }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;
  };

  absl::Status Add(const ConfigFields& entry, const Vocabulary& vocabulary);
  void Insert(AddedToken token);
  absl::Status BuildTries(const Normalizers& normalizers, const std::string& where);
  bool Accept(std::string_view text, SpecialText special_text, size_t free_from,
              Match& match) const;

  std::vector<AddedToken> tokens_;    // by ascending id
  std::vector<std::string> spelled_;  // of tokens_[i]
  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<int32_t, int64_t> index_of_id_;
  absl::flat_hash_map<std::string, bool> special_;  // by content: a set
  StringTrie original_;
  StringTrie normalized_;
  int64_t next_id_ = 0;
};

}  // namespace penstock
