// A penstockd of our own, for `penstock run`: it is started beside a state directory, takes one
// job and is stopped. It ends when this process dies, however that happens.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/endpoint.h"

namespace penstock::client {

// The penstockd that lies beside this program.
absl::StatusOr<std::string> FindDaemon();

class PrivateDaemon {
 public:
  // Starts the program `daemon`, a penstockd. The directory exists; the daemon's output goes to
  // penstockd.log in it.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const std::string& daemon,
                                                              const std::string& state_directory);
  // Stops it if that has not been done.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  Endpoint endpoint() const;
  pid_t pid() const { return pid_; }  // 0 once it has ended
  // FailedPrecondition with the last line of its log if the daemon has ended.
  absl::Status CheckAlive();
  // SIGTERM, then SIGKILL after `limit`.
  void Stop(absl::Duration limit);

 private:
  PrivateDaemon(pid_t pid, std::string state_directory);
  // Whether it has ended; reaps it if so.
  bool HasEnded();

  pid_t pid_;  // 0 once reaped
  const std::string state_directory_;
};

}  // namespace penstock::client
