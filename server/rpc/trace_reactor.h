// One TraceJob stream: waits until the worker has written the timeline, then sends it in pieces,
// one in flight.
//
//   kWaiting --control: written--> kSending --the last piece--> kFinished
//      +-------- the job stopped, or the client is gone ------------^
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/train/rooted_file.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/trace_requests.h"
#include "server/rpc/services.h"

namespace penstock::server {

class TraceReactor final : public grpc::ServerWriteReactor<v1::TraceJobResponse>,
                           public std::enable_shared_from_this<TraceReactor> {
 public:
  TraceReactor(ServiceContext& services, std::string job);
  // The reactor owns itself until gRPC is done with it.
  void Begin();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  enum class Phase : uint8_t { kWaiting, kSending, kFinished };

  // Control thread.
  void Ask();
  void Look();
  void Fail(const absl::Status& status);
  // Queue `streams`.
  void Load(const std::string& path);
  void SendNext();

  ServiceContext& services_;
  const std::string job_;
  EventHub::SubscriptionId subscription_ = 0;
  std::shared_ptr<TraceReactor> self_;  // until OnDone
  Phase phase_ = Phase::kWaiting;       // control thread
  std::optional<TraceTicket> ticket_;   // control thread
  bool counted_ = false;
  std::optional<ReadableFile> file_;
  int64_t sent_ = 0;
  v1::TraceJobResponse message_;  // belongs to gRPC while it is written
};

}  // namespace penstock::server
