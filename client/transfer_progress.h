// How far a file transfer is, on stderr: "sending [####........] 1.2 GiB of 3.4 GiB, 120 MiB/s, ETA
// 18s".
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/progress.h"

namespace penstock::client {

// Pure, so that it can be tested. `moved`: of `done`, what took `seconds`.
struct TransferState {
  std::string verb;
  int64_t done = 0, total = 0;
  int64_t moved = 0;
  double seconds = 0;
};
std::string TransferText(const TransferState& state);

class TransferProgress {
 public:
  TransferProgress(ProgressView::Style style, std::string verb, int64_t total);

  // Bytes that have been moved just now, or were there already.
  void Move(int64_t bytes);
  void Skip(int64_t bytes);
  // What was done before and has to be done again.
  void Undo(int64_t bytes);
  // A line of its own: a connection that is lost.
  void Announce(const std::string& line) { view_.Announce(line); }

 private:
  void Draw();

  ProgressView view_;
  TransferState state_;
  const absl::Time start_ = absl::Now();
};

}  // namespace penstock::client
