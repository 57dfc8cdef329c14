#include "engine/audit/weights_directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/model/strict_json.h"
#include "engine/train/safetensors.h"
#include "engine/train/weight_convert.h"

namespace penstock {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kSingle[] = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr size_t kMaxFiles = 768;  // all are open at once; processes start with 1024 descriptors

absl::Status Invalid(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid, message);
}

absl::StatusOr<std::set<std::string>> ShardsOf(const ReadableFile& index) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, index.ReadAll(kMaxIndexBytes));
  PENSTOCK_ASSIGN_OR_RETURN(
      const nlohmann::json root,
      ParseStrictJson(text, index.path(), {.max_bytes = kMaxIndexBytes}, reason::kModelInvalid));
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object()) {
    return Invalid(absl::StrCat(index.path(), ": weight_map is missing or no object"));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return Invalid(absl::StrCat(index.path(), ": weight_map names no file for ", tensor));
    }
    shards.insert(shard.get<std::string>());
  }
  return shards;
}

// The names of the files that hold the weights.
absl::StatusOr<std::set<std::string>> FilesWithWeights(const RootedDirectory& root) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, root.List());
  const std::set<std::string> all(names.begin(), names.end());
  if (all.contains(kManifest)) {
    std::set<std::string> files;
    for (const std::string& name : all) {
      if (absl::StartsWith(name, "weights-") && absl::EndsWith(name, ".safetensors")) {
        files.insert(name);
      }
    }
    if (!files.empty()) return files;
  } else if (all.contains(kIndex)) {
    PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile index, root.OpenFile(kIndex));
    return ShardsOf(index);
  } else if (all.contains(kSingle)) {
    return std::set<std::string>{kSingle};
  }
  return Invalid(absl::StrCat(
      root.path(), " has no weights: it is neither a checkpoint (", kManifest,
      " and weights-*.safetensors) nor a Hugging Face directory (", kIndex, " or ", kSingle, ")"));
}

}  // namespace

absl::StatusOr<WeightsDirectory> WeightsDirectory::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const RootedDirectory root, RootedDirectory::Open(path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::set<std::string> names, FilesWithWeights(root));
  if (names.size() > kMaxFiles) {
    return Invalid(absl::StrCat(path, " has its weights in ", names.size(), " files; at most ",
                                kMaxFiles, " are opened"));
  }
  WeightsDirectory directory;
  for (const std::string& name : names) {
    PENSTOCK_ASSIGN_OR_RETURN(ReadableFile file, root.OpenFile(name));
    PENSTOCK_RETURN_IF_ERROR(directory.AddFile(std::move(file)));
  }
  std::vector<StoredWeights>& tensors = directory.tensors_;
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredWeights& a, const StoredWeights& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const StoredWeights& a, const StoredWeights& b) { return a.name == b.name; });
  if (twice == tensors.end()) return directory;
  return Invalid(absl::StrCat(path, " has tensor ", twice->name, " in more than one file"));
}

absl::Status WeightsDirectory::AddFile(ReadableFile file) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredTensor> stored, ReadSafetensorsHeader(file));
  for (const StoredTensor& tensor : stored) {
    const std::optional<WeightType> type = WeightTypeFromString(tensor.dtype);
    if (!type) {
      return Error(absl::StatusCode::kUnimplemented, reason::kModelUnsupported,
                   absl::StrCat(file.path(), ": tensor ", tensor.name, " is ", tensor.dtype,
                                "; F32, F16 and BF16 are read"),
                   {{"tensor", tensor.name}});
    }
    tensors_.push_back({.name = tensor.name,
                        .type = *type,
                        .shape = tensor.shape,
                        .elements = tensor.bytes / BytesPerElement(*type),
                        .file = static_cast<int64_t>(files_.size()),
                        .offset = tensor.begin});
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status WeightsDirectory::Read(const StoredWeights& tensor, int64_t first,
                                    std::span<float> out, std::vector<std::byte>& raw) const {
  const int64_t width = BytesPerElement(tensor.type);
  const int64_t bytes = static_cast<int64_t>(out.size()) * width;
  raw.resize(static_cast<size_t>(bytes));
  const ReadableFile& file = files_[tensor.file];
  const int64_t offset = tensor.offset + first * width;
  PENSTOCK_RETURN_IF_ERROR(file.ReadAt(offset, raw));
  file.Forget(offset, bytes);
  WidenWeights(tensor.type, raw.data(), out);
  return absl::OkStatus();
}

}  // namespace penstock
