#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/example_encoder.h"
#include "engine/tokenizer/model_tokenizer.h"

namespace penstock {

// What is wrong, in all likelihood, between a chat template, a tokenizer and what ends generation,
// found by rendering one question with its answer:
//
//   the text begins without the BOS that the tokenizer puts before a text, or with two of them
//   the assistant's turn does not end with a token of its own
//   it ends with one that generation_config.json does not stop at
//
// A line each, for people. A template that refuses the question says so when rows come.
std::vector<std::string> ChatWarnings(const ChatSetup& chat, const ModelTokenizer& tokenizer,
                                      std::string_view generation_config_json);

}  // namespace penstock
