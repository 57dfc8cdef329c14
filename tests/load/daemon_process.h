// penstockd as a process that can be killed and started again, in a directory of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/channel.h"

namespace penstock::load {

struct DaemonArgs {
  std::string bin;  // where penstockd and penstock-worker are
  std::string allowed_root;
  int64_t max_streams = 0;
  std::string daemon_cpus;  // "0-3", for taskset; empty: all
  std::string worker_cpus;  // likewise
};

struct ProcessUse {
  double cpu_seconds = 0;
  int64_t resident_bytes = 0;
};
// Of a process whose name holds no blank; zeros if there is none.
ProcessUse UseOf(pid_t pid);

class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonArgs args);
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  // Kills the daemon and its workers, removes the directory.
  ~DaemonProcess();

  // Returns once it answers.
  absl::Status Start();
  void Kill();  // SIGKILL; workers live on
  // Of the daemon that runs; its CPU time is added to that of those before.
  ProcessUse Use() const;

  std::string state() const { return directory_ + "/s"; }
  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect() const;

 private:
  const DaemonArgs args_;
  std::string directory_;
  std::string worker_;
  pid_t pid_ = 0;
  double cpu_seconds_before_ = 0;
};

}  // namespace penstock::load
