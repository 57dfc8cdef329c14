#include "engine/train/model_directory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/model/config_fields.h"
#include "engine/model/strict_json.h"
#include "engine/train/safetensors.h"

namespace penstock {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kTableName[] = "model.embed_tokens.weight";
constexpr char kHeadName[] = "lm_head.weight";
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr int64_t kMaxSideFileBytes = int64_t{64} << 20;
constexpr int64_t kMaxAllSideFilesBytes = int64_t{256} << 20;
constexpr size_t kMaxShards = 768;  // all are open at once; processes start with 1024 descriptors
constexpr int64_t kCompareBytes = int64_t{1} << 20;

absl::Status Invalid(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid, message);
}

bool IsSideFile(const std::string& name) {
  static const std::set<std::string> kNames = {"generation_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "chat_template.jinja",
                                               "chat_template.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "vocab.txt"};
  const bool tokenizer = absl::StartsWith(name, "tokenizer") && absl::StrContains(name, ".");
  if (absl::EndsWith(name, ".safetensors")) return false;
  return kNames.contains(name) || tokenizer || absl::EndsWith(name, ".model");
}

// Written by old versions of transformers; a function of the config.
bool IsIgnoredTensor(const std::string& name) {
  return absl::EndsWith(name, "rotary_emb.inv_freq");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// "a, b, c and 7 more"
std::string ListText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(kShown, names.size());
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

// Fills a ModelDirectory, a step a function.
class ModelDirectoryReader {
 public:
  explicit ModelDirectoryReader(RootedDirectory root)
      : root_(std::move(root)), model_(new ModelDirectory()) {}

  absl::StatusOr<std::unique_ptr<ModelDirectory>> Read() {
    model_->source_.model_path = root_.path();
    PENSTOCK_ASSIGN_OR_RETURN(names_, root_.List());
    PENSTOCK_RETURN_IF_ERROR(ReadConfig());
    PENSTOCK_RETURN_IF_ERROR(ChooseShards());
    PENSTOCK_RETURN_IF_ERROR(OpenShards());
    for (size_t i = 0; i < shards_.size(); ++i) PENSTOCK_RETURN_IF_ERROR(ReadShard(i));
    PENSTOCK_RETURN_IF_ERROR(CheckIndexIsCovered());
    PENSTOCK_RETURN_IF_ERROR(LocateParameters());
    PENSTOCK_RETURN_IF_ERROR(CheckTiedHead());
    PENSTOCK_RETURN_IF_ERROR(ReadSideFiles());
    NoteUnusedFiles();
    return std::move(model_);
  }

 private:
  bool Has(const std::string& name) const {
    return std::binary_search(names_.begin(), names_.end(), name);
  }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(root_.path(), "/", name);
  }

  absl::Status ReadConfig() {
    PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, root_.OpenFile(kConfigName));
    PENSTOCK_ASSIGN_OR_RETURN(model_->source_.config_json, file.ReadAll(kMaxConfigBytes));
    absl::StatusOr<ModelSpec> spec = ParseModelConfig(model_->source_.config_json);
    if (!spec.ok()) return Annotate(spec.status(), root_.path());
    model_->spec_ = *std::move(spec);
    model_->layout_ = MakeLayout(model_->spec_);
    index_.emplace(model_->layout_);
    return absl::OkStatus();
  }

  absl::Status ChooseShards() {
    if (Has(kIndexName)) return ReadIndex();
    if (Has(kSingleName)) {
      shards_ = {kSingleName};
      return absl::OkStatus();
    }
    std::string hint = "download the model's safetensors files";
    for (const std::string& name : names_) {
      if (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".pth") ||
          absl::EndsWith(name, ".gguf")) {
        hint = absl::StrCat(name, " is there, but only safetensors weights are read: convert them");
      }
    }
    return Error(
        absl::StatusCode::kNotFound, reason::kModelInvalid,
        absl::StrCat(root_.path(), " has neither ", kSingleName, " nor ", kIndexName, "; ", hint));
  }

  absl::Status ReadIndex() {
    model_->source_.indexed = true;
    PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, root_.OpenFile(kIndexName));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxIndexBytes));
    PENSTOCK_ASSIGN_OR_RETURN(
        const nlohmann::json json,
        ParseStrictJson(text, file.path(), {.max_bytes = kMaxIndexBytes}, reason::kModelInvalid));
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
      return Invalid(absl::StrCat(file.path(), " has no object \"weight_map\""));
    }
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : json["weight_map"].items()) {
      if (!shard.is_string()) {
        return Invalid(absl::StrCat(file.path(), ": weight_map[", ShortJson(tensor), "] is ",
                                    ShortJson(shard), "; the name of a file is needed"));
      }
      const std::string name = shard.get<std::string>();
      if (!IsPlainFileName(name) || !absl::EndsWith(name, ".safetensors")) {
        return Error(
            absl::StatusCode::kPermissionDenied, reason::kPathNotAllowed,
            absl::StrCat(file.path(), ": weight_map[", ShortJson(tensor), "] is ", ShortJson(shard),
                         "; the plain name of a .safetensors file in the directory is "
                         "needed"));
      }
      shards.insert(name);
      if (!IsIgnoredTensor(tensor)) weight_map_.emplace(tensor, name);
    }
    if (shards.size() > kMaxShards || shards.empty()) {
      return Invalid(absl::StrCat(file.path(), " names ", shards.size(), " files; from 1 to ",
                                  kMaxShards, " are accepted"));
    }
    shards_.assign(shards.begin(), shards.end());
    return absl::OkStatus();
  }

  // All before any is read: a name that leads outside is refused for that, and a missing shard
  // before any header is parsed.
  absl::Status OpenShards() {
    for (const std::string& shard : shards_) {
      absl::StatusOr<ReadableFile> file = root_.OpenFile(shard);
      if (absl::IsNotFound(file.status())) {
        return Error(
            absl::StatusCode::kNotFound, reason::kModelInvalid,
            absl::StrCat(PathOf(kIndexName), " names ", shard, ", which is missing; download it"),
            {{"file", shard}});
      }
      PENSTOCK_RETURN_IF_ERROR(file.status());
      model_->files_.push_back(*std::move(file));
    }
    return absl::OkStatus();
  }

  absl::Status ReadShard(size_t number) {
    const std::string& shard = shards_[number];
    const ReadableFile& file = model_->files_[number];
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredTensor> stored, ReadSafetensorsHeader(file));
    model_->source_.files.push_back({.name = shard, .entries = {}});
    for (const StoredTensor& tensor : stored) {
      if (IsIgnoredTensor(tensor.name)) {
        model_->notes_.push_back(absl::StrCat("ignored: tensor ", tensor.name, " of ", shard));
        continue;
      }
      PENSTOCK_RETURN_IF_ERROR(CheckPlace(tensor.name, shard));
      PENSTOCK_RETURN_IF_ERROR(AddTensor(file, static_cast<int64_t>(number), tensor));
    }
    return absl::OkStatus();
  }

  // The index and the shards must agree about every tensor.
  absl::Status CheckPlace(const std::string& tensor, const std::string& shard) const {
    const auto found = found_.find(tensor);
    if (found != found_.end()) {
      return Invalid(absl::StrCat("tensor ", tensor, " is in two files of ", root_.path(), ": ",
                                  model_->source_.files[found->second.file].name, " and ", shard,
                                  "; download the model again"));
    }
    if (!model_->source_.indexed) return absl::OkStatus();
    const auto wanted = weight_map_.find(tensor);
    if (wanted == weight_map_.end()) {
      return Invalid(absl::StrCat("tensor ", tensor, " of ", PathOf(shard), " is not in ",
                                  kIndexName, "; the two are not of one model"));
    }
    if (wanted->second != shard) {
      return Invalid(absl::StrCat("tensor ", tensor, " is in ", PathOf(shard), ", but ", kIndexName,
                                  " has it in ", wanted->second, "; the two are not of one model"));
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const ReadableFile& file, int64_t number, const StoredTensor& tensor) {
    const ParameterIndex::Place* place = index_->Find(tensor.name);
    if (place == nullptr) {
      return Invalid(absl::StrCat(file.path(), ": tensor ", tensor.name,
                                  " is none that a model of type ", model_->spec_.family,
                                  " with this config.json has"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckShape(file, tensor, *place->parameter));
    const std::optional<WeightType> type = WeightTypeFromString(tensor.dtype);
    if (!type) {
      return Error(absl::StatusCode::kUnimplemented, reason::kModelUnsupported,
                   absl::StrCat(file.path(), ": tensor ", tensor.name, " has dtype ", tensor.dtype,
                                "; supported: F32, F16, BF16"));
    }
    model_->source_.files.back().entries.push_back(
        {.name = tensor.name, .type = *type, .shape = tensor.shape});
    found_.emplace(tensor.name, TensorLocation{.name = tensor.name,
                                               .type = *type,
                                               .file = number,
                                               .offset = tensor.begin,
                                               .elements = place->parameter->size});
    return absl::OkStatus();
  }

  absl::Status CheckShape(const ReadableFile& file, const StoredTensor& tensor,
                          const Parameter& parameter) const {
    if (tensor.shape == parameter.shape) return absl::OkStatus();
    const bool vocabulary = tensor.name == kTableName || tensor.name == kHeadName;
    if (vocabulary && tensor.shape.size() == 2 && tensor.shape[1] == parameter.shape[1]) {
      return Invalid(absl::StrCat("config.json: vocab_size is ", parameter.shape[0], ", but ",
                                  tensor.name, " in ", file.path(), " has ", tensor.shape[0],
                                  " rows; set vocab_size to the number of rows"));
    }
    return Invalid(absl::StrCat(file.path(), ": tensor ", tensor.name, " has shape ",
                                ShapeText(tensor.shape), "; config.json asks for ",
                                ShapeText(parameter.shape)));
  }

  absl::Status CheckIndexIsCovered() const {
    std::vector<std::string> missing;
    for (const auto& [tensor, shard] : weight_map_) {
      if (!found_.contains(tensor)) missing.push_back(absl::StrCat(tensor, " (", shard, ")"));
    }
    if (missing.empty()) return absl::OkStatus();
    return Invalid(absl::StrCat(PathOf(kIndexName),
                                " names tensors that their files lack: ", ListText(missing)));
  }

  absl::Status LocateParameters() {
    std::vector<std::string> missing;
    for (const BlockLayout& block : model_->layout_.blocks) {
      for (const Parameter& parameter : block.parameters) {
        const auto found = found_.find(parameter.name);
        if (found == found_.end()) {
          missing.push_back(parameter.name);
        } else {
          model_->tensors_.push_back(found->second);
        }
      }
    }
    if (missing.empty()) return absl::OkStatus();
    if (missing.size() == 1 && missing[0] == kHeadName) {
      return Invalid(absl::StrCat(
          root_.path(), " has no ", kHeadName,
          ", and tie_word_embeddings in config.json is false or missing; if the head shares ",
          kTableName, ", set it to true"));
    }
    return Invalid(absl::StrCat(root_.path(), " lacks ", missing.size(),
                                " tensors of the model: ", ListText(missing)));
  }

  absl::Status CheckTiedHead() const {
    const auto head = found_.find(kHeadName);
    if (!model_->spec_.tied() || head == found_.end()) return absl::OkStatus();
    const TensorLocation& a = head->second;
    const TensorLocation& b = found_.at(kTableName);
    bool equal = a.type == b.type;
    std::vector<std::byte> a_bytes(kCompareBytes), b_bytes(kCompareBytes);
    const int64_t bytes = a.elements * BytesPerElement(a.type);
    for (int64_t at = 0; equal && at < bytes; at += kCompareBytes) {
      const size_t count = static_cast<size_t>(std::min(kCompareBytes, bytes - at));
      const std::span<std::byte> a_part(a_bytes.data(), count), b_part(b_bytes.data(), count);
      PENSTOCK_RETURN_IF_ERROR(model_->files_[a.file].ReadAt(a.offset + at, a_part));
      PENSTOCK_RETURN_IF_ERROR(model_->files_[b.file].ReadAt(b.offset + at, b_part));
      equal = std::equal(a_part.begin(), a_part.end(), b_part.begin());
    }
    if (equal) return absl::OkStatus();
    return Invalid(absl::StrCat("tie_word_embeddings in ", PathOf(kConfigName), " is true, but ",
                                kHeadName, " and ", kTableName,
                                " differ; set it to false to train both, or remove ", kHeadName));
  }

  absl::Status ReadSideFiles() {
    int64_t total = 0;
    for (const std::string& name : names_) {
      if (!IsSideFile(name)) continue;
      PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, root_.OpenFile(name));
      PENSTOCK_ASSIGN_OR_RETURN(std::string content, file.ReadAll(kMaxSideFileBytes));
      total += static_cast<int64_t>(content.size());
      if (total > kMaxAllSideFilesBytes) {
        return Invalid(absl::StrCat(root_.path(),
                                    ": tokenizer and other side files take more than ",
                                    FormatBytes(kMaxAllSideFilesBytes)));
      }
      const std::string foreign = content.empty() ? "" : DescribeForeignContent(content);
      if (!foreign.empty()) return Invalid(absl::StrCat(file.path(), " is ", foreign));
      model_->source_.side_files.push_back({.name = name, .content = std::move(content)});
    }
    return absl::OkStatus();
  }

  void NoteUnusedFiles() {
    std::set<std::string> used(shards_.begin(), shards_.end());
    used.insert(kConfigName);
    if (model_->source_.indexed) used.insert(kIndexName);
    for (const std::string& name : names_) {
      if (!used.contains(name) && !IsSideFile(name)) {
        model_->notes_.push_back(absl::StrCat("not used: ", name));
      }
    }
  }

  RootedDirectory root_;
  std::unique_ptr<ModelDirectory> model_;
  std::vector<std::string> names_;   // in the directory, sorted
  std::vector<std::string> shards_;  // weight files to read
  std::optional<ParameterIndex> index_;
  std::map<std::string, std::string> weight_map_;  // of the index: tensor to file
  std::map<std::string, TensorLocation> found_;
};

absl::StatusOr<std::unique_ptr<ModelDirectory>> ModelDirectory::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(RootedDirectory root, RootedDirectory::Open(path));
  return ModelDirectoryReader(std::move(root)).Read();
}

int64_t ModelDirectory::weight_bytes() const {
  int64_t bytes = 0;
  for (const TensorLocation& tensor : tensors_) {
    bytes += tensor.elements * BytesPerElement(tensor.type);
  }
  return bytes;
}

}  // namespace penstock
