// ThreadPool: the threads that share the work of one op.
//
// A pool belongs to one executor lane. Its workers live as long as it does; ParallelFor makes
// no thread and allocates nothing, so a running step keeps the promise that all memory is
// planned.
//
// Which worker runs which task is not fixed. So a result may depend on the task, never on the
// worker, and ops cut their work into tasks by shape alone: that makes the bits independent of
// the number of threads.
//
// One caller at a time: ParallelFor must not be called from two threads at once, nor from
// inside a body.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace penstock {

class ThreadPool {
 public:
  using Body = absl::FunctionRef<void(int64_t task, int worker)>;

  // The caller of ParallelFor counts as one of `threads`; so 1 starts none.
  // REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  // REQUIRES: no ParallelFor is running.
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) once for every task in [0, tasks), worker in [0, size()), and
  // returns when all calls have returned; what they wrote is visible to the caller. Two calls
  // with the same worker never overlap, so `worker` may index scratch memory.
  // REQUIRES: body does not throw.
  void ParallelFor(int64_t tasks, Body body);

 private:
  void WorkerLoop(int worker);

  // std::mutex, not absl::Mutex: the thread sanitizer knows it without a rebuilt Abseil.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Guarded by mutex_. A job is open from ParallelFor's start until its caller finds no task
  // left; a worker that wakes later than that skips it, so nobody waits for a slow waker.
  bool stopping_ = false;
  bool open_ = false;
  int64_t job_ = 0;
  int inside_ = 0;  // workers now in the open or just closed job
  int64_t tasks_ = 0;
  const Body* body_ = nullptr;

  std::atomic<int64_t> next_task_{0};
  std::vector<std::thread> workers_;
};

}  // namespace penstock
