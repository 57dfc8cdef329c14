// A checkpoint: a directory from which the model can be exported and the run can go on, without
// anything else.
//
//   manifest.json              where the run stood, every other file with size and XXH3-64
//   weights-00001.safetensors  the fp32 masters under Hugging Face names: the store's two planes,
//                              joined, of which there is one way to split them again
//   m-00001.safetensors        AdamW's first moments under the same names, in the type that the run
//                              keeps them in; v-…: the second
//   m_scales-00001.safetensors of moments in 8-bit blocks the scales; v_scales-…: the second's
//   source/config.json         the model's config and side files, verbatim
//   provenance.json, .sig      engine/provenance/provenance.h; nothing here reads them
//
// Written beside its destination and renamed, so a directory of that name is complete. What is
// wrong with one is DataLoss / CHECKPOINT_CORRUPT naming the file, what was found and what was
// wanted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/model/model_spec.h"
#include "engine/train/checkpoint_planes.h"
#include "engine/train/export.h"
#include "engine/train/loss_watch.h"
#include "engine/train/progress.h"
#include "engine/train/provenance_file.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"
#include "engine/train/weight_table.h"

namespace penstock {

// What decides the bits of a run, by name and as text.
struct RunFacts {
  // Data, order, optimizer, schedule: with other values it is another run.
  std::map<std::string, std::string> identity = {};
  // What changes rounding only: shapes of chunks, backend, program.
  std::map<std::string, std::string> rounding = {};
};

struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;  // finite
};

// Where the run stood.
struct CheckpointInfo {
  int64_t step = 0;
  int64_t tokens = 0;  // trained on so far
  int64_t updates_applied = 0;
  int64_t nonfinite_streak = 0;     // steps up to this one that were skipped in a row
  bool evaluation_due = false;      // the one after this step has not been finished
  std::optional<double> loss = {};  // of the last step; finite
  // Of the model after the step, if it was evaluated; finite.
  std::optional<double> evaluation_loss = {};
  std::optional<BestEvaluation> best = {};  // the lowest of all evaluations up to there
  int64_t left_out_data_steps = 0;          // before this step (left_out_data.h)
  LossMemory loss_memory = {};
  std::string code_version = {};
  RunFacts facts = {};
};

// How the tensors of a plane are cut into files. There are a few hundred at most, however large the
// model: whoever opens a checkpoint holds all of its files open.
std::vector<WeightFile> CutForCheckpoint(const ModelLayout& layout);

// Bytes of tensors in a checkpoint of the store, headers and small files not counted.
int64_t CheckpointBytes(const HostStore& store);

// Called when a checkpoint needs nothing more of a block, once a block, from any thread of the
// pool.
using BlockCopied = absl::FunctionRef<void(BlockId block)>;

struct CheckpointWriteOptions {
  // The order in which blocks are to change, if they are to change while the checkpoint is written.
  std::span<const BlockId> update_order = {};
  std::optional<BlockCopied> copied = {};
  // Null: without provenance.json.
  const ProvenanceSource* provenance = nullptr;
};

struct WrittenCheckpoint {
  int64_t bytes = 0;                   // of all files
  std::string provenance_sha256 = {};  // of provenance.json, if it has one
};

// How many threads a checkpoint is written by where a job has `threads`: more than that, for while
// one waits for the disk another copies, but a few keep a disk busy. And the memory that they take,
// for the memory plan.
int CheckpointThreads(int threads);
int64_t CheckpointPeakBytes(int checkpoint_threads);

// AlreadyExists / OUTPUT_EXISTS if the destination exists;
// ResourceExhausted / DISK_INSUFFICIENT, before anything is written, if its file system lacks the
// room. Everything is stored bit for bit,
// finite or not; the moments only if the store has them. A block of `store` must not change until
// it has been copied, or this returns. Each thread of the pool writes files of its own
// (CheckpointPeakBytes). The bytes of no other file than provenance.json depend on the options.
absl::StatusOr<WrittenCheckpoint> WriteCheckpoint(const HostStore& store,
                                                  const ExportSource& source,
                                                  const CheckpointInfo& info,
                                                  const std::string& destination, ThreadPool& pool,
                                                  ProgressFunction progress,
                                                  const CheckpointWriteOptions& options = {});

// A tensor file of a checkpoint, open.
struct CheckpointFile {
  CheckpointPlane plane;
  ReadableFile file;
  uint64_t xxh3;                      // that the manifest says
  std::vector<StoredTensor> tensors;  // as CheckpointTensor(); all of the file but its header
};

// An opened checkpoint.
class Checkpoint {
 public:
  const std::string& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }
  const ModelSpec& spec() const { return spec_; }
  const ModelLayout& layout() const { return layout_; }
  const ExportSource& source() const { return source_; }
  const std::vector<CheckpointFile>& files() const { return files_; }
  // Whether a run can go on from it. Without: weights only, as version 1 wrote them.
  bool has_moments() const { return has_moments_; }
  MomentType moment_type() const { return moment_type_; }

 private:
  friend class CheckpointOpener;
  Checkpoint() = default;
  std::string path_;
  CheckpointInfo info_;
  ModelSpec spec_;
  ModelLayout layout_;
  ExportSource source_;
  std::vector<CheckpointFile> files_;
  bool has_moments_ = false;
  MomentType moment_type_ = MomentType::kFloat32;
};

// kSizes reads the manifest, source/ and the headers; kWeights also every byte of the weights;
// kHashes every byte.
enum class Verification : uint8_t { kSizes, kWeights, kHashes };
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                           Verification verification);

// Fills the planes of every parameter, and, where checkpoint and store have them, the moments and
// updates_applied; gaps are left alone. Reads every file once, front to back, and compares its
// hash: after an error the store holds some of it. Each thread reads files of its own through one
// window (ImportPeakBytes). FailedPrecondition / CHECKPOINT_MISMATCH, with the store as it was, if
// its model is another or both have moments and keep them in different types.
absl::Status LoadCheckpoint(const Checkpoint& checkpoint, HostStore& store, ThreadPool& pool,
                            ProgressFunction progress);

// From checkpoint to Hugging Face directory through ExportPeakBytes, without a store. Verifies the
// hashes of the weights first. The export's provenance is `options.provenance` of the checkpoint's
// step.
absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& destination,
                              const ExportOptions& options, ThreadPool& pool,
                              ProgressFunction progress);

}  // namespace penstock
