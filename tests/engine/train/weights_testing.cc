#include "weights_testing.h"

#include <fcntl.h>
#include <stdlib.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/provenance/provenance.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"
#include "engine/train/safetensors_writer.h"

namespace penstock::testing {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  PENSTOCK_CHECK(result.ok(), result.status().ToString());
  return *std::move(result);
}

void OkOrDie(const absl::Status& status) { PENSTOCK_CHECK(status.ok(), status.ToString()); }

}  // namespace

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "penstock-test-XXXXXX").string();
  PENSTOCK_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  PENSTOCK_CHECK(file.good(), path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

void WriteFileOrDie(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  PENSTOCK_CHECK(file.good(), path);
}

std::map<std::string, std::string> ReadTree(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), path).string()] =
        ReadFileOrDie(entry.path().string());
  }
  return files;
}

std::map<std::string, std::string> ReadState(const std::string& path) {
  std::map<std::string, std::string> files = ReadTree(path);
  files.erase(kProvenanceName);
  files.erase(kSignatureName);
  return files;
}

absl::Status NoProgress(int64_t, int64_t) { return absl::OkStatus(); }

nlohmann::json TinyConfig() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 512},
          {"hidden_size", 64},
          {"intermediate_size", 176},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 2048},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"torch_dtype", "bfloat16"},
          {"tie_word_embeddings", false}};
}

ModelSpec SpecOf(const nlohmann::json& config) { return OrDie(ParseModelConfig(config.dump())); }

std::string MakeValues(WeightType type, int64_t elements, uint64_t seed) {
  std::string bytes;
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = static_cast<uint32_t>(state >> 32);
    if (i % 16 == 0) bits &= 0x80008000u;  // zeros of either sign
    if (type == WeightType::kFloat32) {
      if (i % 16 == 1) bits &= 0x807fffffu;                          // subnormal
      if ((bits & 0x7f800000u) == 0x7f800000u) bits ^= 0x40000000u;  // finite
      bytes.append(reinterpret_cast<const char*>(&bits), 4);
      continue;
    }
    const bool half = type == WeightType::kFloat16;
    const uint16_t exponent = half ? 0x7c00 : 0x7f80;
    uint16_t value = static_cast<uint16_t>(bits);
    if (i % 16 == 1) value = static_cast<uint16_t>(value & ~exponent);
    if ((value & exponent) == exponent) value = static_cast<uint16_t>(value ^ 0x4000);
    bytes.append(reinterpret_cast<const char*>(&value), 2);
  }
  return bytes;
}

std::vector<MadeFile> MakeFiles(const ModelSpec& spec, WeightType type, int shards) {
  const ModelLayout layout = MakeLayout(spec);
  std::vector<MadeTensor> tensors;
  for (const BlockLayout& block : layout.blocks) {
    for (const Parameter& parameter : block.parameters) {
      tensors.push_back({{parameter.name, type, parameter.shape},
                         MakeValues(type, parameter.size, tensors.size() + 1)});
    }
  }
  std::vector<MadeFile> files;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string name =
        shards == 1 ? "model.safetensors"
                    : absl::StrCat("model-0000", shard + 1, "-of-0000", shards, ".safetensors");
    files.push_back({name, {}});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    files[i * shards / tensors.size()].second.push_back(tensors[i]);
  }
  return files;
}

MadeTensor& FindMade(std::vector<MadeFile>& files, const std::string& name) {
  for (MadeFile& file : files) {
    for (MadeTensor& tensor : file.second) {
      if (tensor.entry.name == name) return tensor;
    }
  }
  CheckFailed(__FILE__, __LINE__, "FindMade", name);
}

void WriteMadeFile(const std::string& directory, const MadeFile& file) {
  FileDescriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY));
  PENSTOCK_CHECK(fd.valid(), directory);
  std::vector<WeightEntry> entries;
  for (const MadeTensor& tensor : file.second) entries.push_back(tensor.entry);
  SafetensorsWriter writer =
      OrDie(SafetensorsWriter::Create(fd.get(), directory, file.first, entries));
  for (const MadeTensor& tensor : file.second) {
    OkOrDie(writer.Append(std::as_bytes(std::span(tensor.bytes))));
  }
  OkOrDie(writer.Finish().status());
}

void WriteModel(const std::string& path, const nlohmann::json& config,
                const std::vector<MadeFile>& files) {
  std::filesystem::create_directories(path);
  WriteFileOrDie(path + "/config.json", config.dump(2) + "\n");
  nlohmann::json index = {{"metadata", {{"total_size", 0}}}};
  for (const MadeFile& file : files) {
    WriteMadeFile(path, file);
    for (const MadeTensor& tensor : file.second) {
      index["weight_map"][tensor.entry.name] = file.first;
    }
  }
  if (files.size() > 1) {
    WriteFileOrDie(path + "/model.safetensors.index.json", index.dump(2));
  }
}

std::map<std::string, std::string> TensorsOf(const std::string& path) {
  std::map<std::string, std::string> tensors;
  const RootedDirectory root = OrDie(RootedDirectory::Open(path));
  for (const std::string& name : OrDie(root.List())) {
    if (!absl::EndsWith(name, ".safetensors")) continue;
    const std::string content = ReadFileOrDie(path + "/" + name);
    for (const StoredTensor& tensor : OrDie(ReadSafetensorsHeader(OrDie(root.OpenFile(name))))) {
      const bool added =
          tensors
              .emplace(tensor.name,
                       absl::StrCat(tensor.dtype, " [", absl::StrJoin(tensor.shape, ","), "] ",
                                    content.substr(tensor.begin, tensor.bytes)))
              .second;
      PENSTOCK_CHECK(added, tensor.name);
    }
  }
  return tensors;
}

std::string WithChecksum(nlohmann::json manifest) {
  manifest.erase("manifest_xxh3_64");
  const std::string text = manifest.dump(1);
  StreamHash hash;
  hash.Update(std::as_bytes(std::span(text)));
  manifest["manifest_xxh3_64"] = absl::StrFormat("%016x", hash.Digest());
  return manifest.dump();
}

std::unique_ptr<HostStore> MakeStore(const ModelLayout& layout) {
  return OrDie(HostStore::Create(layout, OptimizerState::kFloat32, GradientPlane::kNone));
}

}  // namespace penstock::testing
