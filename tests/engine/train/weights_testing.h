// Tiny model directories made on the spot, and what tests compare of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/memory/host_store.h"
#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "engine/train/progress.h"
#include "engine/train/weight_table.h"
#include "nlohmann/json.hpp"

namespace penstock::testing {

// A directory of its own, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string ReadFileOrDie(const std::string& path);
void WriteFileOrDie(const std::string& path, const std::string& content);
// Names of all files beneath a directory, with their contents.
std::map<std::string, std::string> ReadTree(const std::string& path);
// Without provenance.json and its signature, which say who made the rest, and in which attempt:
// runs that end with the same state differ there.
std::map<std::string, std::string> ReadState(const std::string& path);

absl::Status NoProgress(int64_t done, int64_t total);

// Two layers, hidden 64, vocab 512; qwen2-like tied models come from changing keys.
nlohmann::json TinyConfig();
ModelSpec SpecOf(const nlohmann::json& config);

// One tensor of a file to be made: entry and its bytes.
struct MadeTensor {
  WeightEntry entry;
  std::string bytes;
};
using MadeFile = std::pair<std::string, std::vector<MadeTensor>>;

// Bytes of finite values of every class that the type has (zeros of both signs, subnormals,
// large and small), the same for the same seed.
std::string MakeValues(WeightType type, int64_t elements, uint64_t seed);

// Every parameter of the spec, in layout order, spread over `shards` files.
std::vector<MadeFile> MakeFiles(const ModelSpec& spec, WeightType type, int shards);
MadeTensor& FindMade(std::vector<MadeFile>& files, const std::string& name);

// Writes config, files, and an index if there is more than one file. The directory must exist.
void WriteModel(const std::string& path, const nlohmann::json& config,
                const std::vector<MadeFile>& files);
void WriteMadeFile(const std::string& directory, const MadeFile& file);

// Name to "dtype shape bytes" of every tensor in all safetensors files of a directory.
std::map<std::string, std::string> TensorsOf(const std::string& path);

// The text of a checkpoint's manifest with the checksum that its content wants.
std::string WithChecksum(nlohmann::json manifest);

std::unique_ptr<HostStore> MakeStore(const ModelLayout& layout);

}  // namespace penstock::testing
