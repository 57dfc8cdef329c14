#include "client/commands/follow_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/device_text.h"
#include "client/follow.h"
#include "client/interrupts.h"
#include "client/job_text.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kPollInterval = absl::Seconds(1);
constexpr int64_t kMetricIntervalMs = 500;

class JobFollower {
 public:
  JobFollower(RpcClient& client, const FollowJobOptions& options)
      : client_(client), options_(options), view_(options.style) {}

  absl::StatusOr<std::optional<v1::Job>> Run(const std::string& name) {
    v1::WatchJobsRequest request;
    request.set_name(name);
    request.set_follow(true);
    request.set_min_metric_interval_ms(kMetricIntervalMs);
    request.add_kinds(v1::WATCH_KIND_STATE);
    request.add_kinds(v1::WATCH_KIND_CHECKPOINT);
    request.add_kinds(v1::WATCH_KIND_METRIC);
    job_.set_name(name);
    absl::StatusOr<std::optional<v1::Job>> end =
        Follow(client_, std::move(request),
               {.on_event = [this](const v1::WatchJobsResponse& event) { OnEvent(event); },
                .on_tick = [this] { return OnTick(); },
                .on_lost = [this](const absl::Status& status) { OnLost(status); }});
    view_.Finish();
    return end;
  }

 private:
  void OnEvent(const v1::WatchJobsResponse& event) {
    lost_ = false;
    if (event.has_state_changed()) {
      job_ = event.state_changed().job();
      last_poll_ = absl::InfinitePast();
      // How the job ended is said once, after the live line.
      if (!HasEnded(job_)) view_.Announce(StateText(job_));
    } else if (event.has_checkpoint_saved()) {
      const v1::Checkpoint& checkpoint = event.checkpoint_saved().checkpoint();
      view_.Announce(absl::StrCat("checkpoint ", checkpoint.name(), " saved"));
    } else if (event.has_checkpoint_failed()) {
      view_.Announce(absl::StrCat("checkpoint of step ", event.checkpoint_failed().step(),
                                  " not saved: ", event.checkpoint_failed().error().message()));
    } else if (event.has_plan_missed()) {
      view_.Announce(PlanMissedText(event.plan_missed()));
    } else if (event.has_device_changed()) {
      view_.Announce(DeviceText(event.device_changed().device()));
    } else if (event.has_metrics() && event.metrics().has_evaluation()) {
      view_.Announce(absl::StrCat("evaluation after step ", event.metrics().step(), ": loss ",
                                  FormatLoss(event.metrics().evaluation().loss())));
    } else if (event.has_metrics()) {
      v1::JobProgress& progress = *job_.mutable_progress();
      progress.set_step(std::max(progress.step(), event.metrics().step()));
      progress.set_loss(event.metrics().loss());
      progress.set_tokens_per_second(event.metrics().tokens_per_second());
    }
  }

  bool OnTick() {
    if (!options_.go_on(view_)) return false;
    if (options_.style == ProgressView::Style::kSilent || lost_) return true;
    // Events say what happened; totals, and how far a phase has come, are asked for.
    if (absl::Now() - last_poll_ >= kPollInterval) {
      last_poll_ = absl::Now();
      if (absl::StatusOr<v1::Job> job = client_.GetJob(job_.name()); job.ok()) {
        job_ = *std::move(job);
      }
    }
    view_.Update(job_);
    return true;
  }

  void OnLost(const absl::Status& status) {
    if (!std::exchange(lost_, true)) {
      view_.Announce(
          absl::StrCat("lost the daemon, connecting again: ", std::string(status.message())));
    }
  }

  RpcClient& client_;
  const FollowJobOptions& options_;
  ProgressView view_;
  v1::Job job_;
  absl::Time last_poll_ = absl::InfinitePast();
  bool lost_ = false;
};

}  // namespace

FollowEnd FollowJob(const Context& context, RpcClient& client, const std::string& name,
                    const FollowJobOptions& options) {
  absl::StatusOr<std::optional<v1::Job>> end = JobFollower(client, options).Run(name);
  if (!end.ok()) return {.code = context.Fail(end.status())};
  if (!*end) return {.code = ExitCode::kInterrupted};
  const v1::Job& job = **end;
  if (!context.quiet || job.state() == v1::JOB_STATE_FAILED) PrintTalk(EndText(job));
  return {.code = ExitCodeOf(job), .job = *std::move(end)};
}

ExitCode FollowDetachably(const Context& context, RpcClient& client, const std::string& name,
                          ProgressView::Style style) {
  const InterruptGuard interrupts;
  const FollowEnd end =
      FollowJob(context, client, name, {.style = style, .go_on = [&](ProgressView&) {
                                          return interrupts.first() == Interrupt::kNone;
                                        }});
  if (end.left()) {
    PrintTalk(
        absl::StrCat("left ", name, ", which goes on; to come back: penstock watch ", name, "\n"));
  }
  return end.code;
}

}  // namespace penstock::client
