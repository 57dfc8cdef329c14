// Where the checkpoints of one run come from: who writes them, the job's spec, its data, and the
// base model or the checkpoint that it went on from.
//
//   Create --> SetModel, SetData --> BeginWithModel or GoOnFrom --> Describe ... --> ExportOf
//
// The base model's files are hashed by a thread of its own once the weights are read, which happens
// out of order: the first checkpoint waits for it, training does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/dataset.h"
#include "engine/engine.h"
#include "engine/train/model_input.h"
#include "engine/train/provenance_file.h"

namespace penstock {

// All but Describe belongs to the training thread, and is called while no checkpoint is written.
class RunProvenance final : public ProvenanceSource {
 public:
  // As SigningKey::Load() where the config names a key.
  static absl::StatusOr<std::unique_ptr<RunProvenance>> Create(const ProvenanceConfig& config);
  ~RunProvenance() override;

  // config.json and side files, as they came; before anything changes what exports will have.
  void SetModel(const ModelInput& model);
  // `training`: as the run's facts have it. `encoding`: ExampleEncoder::Fingerprint().
  void SetData(const JobData& data, const std::string& training, const std::string& encoding);

  // The run begins at step 0. `model` outlives this.
  void BeginWithModel(const ModelInput& model);
  // It goes on from the checkpoint at `path`. What that says of the base model is believed if this
  // daemon has signed it.
  void GoOnFrom(const std::string& path);
  // What is described from now on is an export of this checkpoint of the run, its last.
  void ExportOf(const std::string& checkpoint);

  Provenance Describe(ProvenanceSubject subject, int64_t step) const override;
  const SigningKey* key() const override { return key_ ? &*key_ : nullptr; }

 private:
  explicit RunProvenance(const ProvenanceConfig& config) : config_(config) {}
  ModelOrigin HashWeights(const std::vector<ReadableFile>& files) const;

  const ProvenanceConfig config_;
  std::optional<SigningKey> key_;
  ModelOrigin inputs_;  // what SetModel saw
  std::optional<ParentCheckpoint> parent_;
  std::optional<DataOrigin> data_;
  std::atomic<bool> stopping_ = false;
  // Of a model that is known, or is being hashed.
  std::shared_future<ModelOrigin> model_;
};

// Of an export of the checkpoint at `path`.
class ExportProvenance final : public ProvenanceSource {
 public:
  static absl::StatusOr<std::unique_ptr<ExportProvenance>> Create(const ProvenanceConfig& config,
                                                                  const std::string& path);
  Provenance Describe(ProvenanceSubject subject, int64_t step) const override;
  const SigningKey* key() const override { return key_ ? &*key_ : nullptr; }

 private:
  explicit ExportProvenance(const ProvenanceConfig& config) : config_(config) {}
  const ProvenanceConfig config_;
  std::optional<SigningKey> key_;
  KnownParent parent_;
};

}  // namespace penstock
