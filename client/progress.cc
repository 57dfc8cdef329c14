#include "client/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/output.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kLiveInterval = absl::Milliseconds(100);
constexpr absl::Duration kPlainInterval = absl::Seconds(10);
constexpr int kBarWidth = 12;  // all of a line fits 80 columns
constexpr int kPlainWidth = 200;
constexpr char kClearLine[] = "\r\x1b[2K";

std::string PhaseName(v1::JobPhase phase) {
  return ShortEnumName(*v1::JobPhase_descriptor(), phase);
}

std::string TrainingText(const v1::JobProgress& progress) {
  std::string text;
  if (progress.total_steps() > 0) {
    const double fraction =
        static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps());
    absl::StrAppend(&text, ProgressBar(fraction), " step ", progress.step(), "/",
                    progress.total_steps());
  } else {
    absl::StrAppend(&text, "step ", progress.step());
  }
  if (progress.step() > 0) absl::StrAppend(&text, " loss ", FormatLoss(progress.loss()));
  if (progress.validation_loss() > 0) {
    absl::StrAppend(&text, " val ", FormatLoss(progress.validation_loss()));
  }
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&text, " ", FormatCount(progress.tokens_per_second()), " tok/s");
  }
  if (progress.remaining_seconds() > 0) {
    absl::StrAppend(&text, " ETA ", FormatDuration(progress.remaining_seconds()));
  }
  return text;
}

}  // namespace

std::string ProgressBar(double fraction) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
  return absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(kBarWidth - filled), '.'), "]");
}

std::string ProgressText(const v1::Job& job, int width) {
  const v1::JobProgress& progress = job.progress();
  std::string text;
  switch (job.state()) {
    case v1::JOB_STATE_QUEUED:
      text = absl::StrCat("queued, position ", job.queue_position(),
                          job.state_message().empty() ? "" : ": ", job.state_message());
      break;
    case v1::JOB_STATE_PAUSED:
      text = absl::StrCat("paused: penstock resume ", job.name());
      break;
    case v1::JOB_STATE_STARTING:
      text = "starting";
      if (progress.phase() != v1::JOB_PHASE_UNSPECIFIED) {
        absl::StrAppend(&text, ": ", PhaseName(progress.phase()), " ",
                        ProgressBar(progress.phase_fraction()));
      }
      break;
    default:
      text = TrainingText(progress);
      if (progress.phase() > v1::JOB_PHASE_TRAIN) {
        absl::StrAppend(&text, " (", PhaseName(progress.phase()), ")");
      }
      if (job.state() == v1::JOB_STATE_CANCELLING) absl::StrAppend(&text, " (cancelling)");
      if (job.state() == v1::JOB_STATE_PAUSING) absl::StrAppend(&text, " (pausing)");
      if (job.state() == v1::JOB_STATE_YIELDING) absl::StrAppend(&text, " (yielding)");
  }
  return CutToWidth(Printable(text), width);
}

ProgressView::Style ProgressView::StyleFor(bool quiet) {
  if (quiet) return Style::kSilent;
  return isatty(STDERR_FILENO) != 0 ? Style::kLive : Style::kPlain;
}

void ProgressView::Announce(const std::string& line) {
  if (style_ == Style::kSilent) return;
  if (drawn_.empty()) {
    PrintTalk(absl::StrCat(Printable(line), "\n"));
  } else {
    PrintTalk(absl::StrCat(kClearLine, Printable(line), "\n", drawn_));
  }
}

void ProgressView::Update(const v1::Job& job) {
  Draw([&job](int width) { return ProgressText(job, width); });
}

void ProgressView::Draw(absl::FunctionRef<std::string(int width)> make_text) {
  const absl::Duration interval = style_ == Style::kLive ? kLiveInterval : kPlainInterval;
  const absl::Time now = absl::Now();
  if (style_ == Style::kSilent || now - last_draw_ < interval) return;
  last_draw_ = now;
  const std::string text =
      make_text(style_ == Style::kLive ? SizeOfTerminal(STDERR_FILENO).columns - 1 : kPlainWidth);
  if (text.empty()) return;
  if (style_ == Style::kPlain) {
    PrintTalk(text + "\n");
  } else if (text != drawn_) {
    PrintTalk(absl::StrCat(kClearLine, text));
    drawn_ = text;
  }
}

void ProgressView::Finish() {
  if (drawn_.empty()) return;
  PrintTalk("\n");
  drawn_.clear();
}

}  // namespace penstock::client
