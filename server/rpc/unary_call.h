// One unary call on its way through the daemon's queues.
//
// gRPC's threads must not block, so a handler checks the form of the request, posts a closure to
// the queue that owns what it needs and returns; the closure finishes the call. A call that the
// client has given up is finished without doing its work.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/jobs/task_queue.h"
#include "server/rpc/grpc_status.h"

namespace penstock::server {

// Copyable; all copies are the same call. Finish() is called exactly once.
template <typename Response>
class UnaryCall {
 public:
  UnaryCall(grpc::CallbackServerContext* context, Response* response)
      : context_(context), response_(response), reactor_(context->DefaultReactor()) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  // Nobody waits for it any more.
  bool Abandoned() const {
    return context_->IsCancelled() || context_->deadline() <= std::chrono::system_clock::now();
  }

  // True, and the call is finished, if Abandoned().
  bool FinishedIfAbandoned() const {
    if (!Abandoned()) return false;
    Finish(Error(absl::StatusCode::kCancelled, reason::kCallCancelled,
                 "the call was cancelled or its deadline passed; nothing was done"));
    return true;
  }

  void Finish(absl::StatusOr<Response> result) const {
    if (!result.ok()) {
      reactor_->Finish(ToGrpcStatus(result.status()));
      return;
    }
    *response_ = *std::move(result);
    reactor_->Finish(grpc::Status::OK);
  }

 private:
  grpc::CallbackServerContext* context_;
  Response* response_;
  grpc::ServerUnaryReactor* reactor_;
};

// The common case: refuses with `form` unless that is OK, else runs `work` on `queue`.
template <typename Response>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Response* response,
                                 const absl::Status& form, TaskQueue& queue,
                                 std::function<absl::StatusOr<Response>()> work) {
  UnaryCall<Response> call(context, response);
  if (!form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  queue.Post([call, work = std::move(work)] {
    if (!call.FinishedIfAbandoned()) call.Finish(work());
  });
  return call.reactor();
}

}  // namespace penstock::server
