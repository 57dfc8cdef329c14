// A weights checkpoint: a directory from which the model can be loaded or exported without
// anything else.
//
//   manifest.json              what this is, every other file with size and XXH3-64
//   weights-00001.safetensors  the fp32 masters, exact, under Hugging Face names
//   source/config.json         the model's config and side files, verbatim
//
// Written beside its destination and renamed, so a directory of that name is complete. What is
// wrong with one is DataLoss / CHECKPOINT_CORRUPT naming the file, what was found and what was
// wanted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/model/model_spec.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/weight_table.h"

namespace penstock {

// Where the run stood.
struct CheckpointInfo {
  int64_t step = 0;
  int64_t tokens = 0;  // trained on so far
  int64_t updates_applied = 0;
  std::optional<double> loss;  // of the last step; finite
  std::string code_version;
  std::map<std::string, std::string> fields;  // the job's own, kept as given
};

// AlreadyExists / OUTPUT_EXISTS if the destination exists. Masters are stored bit for bit,
// finite or not. `store` must not change until this returns.
absl::Status WriteCheckpoint(const HostStore& store, const ExportSource& source,
                             const CheckpointInfo& info, const std::string& destination,
                             ThreadPool& pool, ProgressFunction progress);

// An opened checkpoint.
class Checkpoint {
 public:
  const std::string& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }
  const ModelSpec& spec() const { return spec_; }
  const ModelLayout& layout() const { return layout_; }
  const ExportSource& source() const { return source_; }
  const std::vector<TensorLocation>& tensors() const { return tensors_; }
  const std::vector<ReadableFile>& files() const { return files_; }

 private:
  friend class CheckpointOpener;
  Checkpoint() = default;
  std::string path_;
  CheckpointInfo info_;
  ModelSpec spec_;
  ModelLayout layout_;
  ExportSource source_;
  std::vector<TensorLocation> tensors_;
  std::vector<ReadableFile> files_;
};

// kSizes reads the manifest, source/ and the headers; kHashes reads every byte.
enum class Verification : uint8_t { kSizes, kHashes };
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                           Verification verification);

// Sets hi and lo of every parameter. m, v and updates_applied are left alone.
// REQUIRES: the store has the checkpoint's layout.
absl::Status LoadCheckpointWeights(const Checkpoint& checkpoint, HostStore& store, ThreadPool& pool,
                                   ProgressFunction progress);

// From checkpoint to Hugging Face directory through ExportPeakBytes, without a store. Verifies
// hashes first.
absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& destination,
                              const ExportOptions& options, ThreadPool& pool,
                              ProgressFunction progress);

}  // namespace penstock
