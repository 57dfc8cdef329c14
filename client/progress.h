// Shows a job's progress on stderr while it is followed: one line that is drawn over and over on a
// terminal, plain lines now and then elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

// What the line says; `width` columns at most. Pure, so that it can be tested.
std::string ProgressText(const v1::Job& job, int width);

// "[####........]"
std::string ProgressBar(double fraction);

class ProgressView {
 public:
  enum class Style : uint8_t { kLive, kPlain, kSilent };
  // kLive if stderr is a terminal; kSilent if `quiet`.
  static Style StyleFor(bool quiet);

  explicit ProgressView(Style style) : style_(style) {}
  ~ProgressView() { Finish(); }

  // A state change, an evaluation, a checkpoint: worth a line of its own.
  void Announce(const std::string& line);
  // Draws if it is time to: ten times a second live, every ten seconds plain. `text` gets the
  // columns that there are.
  void Draw(absl::FunctionRef<std::string(int width)> text);
  void Update(const v1::Job& job);
  // Leaves the last live line standing.
  void Finish();

 private:
  const Style style_;
  absl::Time last_draw_ = absl::InfinitePast();
  std::string drawn_;  // the live line on the screen
};

}  // namespace penstock::client
