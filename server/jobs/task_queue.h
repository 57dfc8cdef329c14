// One thread that runs closures in the order they were posted, and delayed ones when due; or
// several threads, for tasks that share nothing and of which a long one shall not hold up the rest.
//
// What a queue's one thread owns needs no lock: penstockd's store and job table belong to the queue
// "control". Time is steady_clock, so a jump of the wall clock moves no task.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace penstock::server {

class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  // `name` is the threads', at most 15 characters.
  explicit TaskQueue(const std::string& name, int threads = 1);
  // Stop().
  ~TaskQueue();

  // After Stop() has returned, posted tasks are dropped. The task runs for the call that the
  // posting thread works for (server/access/call.h), a delayed one for the daemon.
  void Post(Task task);
  void PostAfter(std::chrono::milliseconds delay, Task task);

  // Runs what was posted without delay, drops what waits for a time, joins the threads.
  // Not to be called from one of them.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::deque<Task> ready_;
  std::multimap<Clock::time_point, Task> delayed_;
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace penstock::server
