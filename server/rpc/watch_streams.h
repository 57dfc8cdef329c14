// The open watch streams: how many may be, heartbeats, and their end when the daemon stops.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/task_queue.h"
#include "server/store/state_directory.h"

namespace penstock::server {

class WatchReactor;

struct WatchOptions {
  int64_t max_streams = 1000;
  std::chrono::milliseconds heartbeat{15'000};
};

// Thread-safe. Streams read files on the queue `streams` and the store on `control`. Both queues
// must run until count() is 0.
class WatchStreams {
 public:
  WatchStreams(WatchOptions options, TaskQueue& control, TaskQueue& streams, JobManager& manager,
               EventHub& hub, const StateDirectory& directory);

  // ResourceExhausted / TOO_MANY_STREAMS above max_streams.
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* Open(const v1::WatchJobsRequest& request);

  // Ends the streams of callers whose token has been revoked or has expired.
  void EndWithoutRight();
  // Ends all streams, and those opened later, with Unavailable / SERVER_DRAINING: clients go on
  // with the next daemon from their cursor.
  void Drain();
  int64_t count() const;

 private:
  friend class WatchReactor;
  using TakeBatch =
      std::function<void(const absl::StatusOr<std::shared_ptr<const WatchBatch>>& batch)>;

  // Events after `event` of `job`, given to `take` on the queue `streams`. Streams that ask for the
  // same before it is read get it together: a thousand watchers cost the control thread one read.
  void ReadBatch(const std::string& job, uint64_t event, TakeBatch take);
  void Closed(uint64_t id);
  void SweepForHeartbeats();
  std::vector<std::shared_ptr<WatchReactor>> Reactors();

  const WatchOptions options_;
  TaskQueue& control_;
  TaskQueue& streams_;
  JobManager& manager_;
  EventHub& hub_;
  const StateDirectory& directory_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<uint64_t, std::weak_ptr<WatchReactor>> open_;
  uint64_t next_id_ = 1;
  bool draining_ = false;
  std::map<std::pair<std::string, uint64_t>, std::vector<TakeBatch>> reads_;  // by job and event
};

}  // namespace penstock::server
