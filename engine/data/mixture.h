// Mixture: how the rows of several datasets make up the epochs of a job. Pure functions.
//
// Each part is packed by itself, so a row holds documents of one part only, and the rows of its
// own epochs, one epoch after the other, are an endless sequence. With weight w, a part of R rows
// gives K = round(w R) rows, at least one, to every epoch of the mixture: rows [e K, (e + 1) K) of
// its sequence to epoch e. Whatever the weight, no row thus comes again before all others of its
// part have come; every epoch has the same number of rows; and where a part stands in any epoch is
// one division. The rows of all parts are shuffled together, as a function of (seed, epoch).
//
// A single part of weight 1 is just its own epochs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/packing.h"

namespace penstock {

inline constexpr double kMaxWeight = 1000;

struct MixturePart {
  int64_t first_document = 0;  // what EpochPlan calls document 0 of the part
  std::span<const int64_t> document_lengths = {};
  double weight = 1;  // greater than 0, at most kMaxWeight
};

struct MixtureArgs {
  std::vector<MixturePart> parts = {};  // each with documents
  int64_t sequence_length = 0;
  Packing packing = Packing::kPacked;
  // kSequential, which is for evaluation: part after part, each once whatever its weight.
  RowOrder order = RowOrder::kShuffled;
  uint64_t seed = 0;
};

class Mixture {
 public:
  explicit Mixture(MixtureArgs args);

  int64_t rows_per_epoch() const { return rows_per_epoch_; }
  // Rows of a part in one epoch of the mixture, and in one of its own.
  int64_t RowsInEpoch(int64_t part) const { return taken_[part]; }
  int64_t OwnRows(int64_t part) const { return own_[part]; }

  // Epochs of the mixture count from 0, without end. O(n log n) in the windows of its rows.
  EpochPlan MakePlan(int64_t epoch) const;

 private:
  EpochPlan OwnPlan(int64_t part, int64_t own_epoch) const;
  void AppendRows(int64_t part, int64_t epoch, EpochPlan& plan) const;
  EpochPlan Shuffled(const EpochPlan& plan, int64_t epoch) const;

  MixtureArgs args_;
  std::vector<int64_t> own_, taken_;
  int64_t rows_per_epoch_ = 0;
};

// The most host memory that MakePlan() uses, its result included, where all parts together have
// `windows` windows.
int64_t MixturePeakBytes(int64_t windows, std::span<const double> weights, int64_t sequence_length);

}  // namespace penstock
