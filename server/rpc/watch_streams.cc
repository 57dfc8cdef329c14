#include "server/rpc/watch_streams.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/reasons.h"
#include "server/rpc/guard.h"
#include "server/rpc/right.h"
#include "server/rpc/watch_reactor.h"

namespace penstock::server {
namespace {

using Refused = RefusedStream<grpc::ServerWriteReactor<v1::WatchJobsResponse>>;

absl::Status Draining() {
  return Error(absl::StatusCode::kUnavailable, reason::kServerDraining,
               "the daemon is stopping; watch again from the last cursor when it is back",
               {{"retry_seconds", "2"}});
}

}  // namespace

WatchStreams::WatchStreams(WatchOptions options, TaskQueue& control, TaskQueue& streams,
                           JobManager& manager, EventHub& hub, const StateDirectory& directory)
    : options_(options),
      control_(control),
      streams_(streams),
      manager_(manager),
      hub_(hub),
      directory_(directory) {
  streams_.Post([this] { SweepForHeartbeats(); });
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchStreams::Open(
    const v1::WatchJobsRequest& request) {
  if (absl::Status form = CheckWatchRequest(request); !form.ok()) return new Refused(form);
  std::shared_ptr<WatchReactor> reactor;
  {
    std::lock_guard lock(mutex_);
    if (draining_) return new Refused(Draining());
    if (static_cast<int64_t>(open_.size()) >= options_.max_streams) {
      return new Refused(
          Error(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                absl::StrCat(open_.size(),
                             " streams are open, as many as may (max_streams); "
                             "close one or try later"),
                {{"limit", absl::StrCat(options_.max_streams)}, {"retry_seconds", "5"}}));
    }
    const uint64_t id = next_id_++;
    reactor = std::make_shared<WatchReactor>(*this, id, request);
    open_[id] = reactor;
  }
  reactor->Begin();
  return reactor.get();
}

void WatchStreams::ReadBatch(const std::string& job, uint64_t event, TakeBatch take) {
  {
    std::lock_guard lock(mutex_);
    std::vector<TakeBatch>& takers = reads_[{job, event}];
    takers.push_back(std::move(take));
    if (takers.size() > 1) return;  // it is on its way
  }
  control_.Post([this, job, event] {
    std::vector<TakeBatch> takers;
    {
      // Before the read: who asks from now on may know of more.
      std::lock_guard lock(mutex_);
      takers = std::move(reads_.extract({job, event}).mapped());
    }
    absl::StatusOr<std::shared_ptr<const WatchBatch>> batch;
    if (absl::StatusOr<WatchBatch> read = manager_.ReadEvents(job, event); read.ok()) {
      batch = std::make_shared<const WatchBatch>(*std::move(read));
    } else {
      batch = read.status();
    }
    for (TakeBatch& taker : takers) {
      streams_.Post([taker = std::move(taker), batch] { taker(batch); });
    }
  });
}

void WatchStreams::Closed(uint64_t id) {
  std::lock_guard lock(mutex_);
  open_.erase(id);
}

int64_t WatchStreams::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(open_.size());
}

std::vector<std::shared_ptr<WatchReactor>> WatchStreams::Reactors() {
  std::vector<std::shared_ptr<WatchReactor>> reactors;
  std::lock_guard lock(mutex_);
  for (const auto& [id, weak] : open_) {
    if (auto reactor = weak.lock()) reactors.push_back(std::move(reactor));
  }
  return reactors;
}

void WatchStreams::EndWithoutRight() {
  for (const auto& reactor : Reactors()) {
    if (absl::Status right = CheckRight(reactor->call()); !right.ok()) reactor->End(right);
  }
}

void WatchStreams::Drain() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const auto& reactor : Reactors()) reactor->End(Draining());
}

void WatchStreams::SweepForHeartbeats() {
  EndWithoutRight();
  for (const auto& reactor : Reactors()) reactor->MaybeHeartbeat(options_.heartbeat);
  const auto pause = std::max(options_.heartbeat / 8, std::chrono::milliseconds(5));
  streams_.PostAfter(pause, [this] { SweepForHeartbeats(); });
}

}  // namespace penstock::server
