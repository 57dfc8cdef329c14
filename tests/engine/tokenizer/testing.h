// What the tokenizer tests share: the tokenizers of tests/testdata.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/model_tokenizer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace penstock::testing {

// The content of a file of tests/testdata.
std::string ReadTestFile(const std::string& name);

// The file tokenizers/NAME.json: see tests/reference/tokenizer_goldens.py.
nlohmann::json ReadGolden(const std::string& name);

// All names, sorted.
std::vector<std::string> GoldenNames();

inline absl::StatusOr<std::unique_ptr<ModelTokenizer>> Load(const nlohmann::json& tokenizer) {
  return ModelTokenizer::Create({.directory = "model", .tokenizer_json = tokenizer.dump()});
}

// A byte-level tokenizer of the 256 bytes and a few merges, to change and to load.
nlohmann::json SmallTokenizer();

}  // namespace penstock::testing
