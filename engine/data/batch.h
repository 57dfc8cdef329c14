// BatchStream: the micro-batches of every step of a job, as a function of the step's number.
//
// An epoch is all rows of its plan (engine/data/mixture.h), each once. A step takes the next
// rows_per_micro_batch * micro_batches_per_step of them; the last step of an epoch takes what is
// left, so steps per epoch are rounded up and rows of two epochs never share a step. A short step
// has fewer micro-batches, and its last one is filled up with rows of padding.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/labels.h"
#include "engine/data/dataset.h"
#include "engine/data/mixture.h"
#include "engine/data/packing.h"

namespace penstock {

inline constexpr int32_t kPadId = 0;

// rows * sequence_length tokens, row after row, cut into segments: the pieces of documents, and
// the padding that ends a row, if any, as a segment of its own. Segments never cross rows, and
// nothing may see across segments. Padding is kPadId without labels.
struct MicroBatch {
  std::span<const int32_t> ids;
  std::span<const int32_t> positions;  // from 0 in every segment
  std::span<const int32_t> labels;     // the id to predict at this position, or kIgnoreLabel
  // First token of every segment, then the number of tokens; the first is 0.
  std::span<const int32_t> document_starts;
  int64_t labelled_tokens = 0;
  int64_t real_tokens = 0;  // not padding
};

// Storage of one micro-batch, allocated once for the worst case: every token a segment.
class MicroBatchBuffer {
 public:
  MicroBatchBuffer(int64_t rows, int64_t sequence_length);
  static int64_t Bytes(int64_t rows, int64_t sequence_length);

  const MicroBatch& view() const { return view_; }

 private:
  friend class BatchStream;
  std::vector<int32_t> ids_, positions_, labels_, starts_;
  MicroBatch view_;
};

struct StepShape {
  int64_t epoch = 0;
  int64_t first_row = 0;  // of the epoch
  int64_t rows = 0;       // with data
  int64_t micro_batches = 0;
  int64_t labelled_tokens = 0;
  int64_t real_tokens = 0;
};

// Any step may be asked for at any time: O(rows of the step), plus O(n log n) when its epoch is
// not that of the call before, since the plan of one epoch is kept. Nothing is allocated but
// such a plan. Thread-compatible: one thread drives an instance. Two streams share nothing, so
// evaluating between steps does not move the training order.
class BatchStream {
 public:
  struct Args {
    std::shared_ptr<const Dataset> dataset;
    int64_t sequence_length = 0;
    int64_t rows_per_micro_batch = 0;
    int64_t micro_batches_per_step = 0;
    Packing packing = Packing::kPacked;
    RowOrder order = RowOrder::kShuffled;  // evaluation: kSequential
    uint64_t seed = 0;
  };
  // DATA_INVALID for an empty dataset, SPEC_INVALID for a batch shape that is not positive or
  // whose micro-batch has more tokens than an int32 counts.
  static absl::StatusOr<std::unique_ptr<BatchStream>> Create(const Args& args);

  int64_t rows_per_epoch() const { return rows_per_epoch_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t windows() const { return windows_; }  // of all documents, each once
  const Mixture& mixture() const { return *mixture_; }
  const Dataset& dataset() const { return *args_.dataset; }
  const Args& args() const { return args_; }

  // REQUIRES: step >= 0. Steps of all epochs are numbered on, from 0.
  StepShape ShapeOfStep(int64_t step);

  // Writes micro-batch `micro_batch` of the step. REQUIRES: it is one of the step's, and `buffer`
  // was made for rows_per_micro_batch rows.
  void Fill(int64_t step, int64_t micro_batch, MicroBatchBuffer& buffer);

  // The documents of a step, each once, by rising number.
  std::vector<int64_t> DocumentsOfStep(int64_t step);

 private:
  explicit BatchStream(const Args& args);
  Mixture MakeMixture() const;
  const EpochPlan& PlanOf(int64_t epoch);
  StepShape RowsOfStep(int64_t step) const;
  void FillRow(std::span<const Piece> pieces, int64_t first_token, MicroBatchBuffer& buffer);

  Args args_;
  std::vector<int64_t> lengths_;
  int64_t windows_ = 0;
  std::optional<Mixture> mixture_;
  int64_t rows_per_step_ = 0;
  int64_t rows_per_epoch_ = 0;
  int64_t steps_per_epoch_ = 0;
  EpochPlan plan_;
  int64_t plan_epoch_ = -1;
  int64_t segments_ = 0;  // so far, in the buffer being filled
};

}  // namespace penstock
