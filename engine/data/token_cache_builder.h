#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/source.h"

namespace penstock {

struct BuildTokenCacheArgs {
  const DataSource* source = nullptr;
  const ExampleEncoder* encoder = nullptr;
  int threads = 1;
  std::string key;
  std::vector<std::string> content_hashes;  // of the files, as the key has them
  std::string directory;
  std::string path;  // of the finished file, in `directory`
  ReadProgress progress = nullptr;
};

// Tokenizes the source into the cache file `path`; format: token_cache_format.h. Memory does not
// grow with the source. FailedPrecondition if a file is not what `content_hashes` says: it
// changed since the key was made.
absl::Status BuildTokenCache(const BuildTokenCacheArgs& args);

}  // namespace penstock
