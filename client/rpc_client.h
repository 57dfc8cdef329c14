// A connection to the daemon: unary calls with a deadline, and the watch stream.
//
// Unary calls are tried up to four times if the daemon is unavailable (gRPC's own retry, which
// also honours the server's push-back). That is safe: reads have no effect, and each call that has
// one carries a request_id, the same for every try.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/credentials.h"
#include "client/endpoint.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "penstock/v1/admin_service.grpc.pb.h"
#include "penstock/v1/checkpoint_service.grpc.pb.h"
#include "penstock/v1/job.grpc.pb.h"
#include "penstock/v1/transfer_service.grpc.pb.h"

namespace penstock::client {

class RpcClient {
 public:
  // Connects when first called. `timeout` is the deadline of a unary call, tries included.
  RpcClient(Endpoint endpoint, absl::Duration timeout, const Credentials& credentials = {});

  // GetJob, and so on: client.Call(client.jobs(), &v1::JobService::Stub::GetJob, request).
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return ToStatus(status);
    return response;
  }

  // Of a call that begins now.
  std::chrono::system_clock::time_point Deadline() const {
    return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout_);
  }

  // Of the calls that follow.
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }
  absl::Duration timeout() const { return timeout_; }

  absl::StatusOr<v1::Job> GetJob(const std::string& name);

  // A call's status with the reason and metadata the daemon gave; for one that did not reach it,
  // UNAVAILABLE / SERVER_UNREACHABLE saying where it was looked for.
  absl::Status ToStatus(const grpc::Status& status) const;

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::CheckpointService::Stub& checkpoints() { return *checkpoints_; }
  v1::AdminService::Stub& admin() { return *admin_; }
  v1::TransferService::Stub& transfers() { return *transfers_; }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  const Endpoint endpoint_;
  absl::Duration timeout_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::TransferService::Stub> transfers_;
};

// Whether another call may do what one that ended so could not.
bool IsBrokenConnection(const grpc::Status& status);

// A random UUID for request_id.
std::string NewRequestId();

// What gRPC is told about repeating calls, as JSON.
std::string ServiceConfigJson();

// "jobs/{id}" for "{id}" or "jobs/{id}".
std::string JobName(const std::string& text);
// "sweeps/{id}" for "{id}" or "sweeps/{id}".
std::string SweepName(const std::string& text);

}  // namespace penstock::client
