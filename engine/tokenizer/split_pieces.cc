#include "engine/tokenizer/split_pieces.h"

#include <algorithm>
#include <vector>

#include "engine/base/status.h"

namespace penstock {
namespace {

struct Part {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
};

// Joins a match to the part before it unless that is, or ends in, a match itself. `parts` may be
// back to front, and then so is "before".
std::vector<Part> MergeWithPrevious(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, part.begin);
      merged.back().end = std::max(merged.back().end, part.end);
    } else {
      merged.push_back(part);
    }
    after_match = part.match;
  }
  return merged;
}

std::vector<Part> MergeRuns(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  for (const Part& part : parts) {
    if (!merged.empty() && merged.back().match == part.match) {
      merged.back().end = part.end;
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

absl::Status Emit(const Piece& piece, TextArena& arena, const std::vector<Part>& parts,
                  PieceSink sink) {
  for (const Part& part : parts) {
    if (part.begin == part.end) continue;
    PENSTOCK_RETURN_IF_ERROR(sink(arena.Slice(piece, part.begin, part.end)));
  }
  return absl::OkStatus();
}

// Calls `take` for what lies between matches, if it is not empty, and for each match, in order.
template <typename Take>
absl::Status ForEachPart(const Piece& piece, bool inverted, Matcher matcher, Take take) {
  size_t last = 0;
  PENSTOCK_RETURN_IF_ERROR(matcher([&](size_t begin, size_t end) -> absl::Status {
    if (last != begin) PENSTOCK_RETURN_IF_ERROR(take(Part{last, begin, inverted}));
    last = end;
    return take(Part{begin, end, !inverted});
  }));
  if (last == piece.text.size()) return absl::OkStatus();
  return take(Part{last, piece.text.size(), inverted});
}

}  // namespace

absl::Status SplitAtMatches(const Piece& piece, TextArena& arena, SplitBehavior behavior,
                            bool inverted, Matcher matcher, PieceSink sink) {
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    const bool keep_matches = behavior == SplitBehavior::kIsolated;
    return ForEachPart(piece, inverted, matcher, [&](const Part& part) -> absl::Status {
      if (part.begin == part.end || (part.match && !keep_matches)) return absl::OkStatus();
      return sink(arena.Slice(piece, part.begin, part.end));
    });
  }
  std::vector<Part> parts;
  PENSTOCK_RETURN_IF_ERROR(ForEachPart(piece, inverted, matcher, [&](const Part& part) {
    parts.push_back(part);
    return absl::OkStatus();
  }));
  if (behavior == SplitBehavior::kContiguous) {
    return Emit(piece, arena, MergeRuns(parts), sink);
  }
  const bool backward = behavior == SplitBehavior::kMergedWithNext;
  if (backward) std::reverse(parts.begin(), parts.end());
  parts = MergeWithPrevious(parts);
  if (backward) std::reverse(parts.begin(), parts.end());
  return Emit(piece, arena, parts, sink);
}

}  // namespace penstock
