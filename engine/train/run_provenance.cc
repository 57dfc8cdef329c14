#include "engine/train/run_provenance.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/version.h"

namespace penstock {
namespace {

constexpr int64_t kHashWindowBytes = int64_t{1} << 20;
constexpr char kConfigName[] = "config.json";

absl::StatusOr<std::optional<SigningKey>> LoadKey(const ProvenanceConfig& config) {
  if (config.signing_key_path.empty()) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(SigningKey key, SigningKey::Load(config.signing_key_path));
  return std::optional<SigningKey>(std::move(key));
}

HashedFile HashOfText(const std::string& name, const std::string& text) {
  return {.name = name, .bytes = static_cast<int64_t>(text.size()), .sha256 = Sha256Of(text)};
}

absl::StatusOr<HashedFile> HashOfFile(const ReadableFile& file, const std::atomic<bool>& stopping) {
  Sha256 hash;
  std::vector<std::byte> window(static_cast<size_t>(std::min(kHashWindowBytes, file.size())));
  for (int64_t at = 0; at < file.size(); at += kHashWindowBytes) {
    if (stopping.load(std::memory_order_relaxed)) return absl::CancelledError("the run ends");
    const std::span<std::byte> part =
        std::span(window).first(std::min(kHashWindowBytes, file.size() - at));
    PENSTOCK_RETURN_IF_ERROR(file.ReadAt(at, part));
    file.Forget(at, static_cast<int64_t>(part.size()));
    hash.Update(part);
  }
  return HashedFile{.name = std::filesystem::path(file.path()).filename().string(),
                    .bytes = file.size(),
                    .sha256 = HexOf(hash.Finish())};
}

void AddSources(const Dataset& dataset, const char* use, DataOrigin& data) {
  for (const Dataset::Part& part : dataset.parts()) {
    const std::string key = std::filesystem::path(part.cache->path()).stem().string();
    data.sources.push_back({.name = part.name, .use = use, .token_cache = key});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunProvenance>> RunProvenance::Create(
    const ProvenanceConfig& config) {
  std::unique_ptr<RunProvenance> provenance(new RunProvenance(config));
  PENSTOCK_ASSIGN_OR_RETURN(provenance->key_, LoadKey(config));
  return provenance;
}

RunProvenance::~RunProvenance() {
  stopping_ = true;
  if (model_.valid()) model_.wait();
}

void RunProvenance::SetModel(const ModelInput& model) {
  inputs_ = {.path = model.source.model_path, .files = {}};
  inputs_.files.push_back(HashOfText(kConfigName, model.source.config_json));
  for (const SideFile& file : model.source.side_files) {
    inputs_.files.push_back(HashOfText(file.name, file.content));
  }
}

void RunProvenance::SetData(const JobData& data, const std::string& training,
                            const std::string& encoding) {
  DataOrigin& origin = data_.emplace();
  origin.training = training;
  origin.encoding = encoding;
  AddSources(*data.train, "training", origin);
  if (data.evaluation != nullptr) AddSources(*data.evaluation, "evaluation", origin);
}

void RunProvenance::BeginWithModel(const ModelInput& model) {
  if (model.directory == nullptr) {
    std::promise<ModelOrigin> known;
    known.set_value(inputs_);
    model_ = known.get_future().share();
    return;
  }
  model_ = std::async(std::launch::async, [this, &files = model.directory->files()] {
             return HashWeights(files);
           }).share();
}

ModelOrigin RunProvenance::HashWeights(const std::vector<ReadableFile>& files) const {
  ModelOrigin model = inputs_;
  for (const ReadableFile& file : files) {
    absl::StatusOr<HashedFile> hashed = HashOfFile(file, stopping_);
    if (!hashed.ok()) {
      // No reason to fail a checkpoint: the weights were read well, or the import says so.
      model.problem = absl::StrCat("not all files are hashed: ", hashed.status().message());
      return model;
    }
    model.files.push_back(*std::move(hashed));
  }
  return model;
}

void RunProvenance::GoOnFrom(const std::string& path) {
  KnownParent known = ReadParent(path, key());
  parent_ = std::move(known.parent);
  if (!known.trusted || !known.trusted->model) return;
  std::promise<ModelOrigin> model;
  model.set_value(*std::move(known.trusted->model));
  model_ = model.get_future().share();
}

void RunProvenance::ExportOf(const std::string& checkpoint) {
  parent_ = ReadParent(checkpoint, key()).parent;
}

Provenance RunProvenance::Describe(ProvenanceSubject subject, int64_t step) const {
  Provenance provenance{.subject = subject,
                        .job = config_.job,
                        .attempt = config_.attempt,
                        .step = step,
                        .code_version = Version(),
                        .public_key = {},
                        .files = {},
                        .parent = parent_,
                        .model = {},
                        .data = data_,
                        .spec = config_.spec};
  if (model_.valid()) provenance.model = model_.get();
  return provenance;
}

absl::StatusOr<std::unique_ptr<ExportProvenance>> ExportProvenance::Create(
    const ProvenanceConfig& config, const std::string& path) {
  std::unique_ptr<ExportProvenance> provenance(new ExportProvenance(config));
  PENSTOCK_ASSIGN_OR_RETURN(provenance->key_, LoadKey(config));
  provenance->parent_ = ReadParent(path, provenance->key());
  return provenance;
}

// What the checkpoint says of itself holds for its export, as far as it is believed.
Provenance ExportProvenance::Describe(ProvenanceSubject subject, int64_t step) const {
  Provenance provenance{.subject = subject,
                        .job = config_.job,
                        .attempt = config_.attempt,
                        .step = step,
                        .code_version = Version(),
                        .public_key = {},
                        .files = {},
                        .parent = parent_.parent,
                        .model = {},
                        .data = {},
                        .spec = config_.spec};
  if (parent_.trusted) {
    provenance.model = parent_.trusted->model;
    provenance.data = parent_.trusted->data;
  }
  return provenance;
}

}  // namespace penstock
