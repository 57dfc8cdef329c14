// penstockd without its command line: owns every part, in the order in which they need each
// other.
//
//   lock ─ store ─ job table ─ workers, clients' operations ─ watch streams ─ services ─ servers
//
// Queues: control (store, table, every decision), validation (slow checks), streams (files for
// watchers), inspection (data of a spec), transfers (files that clients send and fetch). gRPC
// threads and the process watcher only post to them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/internal/config.pb.h"
#include "penstock/v1/admin_service.pb.h"
#include "server/access/quota.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_moves.h"
#include "server/jobs/profile_store.h"

namespace penstock::server {

struct DaemonOptions {
  std::string state_directory;
  std::string socket;       // empty: penstock.sock in the state directory
  std::string listen;       // TCP, "127.0.0.1:0"; empty: none
  std::string http_listen;  // metrics and the web page, "127.0.0.1:0"; empty: none
  bool require_token = false;
  internal::TlsConfig tls;
  Quotas quotas;
  int32_t calls_per_second = 0;  // of one user; 0: any number
  std::vector<std::string> allowed_roots;
  int64_t host_memory_bytes = 0;
  std::string host_memory_limit_source;
  int64_t max_queued_jobs = 1000;
  int64_t max_streams = 1000;  // watch streams, and again of files that are sent and fetched
  int64_t max_upload_bytes = int64_t{1} << 40;
  // Of an upload that is not complete, after its last piece.
  std::chrono::seconds upload_lifetime{24 * 3600};
  std::chrono::milliseconds worker_silence{120'000};
  std::chrono::milliseconds worker_start_retry{60'000};
  int64_t aging_seconds = 0;
  int64_t fair_share_half_life_seconds = 0;
  std::function<int64_t(const Pace&)> stuck_after = StuckAfterSeconds;
  std::chrono::milliseconds stream_heartbeat{15'000};
  std::string worker_binary;
  std::shared_ptr<DeviceRegistry> devices;
  std::vector<std::string> capabilities;
  std::shared_ptr<const ProfileStore> profiles;
  // Measures the first healthy GPU that has no profile that holds, before jobs start.
  bool calibrate_at_start = false;
  bool confine_workers = false;
  SpecPlanner planner;
  DataInspector inspector;
  OutputChecker output_checker;
};

class Daemon {
 public:
  // Takes the lock, opens the store, gives every unfinished job its true state, then serves.
  // FailedPrecondition / LOCK_HELD if another daemon has the state directory,
  // FailedPrecondition or InvalidArgument / CONFIG_INVALID for options that cannot be.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(DaemonOptions options);
  // Stop().
  ~Daemon();

  // Says in the log what is wrong with the TLS files, which are read again when they change. Any
  // thread; by itself once an hour.
  void CheckCertificate();

  // Readiness goes off, then nothing starts any more.
  void BeginDrain(OnDrain running);
  struct JobCounts {
    int64_t running = 0;  // that have a worker
    int64_t left = 0;     // those, and the queued: what a next daemon goes on with by itself
  };
  JobCounts CountJobs();

  // Ends the streams and all calls, closes the store. Workers live on and the next daemon adopts
  // them.
  void Stop();

  const std::string& socket() const;
  // Empty without `listen`.
  const std::string& tcp_address() const;
  // "http://127.0.0.1:7071"; empty without `http_listen`.
  std::string http_address() const;
  // Whether a caller without token and certificate is let in over TCP.
  bool lets_in_strangers() const;
  int64_t open_streams() const;

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::server
