// Watchers, each with a connection of its own, that go on from their cursor whenever a stream
// breaks and check that nothing is missing and nothing comes twice.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "penstock/v1/job.grpc.pb.h"
#include "tests/load/clients.h"
#include "tests/load/daemon_process.h"
#include "tests/load/findings.h"

namespace penstock::load {

// What the events of all jobs say up to a cursor.
struct EventLog {
  v1::Cursor cursor{};
  std::map<std::string, uint64_t> last_sequence{};  // by job
  uint64_t events = 0;
  std::string running_job{};  // the only one with events that do not say whose they are
};

// Reads the events of all jobs after `from` until there are no more; checks them.
EventLog ReadEvents(const DaemonProcess& daemon, EventLog from, Findings& findings);

struct WatcherArgs {
  int64_t all_jobs = 0;  // that watch every job
  int64_t running = 0;   // the running one: events, metrics and log
  int64_t follow = 0;    // a job that a client has just submitted, until its end; then another
  EventLog start;        // where those of every job begin
};

class Watchers {
 public:
  Watchers(const WatcherArgs& args, const DaemonProcess& daemon, RecentJobs& recent,
           Findings& findings);
  ~Watchers();

  int64_t messages() const { return messages_; }
  // How many have been sent all that there was when they began.
  int64_t caught_up() const { return caught_up_; }
  // Whether those of every job have come to where `log` is.
  bool HaveSeen(const EventLog& log) const;
  // Ends all streams. After it nothing is counted.
  void Stop();
  // That those of every job have seen as many events as there were.
  void CheckEvents(const EventLog& end, Findings& findings) const;

 private:
  class Watcher;
  void RestartBroken();

  RecentJobs& recent_;
  Findings& findings_;
  std::atomic<int64_t> messages_ = 0;
  std::atomic<int64_t> caught_up_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> open_ = 0;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::mutex mutex_;
  std::vector<Watcher*> broken_;  // guarded by mutex_
  std::thread restarter_;
};

}  // namespace penstock::load
