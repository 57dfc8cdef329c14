#include "tests/load/watchers.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/support/client_callback.h"

namespace penstock::load {
namespace {

// The job that an event is of and its number there; nothing for messages that are no events.
std::optional<std::pair<std::string, uint64_t>> EventOf(const v1::WatchJobsResponse& message,
                                                        const std::string& running_job) {
  const auto job_of = [](const std::string& checkpoint) {
    return checkpoint.substr(0, checkpoint.find("/checkpoints/"));
  };
  if (message.has_state_changed()) {
    return std::pair(message.state_changed().job().name(), message.state_changed().sequence());
  }
  if (message.has_checkpoint_saved()) {
    return std::pair(job_of(message.checkpoint_saved().checkpoint().name()),
                     message.checkpoint_saved().sequence());
  }
  // A loaded machine is slower than planned.
  if (message.has_plan_missed()) return std::pair(running_job, message.plan_missed().sequence());
  return std::nullopt;
}

void Apply(const v1::WatchJobsResponse& message, const std::string& who, EventLog& log,
           Findings& findings) {
  if (const auto event = EventOf(message, log.running_job)) {
    const auto& [job, sequence] = *event;
    uint64_t& last = log.last_sequence[job];
    if (sequence != last + 1) {
      findings.Add(
          absl::StrCat(who, ": event ", sequence, " of ", job, " came after event ", last));
    }
    last = sequence;
    ++log.events;
    if (message.cursor().event() <= log.cursor.event()) {
      findings.Add(absl::StrCat(who, ": cursor ", message.cursor().event(), " came after ",
                                log.cursor.event()));
    }
  }
  if (message.has_metrics() && message.cursor().metric() != log.cursor.metric() + 1) {
    findings.Add(absl::StrCat(who, ": metric point ", message.cursor().metric(), " came after ",
                              log.cursor.metric()));
  }
  if (message.has_log_lines() && message.log_lines().attempt() == log.cursor.log_attempt() &&
      message.log_lines().offset() != log.cursor.log_offset()) {
    findings.Add(absl::StrCat(who, ": log from ", message.log_lines().offset(), " came after ",
                              log.cursor.log_offset()));
  }
  log.cursor = message.cursor();
}

v1::WatchJobsRequest RequestFor(const std::string& job, const EventLog& log, bool follow) {
  v1::WatchJobsRequest request;
  request.set_name(job);
  *request.mutable_after() = log.cursor;
  request.set_follow(follow);
  return request;
}

}  // namespace

EventLog ReadEvents(const DaemonProcess& daemon, EventLog log, Findings& findings) {
  const auto stub = v1::JobService::NewStub(daemon.Connect());
  grpc::ClientContext context;
  const auto stream = stub->WatchJobs(&context, RequestFor("jobs/-", log, /*follow=*/false));
  v1::WatchJobsResponse message;
  while (stream->Read(&message)) Apply(message, "the reader of all events", log, findings);
  if (const grpc::Status status = stream->Finish(); !status.ok()) {
    findings.Add("the reader of all events: " + status.error_message());
  }
  return log;
}

enum class Subject : uint8_t { kAllJobs, kRunningJob, kSubmittedJobs };

class Watchers::Watcher final : public grpc::ClientReadReactor<v1::WatchJobsResponse> {
 public:
  Watcher(Watchers& all, Subject subject, std::string job, EventLog log, std::string who,
          const DaemonProcess& daemon)
      : all_(all),
        subject_(subject),
        who_(std::move(who)),
        stub_(v1::JobService::NewStub(daemon.Connect())),
        job_(std::move(job)),
        log_(std::move(log)) {}

