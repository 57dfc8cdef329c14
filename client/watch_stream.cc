#include "client/watch_stream.h"

#include <chrono>
#include <utility>

namespace penstock::client {

WatchStream::WatchStream(RpcClient& client, const v1::WatchJobsRequest& request)
    : reader_(client.jobs().AsyncWatchJobs(&context_, request, &queue_, this)) {}

WatchStream::~WatchStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

WatchStream::Event WatchStream::Next(absl::Duration limit, v1::WatchJobsResponse* message) {
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit);
  while (true) {
    if (pending_ == Pending::kNone) return Event::kClosed;
    void* tag = nullptr;
    bool ok = false;
    const auto got = queue_.AsyncNext(&tag, &ok, deadline);
    if (got == grpc::CompletionQueue::TIMEOUT) return Event::kTimeout;
    if (pending_ == Pending::kFinish) {
      pending_ = Pending::kNone;
      return Event::kClosed;
    }
    if (!ok) {
      pending_ = Pending::kFinish;
      reader_->Finish(&status_, this);
      continue;
    }
    const bool has_message = pending_ == Pending::kRead;
    if (has_message) *message = std::move(buffer_);
    pending_ = Pending::kRead;
    buffer_.Clear();
    reader_->Read(&buffer_, this);
    if (has_message) return Event::kMessage;
  }
}

}  // namespace penstock::client
