// Clients that submit, look at, list and cancel jobs, each with a connection and a thread of its
// own.
//
// A call that changes something carries a request_id and is repeated with it until it is answered,
// whatever happens to the daemon meanwhile. Some submits are given up at once: nobody knows whether
// they took place.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/v1/job.grpc.pb.h"
#include "tests/load/daemon_process.h"
#include "tests/load/findings.h"

namespace penstock::load {

// Names of jobs that were just submitted, for those who want to watch some. Thread-safe.
class RecentJobs {
 public:
  void Add(const std::string& name);
  std::optional<std::string> Take();

 private:
  std::mutex mutex_;
  std::deque<std::string> names_;  // guarded by mutex_
};

// What a client knows of a job that it submitted.
struct Submission {
  v1::CreateJobRequest request;
  std::string name;  // empty: given up
  bool cancelled = false;
};

struct ClientArgs {
  v1::JobSpec spec;
  int64_t clients = 0;
  double calls_per_second = 0;  // of all together; 0: as fast as they are answered
  int64_t stored_jobs = 0;
  std::string running_job;
};

class Clients {
 public:
  Clients(ClientArgs args, const DaemonProcess& daemon, RecentJobs& recent, Findings& findings);
  ~Clients();
  // Each ends its round: all that it submitted it has cancelled.
  void Stop();
  // What all together did, after Stop().
  const std::vector<Submission>& submissions() const { return submissions_; }

 private:
  class Client;
  void Run(int64_t index);

  const ClientArgs args_;
  const DaemonProcess& daemon_;
  RecentJobs& recent_;
  Findings& findings_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<Submission> submissions_;  // guarded by mutex_ until Stop() has returned
  std::vector<std::thread> threads_;
};

// Each acknowledged submit is there once, each unacknowledged one at most once, each cancelled job
// is cancelled, and a request repeated now gets the reply that it got.
void CheckSubmissions(const std::vector<Submission>& submissions, const DaemonProcess& daemon,
                      Findings& findings);

}  // namespace penstock::load
