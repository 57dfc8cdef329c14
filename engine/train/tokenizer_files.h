// The tokenizer of a model directory.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/train/weight_table.h"

namespace penstock {

// Of a directory that was read already: `side_files` are ExportSource's, `directory` is for
// messages.
absl::StatusOr<std::unique_ptr<ModelTokenizer>> TokenizerOf(std::span<const SideFile> side_files,
                                                            const std::string& directory);

// Reads the tokenizer's files of a directory and nothing else. Errors as in TokenizerOf() and
// RootedDirectory::Open().
absl::StatusOr<std::unique_ptr<ModelTokenizer>> OpenTokenizer(const std::string& directory);

}  // namespace penstock
