#include "engine/data/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

struct Window {
  Piece piece;
  uint64_t key;  // place among equals
};

// Rows that still have room, found by how much: a list of rows for each room, and a bitmap of
// the rooms whose list is not empty.
class OpenRows {
 public:
  explicit OpenRows(int64_t sequence_length)
      : first_(sequence_length + 1, kNone), bits_(CeilDiv(sequence_length + 1, 64), 0) {}

  // Removes and returns the row with the least room of at least `length`, with its room.
  struct Found {
    int64_t row = kNone;
    int64_t room = 0;
  };
  Found TakeBestFit(int64_t length) {
    const int64_t words = static_cast<int64_t>(bits_.size());
    uint64_t mask = ~uint64_t{0} << (length % 64);
    for (int64_t word = length / 64; word < words; ++word, mask = ~uint64_t{0}) {
      const uint64_t set = bits_[word] & mask;
      if (set == 0) continue;
      const int64_t room = word * 64 + std::countr_zero(set);
      const int64_t row = first_[room];
      first_[room] = next_[row];
      if (first_[room] == kNone) bits_[word] &= ~(uint64_t{1} << (room % 64));
      return {row, room};
    }
    return {};
  }

  int64_t NewRow() {
    next_.push_back(kNone);
    return static_cast<int64_t>(next_.size()) - 1;
  }

  void Put(int64_t row, int64_t room) {
    if (room == 0) return;
    next_[row] = first_[room];
    first_[room] = row;
    bits_[room / 64] |= uint64_t{1} << (room % 64);
  }

  int64_t rows() const { return static_cast<int64_t>(next_.size()); }
  static constexpr int64_t kNone = -1;

 private:
  std::vector<int64_t> first_;
  std::vector<uint64_t> bits_;
  std::vector<int64_t> next_;
};

std::vector<Window> MakeWindows(const EpochPlanArgs& args) {
  std::vector<Window> windows;
  windows.reserve(CountWindows(args.document_lengths, args.sequence_length));
  for (int64_t d = 0; d < static_cast<int64_t>(args.document_lengths.size()); ++d) {
    const int64_t length = args.document_lengths[d];
    for (int64_t start = 0; start < length; start += args.sequence_length) {
      const uint64_t index = windows.size();
      const uint64_t key =
          args.order == RowOrder::kSequential
              ? index
              : CounterRandom(args.seed, RandomStream::kWindowOrder, args.epoch, index);
      windows.push_back({{d, start, std::min(args.sequence_length, length - start)}, key});
    }
  }
  return windows;
}

// row_of[i] is the row of windows[i], which are sorted by falling length.
std::vector<int64_t> FillBestFit(std::span<const Window> windows, int64_t sequence_length) {
  std::vector<int64_t> row_of;
  row_of.reserve(windows.size());
  OpenRows open(sequence_length);
  for (const Window& window : windows) {
    OpenRows::Found found = open.TakeBestFit(window.piece.length);
    if (found.row == OpenRows::kNone) found = {open.NewRow(), sequence_length};
    open.Put(found.row, found.room - window.piece.length);
    row_of.push_back(found.row);
  }
  return row_of;
}

// place[r] is where row r comes in the epoch.
std::vector<int64_t> PlacesOfRows(const EpochPlanArgs& args, int64_t rows) {
  std::vector<int64_t> place(rows);
  std::iota(place.begin(), place.end(), 0);
  if (args.order == RowOrder::kSequential) return place;
  std::vector<std::pair<uint64_t, int64_t>> keyed(rows);
  for (int64_t r = 0; r < rows; ++r) {
    keyed[r] = {CounterRandom(args.seed, RandomStream::kRowOrder, args.epoch, r), r};
  }
  std::sort(keyed.begin(), keyed.end());
  for (int64_t i = 0; i < rows; ++i) place[keyed[i].second] = i;
  return place;
}

