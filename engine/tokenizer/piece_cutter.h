// How a SentencePiece model cuts text into its pieces.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/tokenizer/bpe_merges.h"
#include "engine/tokenizer/sentencepiece_file.h"
#include "engine/tokenizer/string_trie.h"

namespace penstock {

class PieceCutter {
 public:
  // The id of a character that no piece has.
  static constexpr int32_t kUnknown = -1;

  // By file.algorithm. `user_defined` has the pieces of that type with their ids. Both outlive it.
  static std::unique_ptr<const PieceCutter> Create(const SentencePieceFile& file,
                                                   const StringTrie& user_defined);

  virtual ~PieceCutter() = default;

  // Appends the tokens of rewritten text. REQUIRES: valid UTF-8.
  virtual void Cut(std::string_view text, std::vector<WordToken>& tokens) const = 0;
};

}  // namespace penstock
