// Which tokens tokenizer_config.json and special_tokens_map.json name as BOS, EOS and so on.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "nlohmann/json.hpp"

namespace penstock {

// DIRECTORY/FILE, for messages.
std::string NameOf(const TokenizerFiles& files, std::string_view file);

// The object in the text of a file called `where`; one without members if `text` is empty.
absl::StatusOr<nlohmann::json> ParseTokenizerObject(const std::string& text,
                                                    const std::string& where);

// `find` gives the id of a token. MODEL_INVALID if BOS or EOS is none of the tokenizer's tokens,
// or if added_tokens_decoder has a token that the tokenizer lacks or has under another id. PAD
// and UNK of that kind are left out: nothing is trained on them.
absl::StatusOr<SpecialTokenNames> ReadSpecialTokens(
    const TokenizerFiles& files,
    absl::FunctionRef<std::optional<int32_t>(std::string_view token)> find,
    const SpecialTokenNames& otherwise = {});

}  // namespace penstock
