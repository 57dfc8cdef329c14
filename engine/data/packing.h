// Packing: which piece of which document stands in which row, for one epoch. Pure functions.
//
// A window is a piece of one document of at most sequence_length tokens; a document of n tokens
// has ceil(n / sequence_length) windows, all but the last of them full. A row holds whole windows
// and never more than sequence_length tokens. Every window is in exactly one row.
//
// kPacked rows are filled best-fit: windows by falling length, each into the fullest row that
// still takes it. Windows of equal length come in an order drawn from (seed, epoch), and so do
// the finished rows. So epochs differ, while the number of rows depends on the lengths alone: it
// is the same in every epoch, and the epoch of a step is one division.
//
// kWrapped cuts without regard to windows: the documents, in an order drawn from (seed, epoch),
// are one sequence of tokens that is cut every sequence_length tokens. Only the last row has
// padding. Pieces of a document on both sides of a cut do not see each other, nor do different
// documents; no token and no label is lost (engine/data/dataset.h has the rule for labels).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/hash.h"

namespace penstock {

enum class Packing : uint8_t { kPacked, kPadded, kWrapped };  // kPadded: one window a row
enum class RowOrder : uint8_t { kShuffled, kSequential };

// Tokens [start, start + length) of a document.
struct Piece {
  int64_t document = 0;
  int64_t start = 0;
  int64_t length = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct EpochPlan {
  std::vector<Piece> pieces;       // row by row
  std::vector<int64_t> row_begin;  // rows() + 1 indices into `pieces`

  int64_t rows() const { return static_cast<int64_t>(row_begin.size()) - 1; }
  std::span<const Piece> Row(int64_t row) const {
    return std::span(pieces).subspan(row_begin[row], row_begin[row + 1] - row_begin[row]);
  }
};

struct EpochPlanArgs {
  std::span<const int64_t> document_lengths = {};  // in tokens, each at least 1
  int64_t sequence_length = 0;                     // at least 1
  Packing packing = Packing::kPacked;
  RowOrder order = RowOrder::kShuffled;
  uint64_t seed = 0;
  int64_t epoch = 0;
};

// O(n log n) in the number of windows. kSequential ignores seed and epoch: equal windows and
// rows stay in the order of the documents.
EpochPlan MakeEpochPlan(const EpochPlanArgs& args);

// The number of windows of documents of these lengths. kWrapped has at most twice as many pieces.
int64_t CountWindows(std::span<const int64_t> document_lengths, int64_t sequence_length);

// The most host memory that MakeEpochPlan() uses for `windows`, its result included.
int64_t EpochPlanPeakBytes(int64_t windows, int64_t sequence_length);

}  // namespace penstock
