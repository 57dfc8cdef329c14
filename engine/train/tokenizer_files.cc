#include "engine/train/tokenizer_files.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/train/rooted_file.h"

namespace penstock {
namespace {

struct KnownFile {
  std::string_view name;
  std::string TokenizerFiles::*content;
};
constexpr KnownFile kKnownFiles[] = {
    {"tokenizer.json", &TokenizerFiles::tokenizer_json},
    {"tokenizer.model", &TokenizerFiles::sentencepiece_model},
    {"tokenizer_config.json", &TokenizerFiles::tokenizer_config},
    {"special_tokens_map.json", &TokenizerFiles::special_tokens_map},
    {"added_tokens.json", &TokenizerFiles::added_tokens},
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTokenizer>> TokenizerOf(std::span<const SideFile> side_files,
                                                            const std::string& directory) {
  TokenizerFiles files = {.directory = directory};
  for (const KnownFile& known : kKnownFiles) {
    const auto it = std::find_if(side_files.begin(), side_files.end(),
                                 [&](const SideFile& file) { return file.name == known.name; });
    if (it != side_files.end()) files.*known.content = it->content;
  }
  return ModelTokenizer::Create(files);
}

absl::StatusOr<std::unique_ptr<ModelTokenizer>> OpenTokenizer(const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(const RootedDirectory root, RootedDirectory::Open(directory));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, root.List());
  TokenizerFiles files = {.directory = directory};
  for (const KnownFile& known : kKnownFiles) {
    if (!std::binary_search(names.begin(), names.end(), known.name)) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, root.OpenFile(std::string(known.name)));
    PENSTOCK_ASSIGN_OR_RETURN(files.*known.content, file.ReadAll(kMaxTokenizerFileBytes));
  }
  return ModelTokenizer::Create(files);
}

}  // namespace penstock
