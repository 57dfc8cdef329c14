#include "client/transfer_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/output.h"
#include "engine/base/units.h"

namespace penstock::client {

std::string TransferText(const TransferState& state) {
  const double fraction =
      state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 1;
  std::string text = absl::StrCat(state.verb, " ", ProgressBar(fraction), " ",
                                  FormatBytes(state.done), " of ", FormatBytes(state.total));
  if (state.seconds < 0.5 || state.moved <= 0) return text;
  const double rate = static_cast<double>(state.moved) / state.seconds;
  absl::StrAppend(&text, ", ", FormatBytes(static_cast<int64_t>(rate)), "/s");
  if (state.done < state.total) {
    absl::StrAppend(&text, ", ETA ",
                    FormatDuration(static_cast<double>(state.total - state.done) / rate));
  }
  return text;
}

TransferProgress::TransferProgress(ProgressView::Style style, std::string verb, int64_t total)
    : view_(style), state_{.verb = std::move(verb), .total = total} {}

void TransferProgress::Move(int64_t bytes) {
  state_.moved += bytes;
  state_.done += bytes;
  Draw();
}

void TransferProgress::Skip(int64_t bytes) {
  state_.done += bytes;
  Draw();
}

void TransferProgress::Undo(int64_t bytes) {
  state_.done = std::max<int64_t>(0, state_.done - bytes);
}

void TransferProgress::Draw() {
  state_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  view_.Draw([this](int width) {
    return TransferText(state_).substr(0, static_cast<size_t>(std::max(width, 0)));
  });
}

}  // namespace penstock::client
