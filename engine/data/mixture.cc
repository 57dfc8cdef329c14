#include "engine/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace penstock {
namespace {

// Rows [begin, end) of `from`, behind those of `plan`.
void AppendRange(const EpochPlan& from, int64_t begin, int64_t end, int64_t first_document,
                 EpochPlan& plan) {
  for (int64_t row = begin; row < end; ++row) {
    for (Piece piece : from.Row(row)) {
      piece.document += first_document;
      plan.pieces.push_back(piece);
    }
    plan.row_begin.push_back(static_cast<int64_t>(plan.pieces.size()));
  }
}

}  // namespace

Mixture::Mixture(MixtureArgs args) : args_(std::move(args)) {
  for (int64_t p = 0; p < static_cast<int64_t>(args_.parts.size()); ++p) {
    const MixturePart& part = args_.parts[p];
    PENSTOCK_CHECK(part.weight > 0 && part.weight <= kMaxWeight, absl::StrCat(part.weight));
    const int64_t own = OwnPlan(p, 0).rows();
    const bool as_it_is = args_.order == RowOrder::kSequential || part.weight == 1;
    const auto weighted =
        std::max<int64_t>(1, std::llround(part.weight * static_cast<double>(own)));
    own_.push_back(own);
    taken_.push_back(as_it_is ? own : weighted);
    rows_per_epoch_ += taken_.back();
  }
}

EpochPlan Mixture::OwnPlan(int64_t part, int64_t own_epoch) const {
  return MakeEpochPlan({.document_lengths = args_.parts[part].document_lengths,
                        .sequence_length = args_.sequence_length,
                        .packing = args_.packing,
                        .order = args_.order,
                        .seed = args_.seed,
                        .epoch = own_epoch});
}

EpochPlan Mixture::MakePlan(int64_t epoch) const {
  if (args_.parts.size() == 1 && taken_[0] == own_[0]) {
    EpochPlan plan = OwnPlan(0, epoch);
    for (Piece& piece : plan.pieces) piece.document += args_.parts[0].first_document;
    return plan;
  }
  EpochPlan plan;
  plan.row_begin = {0};
  for (int64_t p = 0; p < static_cast<int64_t>(args_.parts.size()); ++p) AppendRows(p, epoch, plan);
  return args_.order == RowOrder::kSequential ? plan : Shuffled(plan, epoch);
}

void Mixture::AppendRows(int64_t part, int64_t epoch, EpochPlan& plan) const {
  const int64_t own = own_[part];
  int64_t own_epoch = epoch, at = 0;
  if (taken_[part] != own) {
    const int64_t first = epoch * taken_[part];
    own_epoch = first / own;
    at = first % own;
  }
  for (int64_t left = taken_[part]; left > 0; ++own_epoch, at = 0) {
    const int64_t count = std::min(left, own - at);
    AppendRange(OwnPlan(part, own_epoch), at, at + count, args_.parts[part].first_document, plan);
    left -= count;
  }
}

EpochPlan Mixture::Shuffled(const EpochPlan& plan, int64_t epoch) const {
  std::vector<std::pair<uint64_t, int64_t>> keyed(plan.rows());
  for (int64_t r = 0; r < plan.rows(); ++r) {
    keyed[r] = {CounterRandom(args_.seed, RandomStream::kMixture, epoch, r), r};
  }
  std::sort(keyed.begin(), keyed.end());
  EpochPlan shuffled;
  shuffled.pieces.reserve(plan.pieces.size());
  shuffled.row_begin.reserve(plan.row_begin.size());
  shuffled.row_begin = {0};
  for (const auto& [key, row] : keyed) AppendRange(plan, row, row + 1, 0, shuffled);
  return shuffled;
}

int64_t MixturePeakBytes(int64_t windows, std::span<const double> weights,
                         int64_t sequence_length) {
  const int64_t own = EpochPlanPeakBytes(windows, sequence_length);
  if (weights.size() == 1 && weights[0] == 1) return own;
  const double largest = std::max(1.0, *std::max_element(weights.begin(), weights.end()));
  // Twice for growth, then once shuffled; and the keys of the rows.
  constexpr int64_t kPerWindow =
      3 * (sizeof(Piece) + sizeof(int64_t)) + sizeof(std::pair<uint64_t, int64_t>);
  return own + std::llround(largest * static_cast<double>(windows)) * kPerWindow;
}

}  // namespace penstock