// Groups the windows by row; within a row they keep their order.
EpochPlan GroupByRow(std::span<const Window> windows, std::span<const int64_t> row_of,
                     std::span<const int64_t> place) {
  EpochPlan plan;
  plan.row_begin.assign(place.size() + 1, 0);
  for (const int64_t row : row_of) ++plan.row_begin[place[row] + 1];
  std::partial_sum(plan.row_begin.begin(), plan.row_begin.end(), plan.row_begin.begin());
  plan.pieces.resize(windows.size());
  std::vector<int64_t> next(plan.row_begin.begin(), plan.row_begin.end() - 1);
  for (size_t i = 0; i < windows.size(); ++i) {
    plan.pieces[next[place[row_of[i]]]++] = windows[i].piece;
  }
  return plan;
}

EpochPlan MakeWrappedPlan(const EpochPlanArgs& args) {
  std::vector<std::pair<uint64_t, int64_t>> documents(args.document_lengths.size());
  for (int64_t d = 0; d < static_cast<int64_t>(documents.size()); ++d) {
    const bool sequential = args.order == RowOrder::kSequential;
    documents[d] = {
        sequential ? 0 : CounterRandom(args.seed, RandomStream::kWindowOrder, args.epoch, d), d};
  }
  std::sort(documents.begin(), documents.end());
  std::vector<Window> pieces;
  std::vector<int64_t> row_of;
  int64_t token = 0;  // of the whole sequence
  for (const auto& [key, document] : documents) {
    const int64_t length = args.document_lengths[document];
    for (int64_t start = 0; start < length;) {
      const int64_t room = args.sequence_length - token % args.sequence_length;
      const int64_t count = std::min(room, length - start);
      pieces.push_back({{document, start, count}, key});
      row_of.push_back(token / args.sequence_length);
      token += count;
      start += count;
    }
  }
  return GroupByRow(pieces, row_of, PlacesOfRows(args, CeilDiv(token, args.sequence_length)));
}

}  // namespace

EpochPlan MakeEpochPlan(const EpochPlanArgs& args) {
  PENSTOCK_CHECK(args.sequence_length >= 1, absl::StrCat(args.sequence_length));
  if (args.packing == Packing::kWrapped) return MakeWrappedPlan(args);
  std::vector<Window> windows = MakeWindows(args);
  std::vector<int64_t> row_of;
  if (args.packing == Packing::kPadded) {
    row_of.resize(windows.size());
    std::iota(row_of.begin(), row_of.end(), 0);
  } else {
    // Two windows may draw the same key, so the last words are the document and the start.
    std::sort(windows.begin(), windows.end(), [](const Window& a, const Window& b) {
      return std::tie(b.piece.length, a.key, a.piece.document, a.piece.start) <
             std::tie(a.piece.length, b.key, b.piece.document, b.piece.start);
    });
    row_of = FillBestFit(windows, args.sequence_length);
  }
  const int64_t rows = row_of.empty() ? 0 : 1 + *std::max_element(row_of.begin(), row_of.end());
  return GroupByRow(windows, row_of, PlacesOfRows(args, rows));
}

int64_t CountWindows(std::span<const int64_t> document_lengths, int64_t sequence_length) {
  int64_t windows = 0;
  for (const int64_t length : document_lengths) windows += CeilDiv(length, sequence_length);
  return windows;
}

int64_t EpochPlanPeakBytes(int64_t windows, int64_t sequence_length) {
  // Windows, their rows and the result; per row: list link, key, place, begin and cursor. A row
  // has at least one window.
  const int64_t per_window = sizeof(Window) + sizeof(int64_t) + sizeof(Piece);
  const int64_t per_row =
      2 * sizeof(int64_t) + sizeof(std::pair<uint64_t, int64_t>) + 3 * sizeof(int64_t);
  return windows * (per_window + per_row) + sequence_length * int64_t{9};
}

}  // namespace penstock
