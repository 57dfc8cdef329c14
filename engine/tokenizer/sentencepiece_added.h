// Which tokens are looked for in text before a SentencePiece model sees it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/tokenizer/sentencepiece_file.h"

namespace penstock {

// The model's control and unknown pieces, those of added_tokens_decoder in tokenizer_config.json
// with their flags, and those of added_tokens.json. The last are special: they are chat markers
// and padding. A token may give an id of the model a new text.
absl::StatusOr<std::vector<AddedToken>> ReadSentencePieceAddedTokens(const TokenizerFiles& files,
                                                                     const SentencePieceFile& file);

}  // namespace penstock
