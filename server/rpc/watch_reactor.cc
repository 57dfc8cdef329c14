#include "server/rpc/watch_reactor.h"

#include <utility>

#include "engine/base/status.h"
#include "server/rpc/grpc_status.h"

namespace penstock::server {

WatchReactor::WatchReactor(WatchStreams& streams, uint64_t id, const v1::WatchJobsRequest& request)
    : streams_(streams), id_(id), source_(request, streams.directory_) {}

void WatchReactor::Begin() {
  self_ = shared_from_this();
  subscription_ = streams_.hub_.Subscribe(source_.job(), [weak = weak_from_this()](Topic topic) {
    if (const auto self = weak.lock()) self->Wake(topic);
  });
  PostPump();
}

void WatchReactor::Wake(Topic topic) {
  {
    std::lock_guard lock(mutex_);
    if (topic == Topic::kEvents) events_changed_ = true;
    woken_ = true;
    if (phase_ != Phase::kIdle) return;
    phase_ = Phase::kPumping;
  }
  PostPump();
}

void WatchReactor::End(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = status;
    if (phase_ != Phase::kIdle) return;  // Whoever is at work sees end_.
    phase_ = Phase::kFinished;
  }
  Finish(ToGrpcStatus(status));
}

void WatchReactor::PostPump() {
  streams_.streams_.Post([self = shared_from_this()] { self->Pump(); });
}

bool WatchReactor::Settle(Phase next) {
  absl::Status end;
  {
    std::lock_guard lock(mutex_);
    if (!end_) {
      phase_ = next;
      if (next == Phase::kWriting) last_write_ = Clock::now();
      return true;
    }
    phase_ = Phase::kFinished;
    end = *end_;
  }
  Finish(ToGrpcStatus(end));
  return false;
}

void WatchReactor::FinishNow(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    phase_ = Phase::kFinished;
  }
  Finish(ToGrpcStatus(status));
}

void WatchReactor::Pump() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(events_changed_, false)) source_.NoteEvents();
    woken_ = false;
  }
  const absl::StatusOr<WatchSource::Step> step = source_.Next(message_);
  if (!step.ok()) {
    FinishNow(step.status());
    return;
  }
  switch (*step) {
    case WatchSource::Step::kMessage:
      if (Settle(Phase::kWriting)) StartWrite(&message_);
      return;
    case WatchSource::Step::kNeedsBatch:
      if (Settle(Phase::kPumping)) FetchBatch();
      return;
    case WatchSource::Step::kAgain:
      if (Settle(Phase::kPumping)) PostPump();
      return;
    case WatchSource::Step::kEnd:
      FinishNow(absl::OkStatus());
      return;
    case WatchSource::Step::kNothing:
      break;
  }
  if (!Settle(Phase::kIdle)) return;
  {
    // A wake that came while we looked: look again.
    std::lock_guard lock(mutex_);
    if (!woken_ || phase_ != Phase::kIdle) return;
    phase_ = Phase::kPumping;
  }
  PostPump();
}

void WatchReactor::FetchBatch() {
  streams_.ReadBatch(
      source_.job(), source_.cursor().event(), [self = shared_from_this()](const auto& batch) {
        const absl::Status added = batch.ok() ? self->source_.AddBatch(*batch) : batch.status();
        if (added.ok()) {
          self->Pump();
        } else {
          self->FinishNow(added);
        }
      });
}

void WatchReactor::MaybeHeartbeat(std::chrono::milliseconds interval) {
  {
    std::lock_guard lock(mutex_);
    if (phase_ != Phase::kIdle || Clock::now() - last_write_ < interval) return;
    phase_ = Phase::kPumping;
  }
  source_.MakeHeartbeat(message_);
  if (Settle(Phase::kWriting)) StartWrite(&message_);
}

void WatchReactor::OnWriteDone(bool ok) {
  if (!ok) {
    FinishNow(Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "the client is gone"));
    return;
  }
  if (Settle(Phase::kPumping)) PostPump();
}

void WatchReactor::OnCancel() {
  End(Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "the stream was cancelled"));
}

void WatchReactor::OnDone() {
  streams_.hub_.Unsubscribe(subscription_);
  streams_.Closed(id_);
  // Closures on their way may hold the reactor a little longer.
  const std::shared_ptr<WatchReactor> last = std::move(self_);
}

}  // namespace penstock::server
