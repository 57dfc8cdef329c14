#include "client/follow.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/watch_stream.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);
// The daemon sends a heartbeat every 15 seconds; four missed ones are a dead connection.
constexpr absl::Duration kSilenceLimit = absl::Seconds(60);
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(2);

struct StreamEnd {
  enum class Kind : uint8_t { kEnd, kStopped, kClosed, kSilent } kind;
  v1::Job job;          // kEnd
  grpc::Status status;  // kClosed
  bool had_messages = false;
};

// Reads one stream until it ends, moving request.after along.
StreamEnd ReadStream(RpcClient& client, v1::WatchJobsRequest& request,
                     const FollowHandlers& handlers) {
  WatchStream stream(client, request);
  v1::WatchJobsResponse message;
  StreamEnd end{.kind = StreamEnd::Kind::kClosed, .job = {}, .status = {}};
  absl::Time last_message = absl::Now();
  while (true) {
    if (!handlers.on_tick()) {
      end.kind = StreamEnd::Kind::kStopped;
      return end;
    }
    switch (stream.Next(kTick, &message)) {
      case WatchStream::Event::kTimeout:
        if (absl::Now() - last_message < kSilenceLimit) continue;
        end.kind = StreamEnd::Kind::kSilent;
        return end;
      case WatchStream::Event::kClosed:
        end.status = stream.status();
        return end;
      case WatchStream::Event::kMessage:
        break;
    }
    last_message = absl::Now();
    end.had_messages = true;
    if (message.has_cursor()) *request.mutable_after() = message.cursor();
    if (message.has_end()) {
      end.kind = StreamEnd::Kind::kEnd;
      end.job = std::move(*message.mutable_end()->mutable_job());
      return end;
    }
    handlers.on_event(message);
  }
}

// False if on_tick ended the wait.
bool Pause(absl::Duration pause, const FollowHandlers& handlers) {
  const absl::Time until = absl::Now() + pause;
  while (absl::Now() < until) {
    if (!handlers.on_tick()) return false;
    absl::SleepFor(std::min(kTick, until - absl::Now()));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::optional<v1::Job>> Follow(RpcClient& client, v1::WatchJobsRequest request,
                                              const FollowHandlers& handlers,
                                              absl::Duration reconnect_limit) {
  absl::Time last_contact = absl::Now();
  absl::Duration pause = kFirstPause;
  while (true) {
    StreamEnd end = ReadStream(client, request, handlers);
    if (end.kind == StreamEnd::Kind::kEnd) return std::move(end.job);
    if (end.kind == StreamEnd::Kind::kStopped) return std::nullopt;
    // One that is OK has closed without its End.
    if (end.kind == StreamEnd::Kind::kClosed && !end.status.ok() &&
        !IsBrokenConnection(end.status)) {
      return client.ToStatus(end.status);
    }
    absl::Status lost = end.status.ok()
                            ? absl::UnavailableError("the stream closed without its end")
                            : client.ToStatus(end.status);
    if (end.had_messages) {
      last_contact = absl::Now();
      pause = kFirstPause;
    }
    if (absl::Now() - last_contact >= reconnect_limit) return lost;
    handlers.on_lost(lost);
    if (!Pause(pause, handlers)) return std::nullopt;
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace penstock::client
