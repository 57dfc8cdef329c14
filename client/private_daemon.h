// A penstockd of our own, for `penstock run`: it is started beside a state directory, takes one
// job and is stopped. When this process dies, however that happens, it is told to stop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/endpoint.h"

namespace penstock::client {

// The penstockd that lies beside this program.
absl::StatusOr<std::string> FindDaemon();

struct PrivateDaemonArgs {
  std::string program;          // a penstockd
  std::string state_directory;  // exists; the daemon's output goes to penstockd.log in it
  int32_t grace_seconds = 600;  // what running jobs get to save when it stops
};

class PrivateDaemon {
 public:
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const PrivateDaemonArgs& args);
  // Stops it if that has not been done.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  Endpoint endpoint() const;
  pid_t pid() const { return pid_; }  // 0 once it has ended
  // FailedPrecondition with the last line of its log if the daemon has ended.
  absl::Status CheckAlive();
  // Whether it has ended; reaps it if so.
  bool HasEnded();
  // SIGTERM.
  void Terminate();
  // That, unless it was sent, and waits for the end; SIGKILL some time after the jobs' grace.
  void Stop();

 private:
  PrivateDaemon(pid_t pid, const PrivateDaemonArgs& args);

  pid_t pid_;  // 0 once reaped
  const std::string state_directory_;
  const absl::Duration stop_limit_;
  bool terminated_ = false;  // SIGTERM was sent
};

}  // namespace penstock::client