  // False: there is nothing to watch yet.
  bool Begin() {
    if (job_.empty()) {
      const auto job = all_.recent_.Take();
      if (!job) return false;
      job_ = *job;
      std::lock_guard lock(mutex_);
      log_ = EventLog();
    }
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_wait_for_ready(true);
    const v1::WatchJobsRequest request = RequestFor(job_, log_, /*follow=*/true);
    ++all_.open_;
    stub_->async()->WatchJobs(context_.get(), &request, this);
    StartRead(&message_);
    StartCall();
    return true;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    ++all_.messages_;
    {
      std::lock_guard lock(mutex_);
      Apply(message_, who_, log_, all_.findings_);
    }
    if (message_.has_caught_up() && !std::exchange(caught_up_, true)) ++all_.caught_up_;
    ended_ = message_.has_end();
    if (ended_ && message_.end().job().state() != v1::JOB_STATE_CANCELLED && !all_.stopping_) {
      all_.findings_.Add(absl::StrCat(who_, ": ", job_, " ended as ",
                                      v1::JobState_Name(message_.end().job().state())));
    }
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    if (std::exchange(ended_, false)) {
      job_.clear();
    } else if (!all_.stopping_ && status.error_code() != grpc::StatusCode::UNAVAILABLE) {
      all_.findings_.Add(absl::StrCat(who_, ": ", status.error_message()));
    }
    std::lock_guard lock(all_.mutex_);
    all_.broken_.push_back(this);
    --all_.open_;
  }

  void Cancel() {
    if (context_) context_->TryCancel();
  }

  bool OfAllJobs() const { return subject_ == Subject::kAllJobs; }
  const std::string& who() const { return who_; }
  EventLog log() const {
    std::lock_guard lock(mutex_);
    return log_;
  }
  uint64_t last_event() const {
    std::lock_guard lock(mutex_);
    return log_.cursor.event();
  }

 private:
  Watchers& all_;
  const Subject subject_;
  const std::string who_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::WatchJobsResponse message_;
  std::string job_;
  bool caught_up_ = false;
  bool ended_ = false;
  mutable std::mutex mutex_;
  EventLog log_;  // guarded by mutex_
};

Watchers::Watchers(const WatcherArgs& args, const DaemonProcess& daemon, RecentJobs& recent,
                   Findings& findings)
    : recent_(recent), findings_(findings) {
  const auto add = [&](int64_t count, Subject subject, const char* kind, const std::string& job,
                       const EventLog& log) {
    for (int64_t i = 0; i < count; ++i) {
      watchers_.push_back(std::make_unique<Watcher>(
          *this, subject, job, log, absl::StrCat("watcher ", i, " of ", kind), daemon));
    }
  };
  add(args.all_jobs, Subject::kAllJobs, "all jobs", "jobs/-", args.start);
  add(args.running, Subject::kRunningJob, "the running job", args.start.running_job,
      {.running_job = args.start.running_job});
  add(args.follow, Subject::kSubmittedJobs, "submitted jobs", "", {});
  for (const auto& watcher : watchers_) broken_.push_back(watcher.get());
  restarter_ = std::thread([this] { RestartBroken(); });
}

Watchers::~Watchers() { Stop(); }

void Watchers::RestartBroken() {
  while (!stopping_) {
    std::vector<Watcher*> broken;
    {
      std::lock_guard lock(mutex_);
      broken.swap(broken_);
    }
    for (Watcher* watcher : broken) {
      if (!stopping_ && watcher->Begin()) continue;
      std::lock_guard lock(mutex_);
      broken_.push_back(watcher);
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

void Watchers::Stop() {
  if (stopping_.exchange(true)) return;
  restarter_.join();
  for (const auto& watcher : watchers_) watcher->Cancel();
  while (open_ > 0) absl::SleepFor(absl::Milliseconds(5));
  std::lock_guard lock(mutex_);  // the last of them has left OnDone
}

bool Watchers::HaveSeen(const EventLog& log) const {
  for (const auto& watcher : watchers_) {
    if (watcher->OfAllJobs() && watcher->last_event() < log.cursor.event()) return false;
  }
  return true;
}

void Watchers::CheckEvents(const EventLog& end, Findings& findings) const {
  for (const auto& watcher : watchers_) {
    if (!watcher->OfAllJobs()) continue;
    const EventLog log = watcher->log();
    if (log.events == end.events) continue;
    findings.Add(absl::StrCat(watcher->who(), " saw ", log.events, " events of ", end.events));
  }
}

}  // namespace penstock::load
