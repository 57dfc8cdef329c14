#pragma once

#include "engine/tokenizer/model_tokenizer.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

// Makes a tokenizer of the files; if there is one, uses it on a made-up text and checks what any
// tokenizer promises of any bytes.
absl::StatusOr<Outcome> UseTokenizer(const TokenizerFiles& files, Random& random);

}  // namespace penstock::fuzz
