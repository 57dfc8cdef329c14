// One watch stream. It has one message in flight and no queue:
//
//   kIdle --Wake()--> kPumping --message--> kWriting --OnWriteDone--> kPumping
//     ^                  |
//     +---- nothing -----+          any of them --end, cancel, drain--> kFinished
//
// In kPumping exactly one closure for this stream is on its way through the queues; it alone
// touches the source. A client that does not read leaves the stream in kWriting, where it costs
// one message and nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/job.pb.h"
#include "server/access/call.h"
#include "server/jobs/event_hub.h"
#include "server/rpc/watch_source.h"
#include "server/rpc/watch_streams.h"

namespace penstock::server {

class WatchReactor : public grpc::ServerWriteReactor<v1::WatchJobsResponse>,
                     public std::enable_shared_from_this<WatchReactor> {
 public:
  WatchReactor(WatchStreams& streams, uint64_t id, const v1::WatchJobsRequest& request);

  // Subscribes and reads the first message. The reactor owns itself until gRPC is done with it.
  void Begin();
  // Finishes the call as soon as no write is in flight. Any thread.
  void End(const absl::Status& status);
  // Writes a heartbeat if the stream has been idle for so long. Queue `streams` only.
  void MaybeHeartbeat(std::chrono::milliseconds interval);
  // Whose stream it is.
  const Call* call() const { return call_.get(); }

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : uint8_t { kIdle, kPumping, kWriting, kFinished };

  void Wake(Topic topic);
  void PostPump();
  void Pump();
  void FetchBatch();
  // Leaves kPumping: false if the stream has to finish and did.
  bool Settle(Phase next);
  void FinishNow(const absl::Status& status);

  WatchStreams& streams_;
  const uint64_t id_;
  const std::shared_ptr<Call> call_ = CurrentCall();
  WatchSource source_;             // used in kPumping, or in kIdle on the queue `streams`
  v1::WatchJobsResponse message_;  // belongs to gRPC in kWriting
  EventHub::SubscriptionId subscription_ = 0;
  std::shared_ptr<WatchReactor> self_;  // until OnDone

  std::mutex mutex_;
  // Guarded by mutex_.
  Phase phase_ = Phase::kPumping;
  bool woken_ = false;
  bool events_changed_ = false;
  std::optional<absl::Status> end_;
  Clock::time_point last_write_ = Clock::now();
};

}  // namespace penstock::server
