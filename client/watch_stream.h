// One WatchJobs call, read with a time limit per read, so that a follower can look at the clock
// and at signals in between. Single-threaded.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "client/rpc_client.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"
#include "penstock/v1/job.grpc.pb.h"

namespace penstock::client {

class WatchStream {
 public:
  enum class Event : uint8_t { kMessage, kTimeout, kClosed };

  WatchStream(RpcClient& client, const v1::WatchJobsRequest& request);
  ~WatchStream();
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // Waits at most `limit` for a message.
  Event Next(absl::Duration limit, v1::WatchJobsResponse* message);

  // How the call ended. REQUIRES: Next() has returned kClosed.
  const grpc::Status& status() const { return status_; }

 private:
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  v1::WatchJobsResponse buffer_;  // what the pending read fills
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchJobsResponse>> reader_;
  // What the queue will tell of next. One operation is under way at any time.
  enum class Pending : uint8_t { kStart, kRead, kFinish, kNone } pending_ = Pending::kStart;
};

}  // namespace penstock::client
