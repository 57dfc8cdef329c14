// Worker processes: starting one, learning of its end, killing it.
//
// A worker is a session of its own and outlives the daemon. Both our children and workers that an
// earlier daemon started are watched through pidfds, which cannot come to mean another process;
// only of children does the kernel tell the exit status.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/decisions.h"
#include "server/lock_file.h"

namespace penstock::server {

struct SpawnArgs {
  std::string binary;
  std::string assignment_path;  // argv: binary --assignment assignment_path
  // The worker's CUDA_VISIBLE_DEVICES; the rest of the environment is the daemon's.
  std::string cuda_visible_devices;
  std::string log_path;  // stdout and stderr, appended
};

// Sole owner of a pidfd.
class ProcessHandle {
 public:
  // Unavailable / IO_ERROR if the binary cannot be started.
  static absl::StatusOr<ProcessHandle> Spawn(const SpawnArgs& args);
  // NotFound if that process no longer lives.
  static absl::StatusOr<ProcessHandle> Adopt(const ProcessIdentity& identity);

  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;
  ~ProcessHandle();

  int32_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }
  void Kill();
  // Waits at most so long for the end.
  bool WaitForEnd(int milliseconds) const;

 private:
  ProcessHandle(int32_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  int32_t pid_ = 0;
  int pidfd_ = -1;
};

// One thread that waits for all watched processes to end.
class ProcessWatcher {
 public:
  static absl::StatusOr<std::unique_ptr<ProcessWatcher>> Create();
  // Stops watching; the processes live on.
  ~ProcessWatcher();

  // Reaps the process when it ends and calls `on_end` once, on the watcher's thread. The handle
  // must stay until then or until the watcher is gone.
  absl::Status Watch(const ProcessHandle& process, std::function<void(ExitFacts)> on_end);

 private:
  ProcessWatcher(int epoll, int stop_event);
  void Run();

  const int epoll_;
  const int stop_event_;
  std::mutex mutex_;
  std::map<int, std::function<void(ExitFacts)>> watched_;  // by pidfd; guarded by mutex_
  std::thread thread_;
};

// Processes the kernel has killed for lack of memory, on this machine and in our cgroup; only
// differences mean anything.
int64_t OutOfMemoryKills();

}  // namespace penstock::server
