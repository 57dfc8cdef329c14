// What every model's tokenizer does with its input and its identity.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/tokenizer/model_tokenizer.h"

namespace penstock {

// InvalidArgument / DATA_INVALID if the text is not UTF-8 or has more than kMaxEncodeBytes.
absl::Status CheckTextInput(std::string_view text);

// `scheme` and a hash of what decides about ids: the file, and the token that ends a document.
std::string FingerprintOf(std::string_view scheme, std::string_view file,
                          const SpecialTokenNames& names);

}  // namespace penstock
